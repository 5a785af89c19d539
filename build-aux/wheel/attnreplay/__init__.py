# SPDX-License-Identifier: Apache-2.0
"""Starts the program and the tools that this package holds."""
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
PROGRAM = os.path.join(HERE, "bin", "attnreplay")
TOOLS = os.path.join(HERE, "share", "attnreplay", "contrib")


def run_program():
    os.execv(PROGRAM, sys.argv)


def run_tool():
    """Run the tool that the name of the command means: attnreplay-capture-hf is capture_hf.py."""
    os.environ.setdefault("ATTNREPLAY", PROGRAM)
    os.environ.setdefault("PYTHON", sys.executable)     # of tools in shell
    name = os.path.basename(sys.argv[0]).removeprefix("attnreplay-").replace("-", "_")
    path = os.path.join(TOOLS, name)
    if os.path.exists(path + ".py"):
        os.execv(sys.executable, [sys.executable, path + ".py", *sys.argv[1:]])
    os.execv(path + ".sh", [path + ".sh", *sys.argv[1:]])

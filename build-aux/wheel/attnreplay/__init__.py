# SPDX-License-Identifier: Apache-2.0
"""Starts the program and the tools that this package holds."""
import glob
import os
import sys

from .cuda import MAJOR

HERE = os.path.dirname(os.path.abspath(__file__))
PROGRAM = os.path.join(HERE, "bin", "attnreplay")
TOOLS = os.path.join(HERE, "share", "attnreplay", "contrib")


def find_libraries():
    """Name the libraries of NVIDIA's packages beside this one, unless the user names others."""
    for variable, name in ("ATTNREPLAY_CUBLAS", "libcublas"), ("ATTNREPLAY_CUPTI", "libcupti"):
        for path in glob.glob(os.path.join(os.path.dirname(glob.escape(HERE)), "nvidia", "*", "lib",
                                           f"{name}.so.{MAJOR}")):
            os.environ.setdefault(variable, path)


def run_program():
    find_libraries()
    os.execv(PROGRAM, sys.argv)


def run_tool():
    """Run the tool that the name of the command means: attnreplay-capture-hf is capture_hf.py."""
    find_libraries()
    os.environ.setdefault("ATTNREPLAY", PROGRAM)
    os.environ.setdefault("PYTHON", sys.executable)     # of tools in shell
    name = os.path.basename(sys.argv[0]).removeprefix("attnreplay-").replace("-", "_")
    path = os.path.join(TOOLS, name)
    if os.path.exists(path + ".py"):
        os.execv(sys.executable, [sys.executable, path + ".py", *sys.argv[1:]])
    os.execv(path + ".sh", [path + ".sh", *sys.argv[1:]])

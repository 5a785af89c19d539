# SPDX-License-Identifier: Apache-2.0
"""Make a wheel of an installed tree.  Used by 'make wheel'; ATTNREPLAY_VERSION is the version, and
ATTNREPLAY_CUDA the first number of CUDA's, or empty.

attnreplay/{bin,share/attnreplay,include} are in the package, because the program finds its data
beside itself.  share/{man,bash-completion,...} go where the environment's shell and man look.
"""
import os
import pathlib

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel

SHARE = pathlib.Path("attnreplay/share")
TOOLS = sorted(p for p in SHARE.glob("attnreplay/contrib/*") if p.suffix in (".py", ".sh") and
               os.access(p, os.X_OK))
# A build between releases is 0.9.0-g1234567, which Python writes 0.9.0+g1234567.
VERSION = os.environ["ATTNREPLAY_VERSION"].replace("-", "+", 1).replace("-", ".")
CUDA = os.environ["ATTNREPLAY_CUDA"]
if CUDA:
    VERSION += ("." if "+" in VERSION else "+") + "cu" + CUDA
LIBRARIES = {       # that the program loads at run time
    "": [],
    "12": ["nvidia-cublas-cu12", "nvidia-cuda-cupti-cu12"],
    "13": ["nvidia-cublas ~= 13.0", "nvidia-cuda-cupti ~= 13.0"],
}


class Wheel(bdist_wheel):
    """The program needs no version of Python."""

    def get_tag(self):
        return "py3", "none", super().get_tag()[2]


class Platform(Distribution):
    """The program needs this platform."""

    def has_ext_modules(self):
        return True


def command(tool):
    return f"attnreplay-{tool.stem.replace('_', '-')} = attnreplay:run_tool"


def files_of(folder):
    return [str(p.relative_to("attnreplay")) for p in pathlib.Path("attnreplay", folder).rglob("*")
            if p.is_file()]


def outside():
    """(folder, files) of what is shared, but the program's own data."""
    folders = {}
    for p in SHARE.rglob("*"):
        if p.is_file() and SHARE / "attnreplay" not in p.parents:
            folders.setdefault(str(p.parent.relative_to("attnreplay")), []).append(str(p))
    return sorted(folders.items())


setup(
    name="attnreplay",
    version=VERSION,
    description="Trace-replay simulator and profiler for LLM serving with sparse attention",
    license="Apache-2.0",
    license_files=["LICENSE*"],
    python_requires=">=3.9",
    packages=["attnreplay"],
    package_data={"attnreplay": [f for d in ("bin", "include", "share/attnreplay")
                                 for f in files_of(d)]},
    data_files=outside(),
    entry_points={"console_scripts": ["attnreplay = attnreplay:run_program",
                                      *map(command, TOOLS)]},
    install_requires=LIBRARIES[CUDA],
    extras_require={
        "capture": ["torch", "transformers", "safetensors"],    # capture_hf, compare_hf
        "bench": ["torch"],                                     # bench, bench_torch
        "gguf": ["gguf", "numpy"],                              # gguf_to_safetensors
        "tasks": ["tokenizers"],                                # make_tasks
        "vllm": ["vllm"],                                       # vllm_steps
    },
    cmdclass={"bdist_wheel": Wheel},
    distclass=Platform,
)

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Convert a gate of SeerAttention, attn_gate_weights.pth, to safetensors.

The tensors keep their names and values, which must be bf16.  attnreplay-methods(1) describes how
the selector seer uses them.  The script needs only Python.  A .pth file is a zip archive of raw
data and of a pickle with the shapes.  Only the parts of the pickle that make tensors are accepted,
so no file can run code.
"""
import argparse
import collections
import pickle
import sys
import zipfile

from safetensors_file import write


def die(message):
    sys.exit("seer_gate_to_safetensors: " + message)


class Tensor:
    def __init__(self, storage, offset, size, stride, *_):
        self.storage, self.offset, self.size, self.stride = storage, offset, size, stride

    def row_major(self):
        step = 1
        for n, stride in zip(reversed(self.size), reversed(self.stride)):
            if n > 1 and stride != step:
                return False
            step *= n
        return True

    def count(self):
        n = 1
        for size in self.size:
            n *= size
        return n


def parameter(tensor, *_):
    return tensor


KNOWN = {
    ("collections", "OrderedDict"): collections.OrderedDict,
    ("torch._utils", "_rebuild_tensor_v2"): Tensor,
    ("torch._utils", "_rebuild_parameter"): parameter,
}


class Reader(pickle.Unpickler):
    def find_class(self, module, name):
        if module == "torch" and name.endswith("Storage"):
            return name
        if (module, name) not in KNOWN:
            raise pickle.UnpicklingError(f"holds {module}.{name}, not only tensors")
        return KNOWN[module, name]

    def persistent_load(self, pid):
        return pid[1], pid[2]       # type, key


def read(path):
    """Read all tensors: {name: (size, data)}."""
    with zipfile.ZipFile(path) as archive:
        index = next((n for n in archive.namelist() if n.endswith("data.pkl")), None)
        if index is None:
            die(f"{path}: holds no data.pkl; not saved by PyTorch 1.6 or later")
        with archive.open(index) as f:
            tensors = Reader(f).load()
        if not isinstance(tensors, dict) or \
                not all(isinstance(t, Tensor) for t in tensors.values()):
            die(f"{path}: is no plain dictionary of tensors")
        out = {}
        for name, t in tensors.items():
            kind, key = t.storage
            if kind != "BFloat16Storage":
                die(f"{path}: tensor '{name}' is a {kind}; want bf16")
            if not t.row_major():
                die(f"{path}: tensor '{name}' is not stored row by row")
            data = archive.read(index[:-len("data.pkl")] + "data/" + key)
            data = data[2 * t.offset:2 * (t.offset + t.count())]
            if len(data) != 2 * t.count():
                die(f"{path}: tensor '{name}' is truncated")
            out[name] = (list(t.size), data)
        return out


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("input", metavar="IN.pth")
    p.add_argument("output", metavar="OUT.safetensors")
    a = p.parse_args()
    try:
        tensors = read(a.input)
        write(a.output, [(name, "BF16", size, lambda data=data: data)
                         for name, (size, data) in tensors.items()])
    except (OSError, KeyError, zipfile.BadZipFile, pickle.UnpicklingError) as e:
        die(f"{a.input}: {e}")


if __name__ == "__main__":
    main()

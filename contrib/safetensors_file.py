# SPDX-License-Identifier: Apache-2.0
"""Write safetensors files: what the scripts of this folder share.

The format: the header's length, 8 bytes; the header, JSON padded with blanks; the data."""
import json
import math
import os
import struct

BYTES = {"BF16": 2, "F16": 2, "F32": 4}


def write(path, tensors):
    """tensors: (name, type, shape, data), where data() returns the tensor's bytes.  It is called
    once for each tensor, in order, so only one of them needs to be in memory."""
    header, at = {}, 0
    for name, kind, shape, _ in tensors:
        end = at + BYTES[kind] * math.prod(shape)
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [at, end]}
        at = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    part = f"{path}.{os.getpid()}.tmp"
    try:
        with open(part, "xb") as f:
            f.write(struct.pack("<Q", len(text)))
            f.write(text)
            for name, _, _, data in tensors:
                begin, end = header[name]["data_offsets"]
                if f.write(data()) != end - begin:
                    raise ValueError(f"tensor '{name}' has not the bytes of its shape")
        os.replace(part, path)
    except BaseException:
        if os.path.exists(part):
            os.remove(part)
        raise

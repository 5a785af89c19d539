#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# contrib/seer_gate_to_safetensors.py on small files in the format of PyTorch.
. "$srcdir/tests/tap.sh"

python=${PYTHON:-python3}
export PYTHONDONTWRITEBYTECODE=1
if ! "$python" -c 'import zipfile' 2>/dev/null; then
	echo '1..0 # SKIP no python3'
	exit 0
fi
convert() { "$python" "$srcdir/contrib/seer_gate_to_safetensors.py" "$@"; }

"$python" - "$tmp" >"$tmp/.log" 2>&1 <<'EOF' ||
import io, pickle, struct, sys, types, zipfile
from collections import OrderedDict

def module(name):
    sys.modules[name] = types.ModuleType(name)
    return sys.modules[name]

def rebuild(*args):
    pass

torch, utils = module("torch"), module("torch._utils")
torch._utils, utils._rebuild_tensor_v2 = utils, rebuild
rebuild.__module__, rebuild.__qualname__ = "torch._utils", "_rebuild_tensor_v2"
for name in ("BFloat16Storage", "FloatStorage"):
    setattr(torch, name, type(name, (), {"__module__": "torch"}))

class Storage:
    def __init__(self, kind, key, n):
        self.kind, self.key, self.n = kind, key, n

class Tensor:
    def __init__(self, storage, offset, size, stride):
        self.args = (storage, offset, size, stride, False, OrderedDict())
    def __reduce__(self):
        return rebuild, self.args

class Writer(pickle.Pickler):
    def persistent_id(self, x):
        if isinstance(x, Storage):
            return "storage", getattr(torch, x.kind), x.key, "cpu", x.n

def save(path, obj, data):
    buf = io.BytesIO()
    Writer(buf, protocol=2).dump(obj)
    with zipfile.ZipFile(path, "w") as z:
        z.writestr("gate/data.pkl", buf.getvalue())
        z.writestr("gate/data/0", data)

NAME = "model.layers.%d.self_attn.attn_gate.mask_linear_k.weight"
HEADS, DIM = 8, 128
n = HEADS * 3 * DIM * DIM
data = b"".join(struct.pack("<H", 0x3c00 + i % 97) for i in range(n + 2))
size, stride = (HEADS, 3 * DIM, DIM), (3 * DIM * DIM, DIM, 1)
bf16 = Storage("BFloat16Storage", "0", n + 2)
tmp = sys.argv[1]
save(f"{tmp}/good.pth", OrderedDict([(NAME % 0, Tensor(bf16, 2, size, stride))]), data)
save(f"{tmp}/float.pth", {NAME % 0: Tensor(Storage("FloatStorage", "0", n), 0, size, stride)}, data)
save(f"{tmp}/turned.pth", {NAME % 0: Tensor(bf16, 0, size, (1, HEADS, HEADS * DIM))}, data)
save(f"{tmp}/short.pth", {NAME % 0: Tensor(bf16, 3, size, stride)}, data)
save(f"{tmp}/code.pth", {NAME % 0: print}, data)
save(f"{tmp}/list.pth", [Tensor(bf16, 2, size, stride)], data)
with zipfile.ZipFile(f"{tmp}/other.pth", "w") as z:
    z.writestr("x", "y")
open(f"{tmp}/data", "wb").write(data[4:])
EOF
	{ cat "$tmp/.log" >&2; echo 'Bail out! no files'; exit 1; }

refuses() { # refuses PATTERN FILE
	convert "$2" "$tmp/none" >"$tmp/.refused" 2>&1 && return 1
	[ ! -e "$tmp/none" ] && grep -q -e "$1" "$tmp/.refused" ||
		{ cat "$tmp/.refused"; return 1; }
}
values() { tail -c "$(wc -c <"$tmp/data")" "$tmp/gate" | cmp - "$tmp/data"; }

ok 'a gate is converted' convert "$tmp/good.pth" "$tmp/gate"
ok 'with its values' values
printf '{"timestamp": 0, "input_length": 300, "output_length": 1, "hash_ids": [1]}\n' \
	>"$tmp/trace.jsonl"
ok 'and a run takes it' "$ATTNREPLAY" -q run --trace "$tmp/trace.jsonl" --model niah-llama-14m \
	--capture "$srcdir/traces/samples/niah-2k.arc" --backend cpu --sample-layers 1 \
	--method "seer:gate=$tmp/gate" --db "$tmp/run.db"
ok 'values of another type are refused'   refuses 'is a FloatStorage; want bf16' "$tmp/float.pth"
ok 'so is another order of them'          refuses 'is not stored row by row' "$tmp/turned.pth"
ok 'and fewer than there should be'       refuses 'is truncated' "$tmp/short.pth"
ok 'a pickle cannot run code'             refuses 'not only tensors' "$tmp/code.pth"
ok 'a list is no gate'                    refuses 'no plain dictionary' "$tmp/list.pth"
ok 'nor is any other archive'             refuses 'holds no data.pkl' "$tmp/other.pth"
ok 'nor any other file'                   refuses 'not a zip file' "$tmp/data"
ok 'a missing file is said to be missing' refuses 'No such file' "$tmp/nope"
finish

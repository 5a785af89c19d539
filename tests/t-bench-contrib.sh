#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The comparison with PyTorch: measuring, comparing, and the command that does both.
. "$srcdir/tests/tap.sh"

python=${PYTHON:-python3}
if ! "$python" -c 'import json, statistics' 2>/dev/null; then
	echo '1..0 # SKIP no python'
	exit 0
fi
export PYTHONDONTWRITEBYTECODE=1
compare() { "$python" "$srcdir/contrib/bench_compare.py" "$@"; }
verdicts() { sed -n '/^target/,$p' "$1" | grep -o '  met\|  missed\|  no data' | sed 's/^ //' |
	tr -d '\n'; }

# ---- the comparison, on invented rows ----

# row IMPL WHAT BATCH CHUNK CONTEXT DENSITY US EVENT_US FLOPS BYTES: tflops and tbs follow from US
row() {
	awk -v i="$1" -v w="$2" -v b="$3" -v c="$4" -v x="$5" -v d="$6" -v u="$7" -v e="$8" \
		-v f="$9" \
		-v y="${10}" 'BEGIN {
		printf "{\"impl\":\"%s\",\"what\":\"%s\",\"batch\":%s,\"chunk\":%s," \
			"\"context\":%s,\"density\":%s," \
			"\"us\":%s,\"event_us\":%s,\"flops\":%s,\"bytes\":%s," \
			"\"tflops\":%s,\"tbs\":%s}\n",
			i, w, b, c, x, d, u, e, f, y, f == "null" ? f : f / u / 1e6,
			y == "null" ? y : y / u / 1e6 }'
}
ours() { # ours METADATA_US TABLE_US
	row attnreplay gemm null null null null 1000 1000 1e12 null
	row attnreplay copy null null null null 100 100 null 4e8
	row attnreplay dense 1 512 32768 null 98 100 7e10 null
	row attnreplay past 1 512 32768 null 98 100 7e10 null
	row attnreplay past 8 1024 131072 null 1000 1010 6.06e11 null
	row attnreplay dense 8 1024 131072 null 1000 1010 6e11 null
	row attnreplay dense 1 1024 65536 null 800 810 5e11 null
	row attnreplay dense 1 256 2048 null 20 21 8e9 null
	row attnreplay dense 1 2048 4096 null 100 101 1.2e11 null
	row attnreplay table 8 1024 131072 0.3 "$2" "$2" 1.8e11 null
	row attnreplay blocksparse 1 1024 65536 0.1 82 86 5e10 null
	row attnreplay select 8 1024 131072 null 40 44 null null
	row attnreplay metadata 8 1024 131072 null "$1" 12 null null
	row attnreplay decode 8 1 131072 null 50 54 null 1.9e8
	row attnreplay mixed 8 2048 8192 null 140 144 1.3e11 null |
		sed 's/}$/,"kv_heads":4,"head_dim":128}/' # bytes: 1.34e8
}
ours 9 320 >"$tmp/ours"
ours 11 400 >"$tmp/worse"
{
	row torch gemm null null null null 1250 1250 1e12 null
	row cudnn dense 1 512 32768 null 150 150 7e10 null
	row cudnn dense 8 1024 131072 null 1000 1000 6.06e11 null
	row cudnn past 1 512 32768 null 150 150 7e10 null
	row cudnn past 8 1024 131072 null 1000 1000 6.06e11 null
	row flash dense 8 1024 131072 null 2020 2020 6e11 null
	row flash decode 8 1 131072 null 108 108 null 1.9e8
	row fa3 dense 1 512 32768 null 106 106 7e10 null
	row fa3 past 1 512 32768 null 90 90 7e10 null
	row fa3 dense 1 256 2048 null 21 21 8e9 null
	row flex table 8 1024 131072 0.1 500 500 1e11 null
} >"$tmp/theirs"
printf '%s\n' '{"impl":"cudnn","what":"dense","batch":1,"chunk":1024,"context":65536,"density":null,"us":null,"event_us":null,"flops":5e11,"bytes":null,"tflops":null,"tbs":null,"error":"refused"}' \
	>>"$tmp/theirs"
ratio() { awk -v s="$1" -v i="$2" 'index($0, s) == 1 && $10 == i { print $11 }' "$tmp/report"; }

compare "$tmp/ours" "$tmp/theirs" >"$tmp/report"
is 'when every target is met the status is 0' "$?" 0
is 'a ratio is our speed over theirs'  "$(ratio 'dense 1 x 512 of 32768' cudnn)" 1.500
is 'work that differs is allowed for'  "$(ratio 'dense 8 x 1024 of 131072' cudnn)" 0.980
is 'event times are held against event times' "$(ratio 'dense 8 x 1024 of 131072' flash)" 2.000
is 'decode is compared by bytes'       "$(ratio 'decode 8 x 1 of 131072' flash)" 2.000
is 'ceilings show whether both saw the same GPU' \
	"$(awk '$1 == "gemm" { print $NF }' "$tmp/report")" 1.250
is 'a shape that was refused has no ratio, and the reason' \
	"$(grep -c 'dense 1 x 1024 of 65536 .* - TFLOP/s cudnn  *-  *refused' "$tmp/report")" 1
is 'rows of other densities are not mixed up' "$(grep -c flex "$tmp/report")" 0
is 'medians are over what was measured' "$(grep 'median of dense over cudnn' "$tmp/report")" \
	'median of dense over cudnn: 1.240, 0.980 to 1.500 (2 rows)'
is 'each target has a verdict' "$(verdicts "$tmp/report")" \
	' met met met met met met met met met met'
is 'FlashAttention 3 is a target where it is causal' \
	"$(grep '^causal chunk over Flash' "$tmp/report" | tr -s ' ')" \
	'causal chunk over FlashAttention 3, every row >= 1.05 1.060 met dense 1 x 512 of 32768'
is 'a small batch must be as fast as there' \
	"$(grep '^small batches' "$tmp/report" | tr -s ' ')" \
	'small batches over FlashAttention 3, every row >= 1 1.000 met dense 1 x 256 of 2048'
is 'a chunk and decodes are held against the bytes of the decodes' \
	"$(grep '^mixed batches' "$tmp/report" | tr -s ' ')" \
	'mixed batches over bytes of decodes, time <= 1.05 1.048 met mixed 8 x 2048 of 8192'
is 'what computes more than PyTorch has a figure and no bound' \
	"$(grep '^causal chunk over cuDNN' "$tmp/report" | tr -s ' ')" \
	'causal chunk over cuDNN without a mask, every row 0.980 dense 8 x 1024 of 131072'

is 'the fastest of a shape is named' \
	"$(sed -n '/ ahead$/,/^target/p' "$tmp/report" | grep 'dense 1 x 512 \|past 1 x 512 \|decode' |
		tr -s ' ')" \
	'dense 1 x 512 of 32768 ours, 1.060 times fa3
past 1 x 512 of 32768 fa3, 1.111 times ours
decode 8 x 1 of 131072 ours, 2.000 times flash'
is '... but by none that computes more' \
	"$(sed -n '/ ahead$/,/^target/p' "$tmp/report" | grep 'dense 8 x 1024' | tr -s ' ')" \
	'dense 8 x 1024 of 131072 ours, 2.000 times flash'
compare "$tmp/ours" "$tmp/theirs" --table "$tmp/table" >/dev/null
is 'a table has the ratios by kernel' "$(cat "$tmp/table")" \
	'| kernel | beside | shapes | ahead on | least | median | most |
|---|---|---|---|---|---|---|
| decode | FlashAttention 2 of PyTorch | 1 | 1 | 2.00 | 2.00 | 2.00 |
| prefill, 128 to 512 rows of at most 8K | FlashAttention 3 | 1 | 1 | 1.00 | 1.00 | 1.00 |
| prefill, all keys | FlashAttention 3 | 1 | 0 | 0.90 | 0.90 | 0.90 |
| prefill, all keys | cuDNN of PyTorch | 2 | 1 | 0.99 | 1.25 | 1.50 |
| prefill, causal | FlashAttention 2 of PyTorch | 1 | 1 | 2.00 | 2.00 | 2.00 |
| prefill, causal | FlashAttention 3 | 1 | 1 | 1.06 | 1.06 | 1.06 |
| prefill, causal | cuDNN of PyTorch | 1 | 1 | 1.50 | 1.50 | 1.50 |'
# listed IMPL US: a row with lists of a file
listed() { row "$1" blocksparse 8 1024 32768 0.05 "$2" "$2" 2e9 null |
	sed 's/}/,"lists":"a.json"}/'; }
listed attnreplay 100 >"$tmp/real"
row attnreplay blocksparse 8 1024 32768 0.05 125 125 2e9 null >>"$tmp/real"
listed fa4 150 >"$tmp/real-theirs"
row fa4 blocksparse 8 1024 32768 0.05 250 250 2e9 null >>"$tmp/real-theirs"
compare "$tmp/real" "$tmp/real-theirs" --table "$tmp/table" >/dev/null
is 'blocks of a real selection have lines of their own' "$(sed 1,2d "$tmp/table")" \
	'| block-sparse | FlashAttention 4 | 1 | 1 | 2.00 | 2.00 | 2.00 |
| block-sparse, blocks of a real selection | FlashAttention 4 | 1 | 1 | 1.50 | 1.50 | 1.50 |'
ok 'a table that cannot be written is named' fails 3 'no/table: No such file' \
	compare "$tmp/ours" "$tmp/theirs" --table "$tmp/no/table"

compare "$tmp/worse" "$tmp/theirs" >"$tmp/report"
is 'when one is missed the status is 1' "$?" 1
is 'and the verdict says which' "$(verdicts "$tmp/report")" \
	' met met met met met met met missed met missed'
compare "$tmp/ours" >"$tmp/report"
is 'alone, what needs no other program is judged' "$? $(verdicts "$tmp/report")" \
	'0  no data no data no data no data no data no data met met met met met'

# The clock falls from round to round, equally for both programs.  In the rounds our time is 0.9, 1
# and 1.1 of theirs, and selection takes 0.05, 0.05 and 0.01 of dense attention.
rounds() { # rounds FILE IMPL WHAT US...
	file=$1 impl=$2 kind=$3 round=0
	shift 3
	for us in "$@"; do
		round=$((round + 1))
		row "$impl" "$kind" 8 1024 131072 null "$us" "$us" 6e11 null |
			sed "s/}/,\"round\":$round}/" >>"$file"
	done
}
rounds "$tmp/turns" attnreplay dense 900 2000 4400
rounds "$tmp/turns" attnreplay select 30 80 22
rounds "$tmp/turns" attnreplay metadata 15 20 22
rounds "$tmp/turned" cudnn dense 1000 2000 4000
compare "$tmp/turns" "$tmp/turned" >"$tmp/report"
is 'rows of one round are compared, and the median is taken' \
	"$(ratio 'dense 8 x 1024 of 131072' cudnn)" 1.000
ok 'beside the least and the most' grep -q ' 1.000 0.909-1.111$' "$tmp/report"
is 'and speeds are medians' "$(awk '/^dense 8/ { print $7, $8; exit }' "$tmp/report")" '300.0 300.0'
ok 'our own rows are compared by rounds, too' \
	grep -q '^selection and metadata.* 0.050  met' "$tmp/report"
sed '/"round":2/d' "$tmp/turned" >"$tmp/torn"
compare "$tmp/turns" "$tmp/torn" >"$tmp/report"
is 'a round that one lacks does not count' "$(ratio 'dense 8 x 1024 of 131072' cudnn)" 1.010

echo '{"what":"dense"}' >"$tmp/short"
ok 'a line that is no row is named' fails 3 'short:1: not a row of a benchmark' compare "$tmp/short"
ok 'a file that is missing is named' \
	fails 3 'nowhere: No such file' compare "$tmp/ours" "$tmp/nowhere"

# ---- measuring, with a fake PyTorch ----

mkdir -p "$tmp/stub/torch/nn/attention"
cat >"$tmp/stub/torch/__init__.py" <<'END'
import contextlib
from unittest.mock import MagicMock
class Event:
    def __init__(self, enable_timing): pass
    def record(self): pass
    def elapsed_time(self, other): return 0.25
cuda = MagicMock()
cuda.Event = Event
cuda.get_device_properties.return_value.L2_cache_size = 1 << 20
cuda.is_available.return_value = True
cuda.get_device_name.return_value = "pretended"
no_grad = contextlib.nullcontext
bfloat16, int64, int32, uint8, __version__ = "bf16", "i64", "i32", "u8", "0"
class Tensor:
    def __init__(self, shape): self.shape = shape
    def t(self): return self
    def transpose(self, i, j):
        assert (i, j) == (1, 2)
        return Tensor((self.shape[0], self.shape[2], self.shape[1], self.shape[3]))
    def contiguous(self): return self
    def view(self, *shape): return Tensor(shape)
    def __mul__(self, n): return self
    def __add__(self, n): return self
    def copy_(self, other): pass
    def repeat_interleave(self, n, dim):
        return Tensor((self.shape[0], self.shape[1] * n) + self.shape[2:])
def randn(shape, **kw): return Tensor(shape)
def zeros(n, **kw): return Tensor((n,))
def arange(n, **kw): return Tensor((n,))
def empty_like(x): return x
def mm(a, b, out): pass
def manual_seed(n): pass
END
: >"$tmp/stub/torch/nn/__init__.py"
cat >"$tmp/stub/torch/nn/functional.py" <<'END'
from torch.nn import attention
def scaled_dot_product_attention(q, k, v, is_causal, enable_gqa=False):
    assert (q.shape[2] == k.shape[2] or not is_causal) and k.shape == v.shape
    assert q.shape[1] == k.shape[1] or enable_gqa
    if attention.now == "cudnn" and enable_gqa:
        raise RuntimeError("no grouped heads\nin this one")
END
cat >"$tmp/stub/torch/nn/attention/__init__.py" <<'END'
import contextlib
now = None
class SDPBackend:
    CUDNN_ATTENTION, FLASH_ATTENTION = "cudnn", "flash"
@contextlib.contextmanager
def sdpa_kernel(backend):
    global now
    now = backend
    yield
END
export PYTHONPATH="$tmp/stub"

real=$ATTNREPLAY
cat >"$tmp/program" <<END
#!/bin/sh
exec "$real" "\$@" --dry-run
END
cat >"$tmp/broken" <<'END'
#!/bin/sh
exit 4
END
cat >"$tmp/mortal" <<'END'
#!/bin/sh
exit 0
END
cat >"$tmp/wrong" <<END
#!/bin/sh
"$real" "\$@" --dry-run
exit 1
END
cat >"$tmp/bare" <<END
#!/bin/sh
[ "\$1" = -c ] && exit 1
exec "$python" "\$@"
END
chmod +x "$tmp/program" "$tmp/broken" "$tmp/mortal" "$tmp/wrong" "$tmp/bare"
cat >"$tmp/cases" <<'END'
# made up
past,dense 2 256,1024 1024		# the second one is its whole context
decode 2 1 1K
blocksparse,table 2 256 1K 0.5
END
measure() { # measure PROGRAM OPTION...
	program=$1
	shift
	"$python" "$srcdir/contrib/bench_torch.py" --cases "$tmp/cases" --ours "$tmp/mine" \
		--theirs "$tmp/out" --repeat 5 --rounds 1 "$@" -- "$program"
}
status_of() { # what it says and its status
	"$@" 2>&1 >"$tmp/progress"
	echo "$?"
}
fields() { # fields EXPRESSION [FILE]: of each row r, but for empty ones
	"$python" -c "import json, sys
print(*filter(None, (str($1) for r in map(json.loads, open(sys.argv[1])))), sep=' ')" "${2:-$tmp/out}"
}
ok 'cases are measured by both programs' measure "$tmp/program"
is 'ours has a row of each' \
	"$(fields 'r["what"]' "$tmp/mine")" 'past dense past dense decode blocksparse table'
is 'and theirs of each implementation, after the ceilings' "$(fields 'r["impl"]')" \
	'torch torch cudnn cudnn flash flash cudnn cudnn flash flash cudnn flash flex flex'
is 'a backend without grouped heads gets them expanded, where that is fair' \
	"$(fields 'r.get("gqa")')" \
	'None None expanded expanded native native expanded expanded native native None native None None'
is 'what is refused has no time, but a reason of one line' \
	"$(fields '"-" if r["us"] else r["error"].count("\n")')" '- - - - - - - - - - 0 - 0 0'
is 'the reason is the backend'"'"'s' "$(grep -c '"error": "no grouped heads"' "$tmp/out")" 1
is 'keys are all visible, or causal where the chunk is the context' \
	"$(fields \
	'(r["what"], r["flops"]) if r["impl"] == "flash" and r["what"] != "decode" else ""')" \
	"('past', 4294967296) ('dense', 4294967296) ('past', 17179869184) ('dense', 8598323200)"
is 'past is the same work on both sides' \
	"$(fields 'r["flops"] if r["what"] == "past" else ""' "$tmp/mine")" \
	'4294967296 17179869184'
ok 'rounds may be more' measure "$tmp/program" --rounds 3 --impl flash
is 'every other one goes backwards' \
	"$(fields 'r["what"] + str(r["round"])' "$tmp/mine" | cut -d ' ' -f 1-8)" \
	'past1 dense1 dense2 past2 past3 dense3 past1 dense1'
is 'theirs are numbered, too' "$(fields 'r["round"] if r["what"] == "decode" else ""')" '1 2 3'
is 'but not the ceilings' "$(fields 'r["round"]' | cut -d ' ' -f 1-3)" 'None None 1'
is 'implementations may be fewer' \
	"$(fields 'r["impl"]' | tr ' ' '\n' | sort -u | tr '\n' ' ')" 'flash torch '
mkdir "$tmp/fa3"
cat >"$tmp/fa3/fa3_fwd_interface.py" <<'END'
import torch
def flash_attn_func(q, k, v, causal, num_splits):
    print("fa3", q.shape[1], k.shape[1], causal)
END
ok 'FlashAttention 3 may take part' \
	eval 'PYTHONPATH=$tmp/stub:$tmp/fa3 measure "$tmp/program" --impl fa3 >"$tmp/calls"'
is 'it is causal for every chunk' "$(grep '^fa3' "$tmp/calls" | sort -u | tr '\n' ' ')" \
	'fa3 1 1024 False fa3 1024 1024 False fa3 1024 1024 True fa3 256 1024 False fa3 256 1024 True '
is 'and its work is what it computes' \
	"$(fields '(r["what"], r["flops"]) if r["what"] == "dense" else ""')" \
	"('dense', 3760193536) ('dense', 8598323200)"
mkdir -p "$tmp/more/flash_attn/cute"
: >"$tmp/more/flash_attn/__init__.py"
cat >"$tmp/more/flash_attn/cute/__init__.py" <<'END'
def flash_attn_func(q, k, v, causal):
    print("fa4", q.shape[1], k.shape[1], causal)
END
cat >"$tmp/more/flashinfer.py" <<'END'
class BatchDecodeWithPagedKVCacheWrapper:
    def __init__(self, workspace, use_tensor_cores): pass
    def plan(self, first, pages, last, *shape, q_data_type): print("plan", *shape)
    def run(self, q, kv): print("flashinfer", q.shape, kv[0].shape)
END
ok 'so may FlashAttention 4 and FlashInfer' \
	eval 'PYTHONPATH=$tmp/stub:$tmp/more measure "$tmp/program" --impl fa4,flashinfer >"$tmp/calls"'
is 'FlashAttention 4 is causal for every chunk' \
	"$(grep '^fa4' "$tmp/calls" | sort -u | tr '\n' ' ')" \
	'fa4 1 1024 False fa4 1024 1024 False fa4 1024 1024 True fa4 256 1024 False fa4 256 1024 True '
is 'FlashInfer runs decodes from pages' \
	"$(grep '^plan\|^flashinfer' "$tmp/calls" | sort -u | tr '\n' ' ')" \
	'flashinfer (2, 16, 128) (128, 16, 4, 128) plan 16 4 128 16 '
is 'both refuse lists for a reason of one line each' \
	"$(fields 'r["impl"] + r["what"] if r.get("error") else ""' | tr ' ' '\n' | sort | tr '\n' ' ')" \
	'fa4blocksparse fa4table flashinferblocksparse flashinfertable '
is 'those whose package is there are measured' \
	"$(PYTHONPATH=$tmp/stub:$tmp/more measure "$tmp/program" >/dev/null
	fields 'r["impl"]' | tr ' ' '\n' | sort -u | tr '\n' ' ')" \
	'cudnn fa4 flash flashinfer flex torch '
ok 'another attnreplay may take turns' measure "$tmp/program" --impl flash --before "$tmp/program"
is 'its rows are those of one more implementation' \
	"$(fields 'r["what"] + str(r["round"]) if r["impl"] == "before" else ""')" \
	'past1 dense1 past1 dense1 decode1 blocksparse1 table1'
cat >"$tmp/older" <<END
#!/bin/sh
head -n 1 | "$real" "\$@" --dry-run
END
chmod +x "$tmp/older"
ok '... and one that ends leaves out the others' \
	measure "$tmp/program" --impl flash --before "$tmp/older"
is '... which are measured' "$(fields 'r["what"] if r["impl"] == "before" else ""') $(fields \
	'r["what"]' "$tmp/mine")" 'past past dense past dense decode blocksparse table'
is 'one that is unknown is named' "$(status_of measure "$tmp/program" --impl flash,nope)" \
	"$(printf 'bench_torch: --impl: unknown nope\n1')"
is 'without time shapes are left out, and it says so' \
	"$(status_of measure "$tmp/program" --limit -1)" \
	"$(printf 'bench_torch: no time left for the last 4 shapes\n1')"
is 'a result that is wrong is the status' "$(status_of measure "$tmp/wrong")" 1
is 'so is a program that cannot run' "$(status_of measure "$tmp/broken")" 4
is 'one that ends early is named' "$(status_of measure "$tmp/mortal")" \
	"$(printf 'bench_torch: no rows of past 2 256 1024\n1')"
is 'it draws the blocks that attnreplay draws' "$("$python" - "$srcdir/contrib" <<'END'
import sys
sys.path.insert(0, sys.argv[1])
import bench_torch
class I64(int):     # wraps as a tensor of 64-bit integers does
    def wrap(x): return I64((int(x) + (1 << 63)) % (1 << 64) - (1 << 63))
    def __add__(self, x): return I64.wrap(int(self) + int(x))
    def __mul__(self, x): return I64.wrap(int(self) * int(x))
    def __xor__(self, x): return I64.wrap(int(self) ^ int(x))
    def __and__(self, x): return I64(int(self) & int(x))
    def __rshift__(self, n): return I64(int(self) >> n)
kept = [int(bench_torch.draw(I64(1), I64(5), I64(j))) * 2.0 ** -53 < 0.5 for j in range(16)]
print(hex(sum(k << j for j, k in enumerate(kept))))
END
)" 0x9220

# ---- all in one ----

whole() { ATTNREPLAY=$1 PYTHON=$python REPEAT=5 ROUNDS=2 sh "$srcdir/contrib/bench.sh" \
	"$tmp/results"; }
ok 'one command measures and compares' whole "$tmp/program"
is 'and leaves rows and a report' \
	"$(ls "$tmp/results" | tr '\n' ' ')" 'ours.jsonl report.txt table.md theirs.jsonl '
is 'of every case, in every round' \
	"$(fields 'r["what"]' "$tmp/results/ours.jsonl" | tr ' ' '\n' | sort |
	uniq -c | awk '{ printf "%s %s ", $1, $2 }')" \
	'8 blocksparse 18 decode 2 decode-table 82 dense 2 metadata 12 mixed 32 past 2 select 2 table '
is 'targets without figures have no verdict' "$(verdicts "$tmp/results/report.txt")" \
	' no data no data no data no data no data no data no data no data no data no data no data'
printf 'dense 1 128 512\n' >"$tmp/a.cases"
printf 'decode 8 1 8K\n' >"$tmp/b.cases"
printf '#!/bin/sh\necho "$CUDA_VISIBLE_DEVICES" >>"%s"\nexec "%s" "$@"\n' "$tmp/gpus" "$tmp/program" \
	>"$tmp/on-gpu"
chmod +x "$tmp/on-gpu"
cp "$tmp/results/ours.jsonl" "$tmp/results/ours.7.jsonl"	# as one that was killed leaves it
CASES="$tmp/a.cases $tmp/b.cases" whole "$tmp/on-gpu" >/dev/null
is 'several files of cases have a GPU each' "$(sort "$tmp/gpus" | tr '\n' ' ')$(
	fields 'r["what"]' "$tmp/results/ours.jsonl" | tr ' ' '\n' | sort | uniq -c |
	awk '{ printf "%s %s ", $1, $2 }')$(ls "$tmp/results" | tr '\n' ' ')" \
	'0 1 2 decode 2 dense ours.jsonl report.txt table.md theirs.jsonl '
CASES="$tmp/a.cases $tmp/b.cases" whole "$tmp/wrong" >/dev/null 2>&1
is '... and the worst status' $? 1
mkdir "$tmp/two words"
cp "$tmp/b.cases" "$tmp/two words/b.cases"
: >"$tmp/gpus"
CASES="$tmp/two words/b.cases" whole "$tmp/on-gpu" >/dev/null
is 'the name of a single file may have blanks' \
	"$(sort -u "$tmp/gpus")$(fields 'r["what"]' "$tmp/results/ours.jsonl")" 'decode decode'
is '... where there is no PyTorch, too' "$(python=$tmp/bare CASES="$tmp/two words/b.cases" \
	whole "$tmp/program" >/dev/null 2>&1
	fields 'r["what"]' "$tmp/results/ours.jsonl")" decode
is 'those of several may not' \
	"$(CASES="$tmp/a.cases $tmp/two words/b.cases" whole "$tmp/program" 2>&1; echo $?)" \
	"bench.sh: no file of cases '$tmp/two'; where there are several, no name has blanks
1"
is 'without PyTorch it says so' "$(python=$tmp/bare whole "$tmp/program" 2>&1 >/dev/null)" \
	'bench.sh: no PyTorch, nothing to compare with'
is 'and measures ours' \
	"$(fields 'r["what"]' "$tmp/results/ours.jsonl" | tr ' ' '\n' | grep -c dense)" 41
whole "$tmp/broken" >/dev/null 2>&1
is 'without a GPU it stops' $? 4

PYTHON=no-such-python sh "$srcdir/contrib/bench.sh" "$tmp/early" >"$tmp/out" 2>&1
is 'without Python nothing begins' "$?:$(cat "$tmp/out")" \
	"1:bench.sh: no program 'no-such-python', which compares the results; name one as PYTHON"

# ---- the replay alone ----

replays() {
	sh "$srcdir/contrib/bench_replay.sh" 50 100 >"$tmp/replays" &&
		awk '/none|requests .*[0-9]$/ {
			n++
			bad = bad || $1 != 50 * int((n + 1) / 2) || $3 < $1 || $4 < $3 || NF != 11
			bad = bad || ($2 == "none") != ($11 == 0) || ($2 == "none") != n % 2 }
			END { exit bad || n != 4 }' "$tmp/replays"
}
repeated() {
	TRACE=$srcdir/traces/samples/azure-2023-code-200.csv RATE=9 KEEP=iterations \
		RUN='--backend cost --cost-fixed 5ms' sh "$srcdir/contrib/bench_replay.sh" 201 \
		>"$tmp/replays" && grep -q '^ *400 iterations ' "$tmp/replays"
}
if command time -f %e true 2>/dev/null; then
	ok 'replays of growing traces are measured' replays
	ok '... and of one that is repeated, as the variables say' repeated
else
	skip 'replays of growing traces are measured' 'no GNU time'
	skip '... and of one that is repeated, as the variables say' 'no GNU time'
fi
finish

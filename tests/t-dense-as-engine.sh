#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# contrib/dense_as_engine.py with invented times: the factors it writes, what it leaves out, and
# what it refuses.
. "$srcdir/tests/tap.sh"

python=${PYTHON:-python3}
if ! "$python" -c 'import json, sqlite3' 2>/dev/null; then
	echo '1..0 # SKIP no python with sqlite3'
	exit 0
fi
export PYTHONDONTWRITEBYTECODE=1
cd "$tmp" || exit 99
factors() { "$python" "$srcdir/contrib/dense_as_engine.py" "$@"; }

# A run without kernels, with steps that the profile has and others that are like them: two prompts
# of 512 in one batch, 1024 tokens behind 8192, and decodes of a short prompt.
awk 'BEGIN { print "TIMESTAMP,ContextTokens,GeneratedTokens" }
	{ for (; $1 > 0; $1--) printf "2024-01-01 00:00:%02d,%d,%d\n", NR, $2, $3 }' >trace.csv <<'E'
1 1024 1
1 2048 1
2 512 1
1 9216 1
1 500 5
1 2000 4
8 2000 6
E
run() { "$ATTNREPLAY" run --trace trace.csv --backend cost --db "$1"; }
run runs.db >/dev/null || exit 99
cat >kernels.py <<'E'
# Make the runs of the database those of a GPU, which ran 2 of 4 layers with known times.
import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
db.executescript("""
INSERT INTO model VALUES (1, 'm', 4, 64, 4, 2, 16, 4, '{}');
INSERT INTO method VALUES (1, 'dense', '{}', 1);
INSERT INTO gpu VALUES (1, 'u', 'Test GPU', 9, 0, 1, 1, 1);
UPDATE run SET model_id = 1, method_id = 1, gpu_id = 1, layers_run = 2, clock = 'cupti';
INSERT INTO iteration_phase SELECT run_id, iter_no, phase_id, 1, 100000 * decode_tokens
  FROM iteration, phase WHERE name = 'decode' AND decode_tokens;
INSERT INTO iteration_phase SELECT run_id, iter_no, phase_id, 1, 1000 * prefill_tokens
  FROM iteration, phase WHERE name = 'attend' AND prefill_tokens;
UPDATE iteration_phase SET gpu_ns = 1000000000 WHERE (run_id, iter_no) IN (SELECT run_id, iter_no
  FROM iteration WHERE batch_size = 2 OR prefill_tokens = 1024 AND prefill_pairs > 9e6
  OR batch_size = 1 AND (decode_context < 510 OR decode_context = 2003) AND decode_context);""")
db.commit()
E
"$python" kernels.py runs.db || exit 99
cat >prof <<'E'
{"prefill512": {"kernels": {"flash::FwdSm90": [1, 4]}},
 "prefill1024": {"kernels": {"Memset (Device)": [8, 8], "nvjet": [16, 16],
  "vllm::reshape_and_cache_flash_kernel": [4, 4],
  "kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90": [4, 4],
  "kernel<flash::FlashAttnFwdCombine": [0.4, 4], "flash::prepare_varlen_num_blocks": [0.05, 1],
  "vectorized_elementwise_kernel<4, FillFunctor<int>": [0.06, 6]}},
 "decode1": {"kernels": {"fmhaForward": [1.6, 4], "FillFunctor<int>": [0.5, 2]}},
 "decode8": {"kernels": {"void flash_fwd_splitkv_kernel": [3.2, 4]}}}
E

factors prof runs.db >as.json 2>err
is 'factors are written' "$(cat as.json)" \
'{"about": "prof against runs.db:1, m with tp 4 on Test GPU",
 "prefill": [[512.5, 2.1924]],
 "decode": [[2002.0, 8.0000], [16024.0, 2.0000]]}'
is '... kinds that one lacks are named, the others listed' "$(cat err)" \
'dense_as_engine: prefill256 is left out: prof has no such step
dense_as_engine: prefill512 is left out: run 1 of runs.db has no such step
dense_as_engine: prefill1024: 512.5 keys, in a layer 1122.50 us against 512.00 us: 2.1924
dense_as_engine: prefill2048 is left out: prof has no such step
dense_as_engine: prefill4096 is left out: prof has no such step
dense_as_engine: prefill8192 is left out: prof has no such step
dense_as_engine: decode1: 2002.0 keys, in a layer 400.00 us against 50.00 us: 8.0000
dense_as_engine: decode8: 16024.0 keys, in a layer 800.00 us against 400.00 us: 2.0000
dense_as_engine: decode32 is left out: prof has no such step
dense_as_engine: decode64 is left out: prof has no such step'
printf '%s\n' TIMESTAMP,ContextTokens,GeneratedTokens '2024-01-01 00:00:00,9,2' >one.csv
is 'attnreplay takes the file' "$("$ATTNREPLAY" run --backend cpu --trace one.csv \
	--model niah-llama-14m --capture "$ATTNREPLAY_DATA/traces/samples/niah-2k.arc" \
	--sample-layers 1 --accuracy 0 --dense-as-engine as.json | grep '^dense  ')" \
	"dense     as the engine's: as.json: prof against runs.db:1, m with tp 4 on Test GPU"\
' (--dense-as-engine)'

# ---- chunks beside decodes ----

# mixed PREFILL DECODE WALK FILL: the profile, with launches that take as long as these numbers say.
cat >mixed.py <<'E'
import json, sys
prefill, decode, walk, fill = map(float, sys.argv[1:])
prof = json.load(open("prof"))
prof["engine"] = {"attention": "FLASH_ATTN 3"}
def step(chunk, context, keys, us):
    return {"chunk": chunk, "context": context, "decodes": keys, "gpu_busy_ms": 10,
            "kernels": {"flash::Fwd": [us * 4 / 1e3, 4], "nvjet": [1, 1]}}
chunks = [(c, x) for c in (512, 1024, 2048, 4096) for x in (0, 16384)]
p = lambda c, x: 9 + c * (x + c / 2) * 7e-6
prof["mixed"] = [step(c, x, [], p(c, x)) for c, x in chunks]
for n in (1, 8):
    for k in (2048, 16384, 65536):
        d = 5 + n * k * 1e-4
        prof["mixed"] += [step(0, 0, [k] * n, d)] + [step(c, x, [k - i for i in range(n)], max(
            prefill * p(c, x) + decode * d, walk * k / 1000 / max(fill // c, 1)))
            for c, x in chunks]
json.dump(prof, sys.stdout)
E
mixed() {
	"$python" mixed.py "$@" >mixed.prof
	factors mixed.prof runs.db 2>err
}
mixed 1.09 0.5 14.3 2048 >mixed.json
is 'launches with chunks and decodes give their constants' "$(tail -n 1 mixed.json)" \
	' "mixed": {"prefill": 1.0900, "decode": 0.5000, "walk_us": 14.300, "fill_rows": 2048}}'
is '... and what is left of the error' "$(tail -n 1 err)" \
	'dense_as_engine: ... error in percent of the step: median 0.0, p95 0.0'
is '... with the backend' "$(sed -n 2p mixed.json)" ' "attention": "FLASH_ATTN 3",'
"$ATTNREPLAY" run --backend cpu --trace one.csv --model niah-llama-14m \
	--capture "$ATTNREPLAY_DATA/traces/samples/niah-2k.arc" --sample-layers 1 --accuracy 0 \
	--dense-as-engine mixed.json >out
ok 'attnreplay takes them, and says so' grep -q '^dense  .*mixed.json: mixed.prof against .*; chunks'\
' and decodes in one launch of FLASH_ATTN 3, 14.3 us a layer for 1000 keys of the longest' out
is 'those whose keys are never split' "$(mixed 1 1.5 12 0 | tail -n 1)" \
	' "mixed": {"prefill": 1.0000, "decode": 1.5000, "walk_us": 12.000, "fill_rows": 0}}'
is '... that do not walk' "$(mixed 1.2 0.9 0 0 | tail -n 1)" \
	' "mixed": {"prefill": 1.2000, "decode": 0.9000, "walk_us": 0.000, "fill_rows": 0}}'
is '... nor wait for decodes' "$(mixed 1.1 0 0 0 | tail -n 1)" \
	' "mixed": {"prefill": 1.1000, "decode": 0.0000, "walk_us": 0.000, "fill_rows": 0}}'

# ---- refusals ----

refused() { # refused PATTERN ARGUMENT...
	pattern=$1
	shift
	! factors "$@" >out 2>err || return
	cat err
	[ ! -s out ] && tail -n 1 err | grep -q "^dense_as_engine: $pattern"
}
bad() { # bad DESCRIPTION PATTERN PROF: with the profile
	echo "$3" >bad
	ok "$1" refused "$2" bad runs.db
}
ok 'a missing profile' refused 'none: no kernel times of .*FileNotFound' none runs.db
bad 'a profile that is no JSON' 'bad: no kernel times of .*JSONDecodeError' '{'
bad '... no object' 'bad: no kernel times of ' '[]'
bad '... or without kernels' "bad: no kernel times of .*KeyError('kernels')" '{"decode1": {}}'
bad 'other kernels' 'bad: decode1 has no attention kernels that this script knows' \
	'{"decode1": {"kernels": {"flash::Combine": [1, 4], "nvjet": [1, 4]}}}'
only() { # only NAME KERNELS: the prompts of the profile, and decodes
	printf '%s\n "%s": {"kernels": %s}}\n' "$(sed '/decode/d' prof)" "$1" "$2"
}
bad 'another model' 'bad: decode1 has attention in 3 layers, the model of run 1 has 4; profile' \
	"$(only decode1 '{"fmha": [1, 3]}')"
bad 'a factor that is out of range' 'decode1: a factor is from 0.1 to 100' \
	"$(only decode1 '{"fmha": [99, 4]}')"
bad 'no decodes' 'no kind of decode1, decode8, decode32, decode64 that both have' \
	"$(only decode2 '{"fmha": [1, 4]}')"
ok 'a missing database' refused 'none.db: unable to open' prof none.db
ok 'a file that is none' refused 'trace.csv: file is not a database' prof trace.csv
ok 'a run that is not there' refused \
	'runs.db: run 7 is no finished run of method dense with clock cupti' prof runs.db 7
run cost.db >/dev/null
ok 'a run without kernels' refused 'cost.db: no finished run of method dense with clock cupti' \
	prof cost.db
run cost.db >/dev/null
"$python" kernels.py cost.db
ok 'one of several runs is to be named' refused 'cost.db: name one of the runs 1, 2$' prof cost.db
factors prof cost.db 2 >two.json 2>/dev/null
is '... and then taken' "$(grep -c 'cost.db:2' two.json) $(tail -n 2 two.json)" \
	"1 $(tail -n 2 as.json)"
finish

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# contrib/vllm_steps.py with a stand-in for vLLM, which has the calls that the script makes and
# wraps: the logs it writes, what it times, and what it refuses.
. "$srcdir/tests/tap.sh"
. "$srcdir/tests/fake_vllm.sh"

fake_clock
mkdir "$tmp/model"
echo '{"hidden_size":64,"max_position_embeddings":4096}' >"$tmp/model/config.json"

cat >>"$tmp/fake/torch/__init__.py" <<'E'
class cuda:
    synchronize = staticmethod(lambda: None)
    get_device_name = staticmethod(lambda: "Test GPU")
E
cat >"$tmp/fake/torch/profiler.py" <<'E'
class ProfilerActivity:
    CUDA = 0
class profile:
    def __init__(self, activities): pass
    def __enter__(self): return self
    def __exit__(self, *x): pass
    def key_averages(self):
        class E:
            key, self_device_time_total, count = "kernel", 4000.0, 40
        class Flash:
            key, self_device_time_total, count = "flash::Fwd", 1000.0, 40
        class Idle:
            key, self_device_time_total, count = "idle", 0.0, 1
        return [E, Flash, Idle]
E
# A chunked-prefill scheduler whose parts take known times.  With asynchronous scheduling a step
# fetches the tokens of the step before.
cat >"$fake/v1/engine/llm_engine.py" <<'E'
import collections, concurrent.futures, os, time
from types import SimpleNamespace as NS
from vllm.config import config_of
SCHEDULE, EXECUTE, GPU, UPDATE = (float(x) for x in os.environ.get("PARTS", "0 0 0 0").split())
TOKEN = float(os.environ.get("TOKEN", "0")) # of the GPU's time for each token
def pause(s):
    if s: time.sleep(s)
class Waiting(concurrent.futures.Future):
    def __init__(self, ready): super().__init__(); self.ready = ready
    def result(self, timeout=None):
        time.sleep(max(0, self.ready - time.perf_counter())); return 1
LAYER = NS(attn_backend=NS(get_name=lambda: "FLASH_ATTN"), impl=NS(vllm_flash_attn_version=3))
class Runner:
    def _to_list(self, ready): time.sleep(max(0, ready - time.perf_counter())); return 1
class Executor:
    def __init__(self):
        self.ready, self.driver_worker = 0, NS(worker=NS(model_runner=Runner()))
    def execute_model(self, out, non_block):
        pause(EXECUTE); self.ready = max(self.ready, time.perf_counter()) + GPU
        self.ready += TOKEN * sum(out.num_scheduled_tokens.values())
        f = concurrent.futures.Future(); f.set_result(None); return f
    def sample_tokens(self, grammar, non_block=False):
        if non_block: return Waiting(self.ready)
        return self.driver_worker.worker.model_runner._to_list(self.ready)
class Scheduler:
    def __init__(self, a):
        self.a, self.q, self.scheduler_config = a, {}, NS(long_prefill_token_threshold=0)
    def schedule(self, throttle):
        pause(SCHEDULE); left, n = self.a.max_num_batched_tokens, {}
        most = self.scheduler_config.long_prefill_token_threshold or left
        for r in list(self.q.values())[:self.a.max_num_seqs]:
            k = min(left, most, max(1, r.prompt - r.done)) if r.sent < r.output else 0
            if k:
                left -= k; r.done += k; n[r.id] = k; r.sent += r.done >= r.prompt
        return NS(num_scheduled_tokens=n, now=[(r, r.sent) for r in self.q.values() if r.id in n])
    def update_from_output(self, out, tokens):
        pause(UPDATE); new = []
        for r, sent in out.now:
            if sent > r.got: r.got = sent; new.append(r)
            if r.got == r.output: self.q.pop(r.id)
        return new
class Core:
    def __init__(self, a):
        self.scheduler, self.model_executor = Scheduler(a), Executor()
        self.batch_queue = collections.deque() if a.async_scheduling else None
        self.vllm_config = config_of(a, [4, 2, 1], 6000, {"a": LAYER, "b": LAYER, "mlp": NS()})
    def step(self):
        s, x, q = self.scheduler, self.model_executor, self.batch_queue
        if q is None:
            out = s.schedule(False); x.execute_model(out, non_block=True).result()
            return s.update_from_output(out, x.sample_tokens(None))
        if s.q:
            out = s.schedule(False); x.execute_model(out, non_block=True)
            q.appendleft((x.sample_tokens(None, non_block=True), out))
            if len(q) < 2 and out.num_scheduled_tokens: return []
        future, out = q.pop()
        return s.update_from_output(out, future.result())
class LLMEngine:
    from_engine_args = classmethod(lambda c, a: c(a))
    def __init__(self, a):
        assert a.load_format == "dummy" and os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] == "0"
        assert os.path.exists(a.model + "/config.json")
        self.a, self.engine_core, self.n = a, NS(engine_core=Core(a)), 0
    def has_unfinished_requests(self): return bool(self.engine_core.engine_core.scheduler.q)
    def add_request(self, name, prompt, params):
        p = prompt["prompt_token_ids"]; self.n += 1
        assert p and max(p) < 1000 and len(p) + params.max_tokens <= self.a.max_model_len
        r = NS(id="%s-%08x" % (name, self.n), name=name, prompt=len(p), done=0, sent=0, got=0,
               output=params.max_tokens - (name == os.environ.get("SHORT")))
        self.engine_core.engine_core.scheduler.q[r.id] = r
    def step(self):
        return [NS(request_id=r.name, outputs=[NS(token_ids=[7])])
                for r in self.engine_core.engine_core.step()]
E

steps() { "$python" "$srcdir/contrib/vllm_steps.py" --max-num-seqs 4 "$@" >"$tmp/.out" 2>&1; }
refuses() { # refuses PATTERN ARGUMENT...
	pattern=$1
	shift
	! steps "$@" && grep -q -e "$pattern" "$tmp/.out"
}
holds() { # holds LOG EXPRESSION: of h (header), s (steps), r (requests)
	"$python" - "$@" <<'E'
import json, sys
lines = [json.loads(line) for line in open(sys.argv[1])]
h, s, r = lines[0], [x for x in lines if "begin" in x], [x for x in lines if "request" in x]
parts = lambda x: x["schedule"] + x["execute"] + x["wait"] + x["update"]
tokens = lambda i: sum(n for x in s for n, k in zip(x["tokens"], x["requests"]) if k == i)
full = [x for x in s if x["tokens"]] # others fetch the last batch
takes = lambda part, t, steps=full: all(abs(x[part] - t) < 1e-4 for x in steps)
sys.exit(not eval("(" + sys.argv[2] + ")"))
E
}

cat >"$tmp/a.csv" <<'E'
TIMESTAMP,ContextTokens,GeneratedTokens
2024-01-01 00:00:00.5000001,100,3
2024-01-01 00:00:00.4,700,2
2024-01-01 00:00:00.6,5,0
2024-01-01 00:00:00.9,8,1
E
attnreplay=$ATTNREPLAY
"$attnreplay" -q trace convert -o "$tmp/b.jsonl" "$tmp/a.csv" || exit 99
gzip -k "$tmp/b.jsonl"

ok 'a trace' steps "$tmp/model" "$tmp/a.csv" "$tmp/a" --budget 512
ok 'the header' holds "$tmp/a" 'h["engine"] == "vllm" and h["version"] == "0.24.0" and h["async"]
	and h["gpu"] == "Test GPU" and h["max_num_batched_tokens"] == 512 and h["max_num_seqs"] == 4
	and h["cudagraph_capture_sizes"] == [1, 2, 4] and h["model"]["hidden_size"] == 64'
ok 'requests in order of arrival, without those that have no output' holds "$tmp/a" \
	'[(x["request"], x["arrival"], x["prompt_tokens"], x["output_tokens"]) for x in r] ==
	[(0, 0, 700, 2), (1, 0.1000001, 100, 3), (2, 0.5, 8, 1)]'
ok 'they are added at their arrivals' holds "$tmp/a" \
	'all(x["arrival"] < x["first_token"] <= x["last_token"] and x["admit"] > 0 for x in r) and
	s[0]["begin"] < 0.1 and [x for x in s if 2 in x["requests"]][0]["begin"] >= 0.5'
ok 'steps name tokens and requests' holds "$tmp/a" \
	'[s[0]["tokens"], s[0]["requests"], s[1]["tokens"]] == [[512], [0], [188]] and
	[tokens(i) for i in (0, 1, 2)] == [701, 102, 8]'
ok '... in order, and the last batch is fetched' holds "$tmp/a" \
	'all(a["end"] <= b["begin"] for a, b in zip(s, s[1:])) and
	all(x["begin"] <= x["end"] and parts(x) <= x["end"] - x["begin"] + 1e-6 for x in s)'
is 'attnreplay takes the log' "$("$attnreplay" import-engine "$tmp/a" --trace "$tmp/a.csv" \
	--db "$tmp/a.db" 2>/dev/null | cut -d ' ' -f 1,2,5-8)" 'run 1: and 3 requests of'
ok 'the canonical form' steps "$tmp/model" "$tmp/b.jsonl" "$tmp/b" "$tmp/b.jsonl.gz" "$tmp/c"
ok 'gives the same requests' holds "$tmp/b" \
	'[(x["arrival"], x["prompt_tokens"]) for x in r] == [(0, 700), (0.1000001, 100), (0.5, 8)]'
ok '... compressed as well, in the same process' holds "$tmp/c" 'h["trace"] == "b.jsonl.gz"
	and len(r) == 3'
ok 'repeated runs' steps "$tmp/model/config.json" "$tmp/a.csv" "$tmp/d.jsonl" --repeat 2
ok 'have numbered logs' holds "$tmp/d.2.jsonl" 'len(r) == 3 and s[0]["begin"] < 0.1'
ok '... and no other' test ! -e "$tmp/d.jsonl"
ok 'repeated runs of two traces' steps "$tmp/model" "$tmp/a.csv" "$tmp/r" "$tmp/b.jsonl" "$tmp/s" \
	--repeat 2
is '... go through both in each round' "$(grep -o '/[rs]\.[12]\.jsonl' "$tmp/.out" | tr '\n' ' ')" \
	'/r.1.jsonl /s.1.jsonl /r.2.jsonl /s.2.jsonl '

printf '%s\n' TIMESTAMP,ContextTokens,GeneratedTokens '2024-01-01 00:00:00,3,2' >"$tmp/tiny.csv"
export PARTS='0.008 0.016 0.064 0.024'
printf '%s\n' TIMESTAMP,ContextTokens,GeneratedTokens '2024-01-01 00:00:00,5,20' >"$tmp/one.csv"
ok 'the parts of synchronous steps' steps "$tmp/model" "$tmp/one.csv" "$tmp/sync" --sync
ok '... are told apart' holds "$tmp/sync" 'not h["async"] and takes("schedule", 0.008) and
	takes("execute", 0.016) and takes("wait", 0.064) and takes("update", 0.024)'
ok '... of asynchronous ones' steps "$tmp/model" "$tmp/one.csv" "$tmp/async"
ok '... as well, and waiting is the rest of the time of the GPU' holds "$tmp/async" 'h["async"] and
	takes("schedule", 0.008) and takes("execute", 0.016) and takes("update", 0.024, full[1:]) and
	s[0]["wait"] == s[0]["update"] == 0 and takes("wait", 0.064 - 0.024, s[1:2]) and
	takes("wait", 0.064 - 0.048, full[2:])'
unset PARTS

# Eleven prompts of 100, 200, ... tokens, each alone in its step, and decodes of graphs.
awk 'BEGIN { print "TIMESTAMP,ContextTokens,GeneratedTokens"
	for (i = 1; i < 12; i++) printf "2024-01-01 00:01:%d,%d,3\n", 10 + 3 * i, 100 * i }' >"$tmp/up.csv"
TOKEN=0.001 steps "$tmp/model" "$tmp/up.csv" "$tmp/u" --sync
ok 'the time of steps beyond the largest graph is told' grep -q \
	'/u: .*; 11 steps of more than 4 tokens take 600\.0. ms (p50), 1000\.0. ms (p90)$' "$tmp/.out"
steps "$tmp/model" "$tmp/tiny.csv" "$tmp/t" --sync
ok '... unless there are none' grep -q '/t: .*, TPOT [0-9.]*$' "$tmp/.out"

ok 'kernels by kind of step' steps "$tmp/model" "$tmp/one.csv" "$tmp/p" --profile --budget 1024
ok '... are written' "$python" -c "import json; d = json.load(open('$tmp/p.prof'))
assert list(d) == ['engine', 'decode1', 'prefill256', 'prefill512', 'prefill1024'], list(d)
assert d['engine']['attention'] == 'FLASH_ATTN 3'
assert d['decode1']['kernels'] == {'kernel': [0.2, 2], 'flash::Fwd': [0.05, 2]}
assert (d['decode1']['gpu_busy_ms'], d['decode1']['attention_ms']) == (0.25, 0.05)"
ok '... chunks are left out where they do not fit' grep -q 'chunks beside 1 decodes of 2048' \
	"$tmp/.out"
# A cache of 96000 tokens: 8 decodes of 8192 do not fit, nor 32 of any length.
sed 's/4096/131072/' "$tmp/model/config.json" >"$tmp/large.json"
ok '... chunks beside decodes' steps "$tmp/large.json" "$tmp/one.csv" "$tmp/c" --profile \
	--max-num-seqs 9
ok '... are written with their contexts and keys' "$python" -c "
import json, sys
sys.path.insert(0, '$srcdir/contrib')
from vllm_steps import CHUNKS
rows = json.load(open('$tmp/c.prof'))['mixed']
beside = {}
for r in rows:
    key = tuple(k // 2048 for k in r['decodes'])
    beside.setdefault(key, []).append(r)
assert list(beside) == [(), (1,), (4,), (8,), (1,) * 8, (16,), (16,) + (1,) * 7], list(beside)
for key, steps in beside.items():
    alone, steps = steps[:1 if key else 0], steps[1 if key else 0:]
    assert [r['chunk'] for r in alone] == [0][:len(alone)] and all(r['chunk'] == 0 for r in alone)
    assert [r['chunk'] for r in steps] == [min(n, 8192 - 32) for n in CHUNKS]
    assert [r['context'] for r in steps] == [sum(r['chunk'] for r in steps[:i])
                                             for i in range(len(steps))]
    assert all([k + 1 for k in a['decodes']] == b['decodes'] for a, b in zip(steps, steps[1:]))
    assert all(r['attention_ms'] and r['kernels'] for r in steps)"
ok '... and the others named' grep -q 'chunks beside 8 decodes of 8192 to 8192 are left out: the' \
	"$tmp/.out"
SHORT=0 steps "$tmp/model" "$tmp/one.csv" "$tmp/short"
ok 'an output that ends early is named' grep -q 'request 0 got 19 tokens, not 20' "$tmp/.out"
ok '... and the log has its length' holds "$tmp/short" 'r[0]["output_tokens"] == 19'
ok 'requests longer than the limit' steps "$tmp/model" "$tmp/a.csv" "$tmp/l" --max-model-len 400
ok '... are named' grep -q '1 requests of more than 400 tokens are left out' "$tmp/.out"
ok '... and have no times' holds "$tmp/l" '[sorted(x) for x in r][0] ==
	["arrival", "output_tokens", "prompt_tokens", "request"] and "last_token" in r[1]'
printf '%s\n' TIMESTAMP,ContextTokens,GeneratedTokens '2024-01-01 00:00:00,9000,20' \
	'2024-01-01 00:00:00,20,2' >"$tmp/long.csv"
ok 'the model limits the length' steps "$tmp/model" "$tmp/long.csv" "$tmp/m"
ok '... to what it was made for' grep -q '1 requests of more than 4096 tokens' "$tmp/.out"

# refusals, before the engine starts
ok 'a trace without a log' refuses 'each TRACE needs an OUT' "$tmp/model" "$tmp/a.csv"
ok 'no run' refuses 'want a number from 1 on' "$tmp/model" "$tmp/a.csv" "$tmp/x" --repeat 0
ok 'a missing trace' refuses 'No such file' "$tmp/model" "$tmp/none" "$tmp/x"
ok 'a missing folder for logs' refuses 'none: no such folder' "$tmp/model" "$tmp/a.csv" "$tmp/none/x"
ok 'a folder without a model' refuses 'no config.json in this folder' "$tmp" "$tmp/a.csv" "$tmp/x"
bad() { # bad NAME PATTERN: the file $tmp/bad is no trace
	ok "$1" refuses "$2" "$tmp/model" "$tmp/bad" "$tmp/x"
}
echo TIMESTAMP,ContextTokens,GeneratedTokens >"$tmp/bad"
bad 'a trace without requests' 'bad: no requests'
echo '2024-01-01 00:00:00+02:00,1,1' >>"$tmp/bad"
bad 'a time in another zone' 'near line 1: .* is no date and time in UTC'
printf 'a,b\n1,2\n' >"$tmp/bad"
bad 'another CSV file' "near line 1: no column 'TIMESTAMP'; convert it"
echo '{"timestamp":0}' >"$tmp/bad"
bad 'other JSON lines' 'unknown format; convert it'
ok 'after all that there is no log' test ! -e "$tmp/x"
finish

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# contrib/vllm_serve_steps.py with a stand-in for vLLM, whose engine runs in a thread: what it logs
# inside of the engine and joins with what clients see, and what it refuses.
. "$srcdir/tests/tap.sh"
. "$srcdir/tests/fake_vllm.sh"

packages v1/core v1/core/sched
mkdir "$tmp/model"
echo '{"vocab_size":4000,"max_position_embeddings":4096}' >"$tmp/model/config.json"
cat >"$fake/platforms.py" <<'E'
class current_platform:
    get_device_name = staticmethod(lambda: "Test GPU")
E
cat >"$fake/v1/core/sched/async_scheduler.py" <<'E'
from types import SimpleNamespace as NS
class AsyncScheduler:
    def __init__(self, budget): self.budget, self.q = budget, {}
    def add_request(self, r): r.done = r.got = 0; self.q[r.request_id] = r
    def schedule(self):
        left, n = self.budget, {}
        for r in self.q.values():
            k = min(left, max(1, len(r.prompt_token_ids) - r.done)); left -= k
            if k: n[r.request_id] = k
        return NS(num_scheduled_tokens=n)
    def update_from_output(self, out):
        new = []
        for name, k in out.num_scheduled_tokens.items():
            r = self.q[name]; r.done += k
            if r.done < len(r.prompt_token_ids): continue
            r.got += 1; new.append(NS(request_id=name, new_token_ids=[5]))
            if r.got == r.output: del self.q[name]
        return {0: NS(outputs=new)} if new else {}
E
cat >"$fake/v1/core/sched/scheduler.py" <<'E'
from vllm.v1.core.sched.async_scheduler import AsyncScheduler as Scheduler
E
cat >"$fake/v1/serial_utils.py" <<'E'
class MsgpackEncoder:
    def encode_into(self, outputs, buffer): return [outputs]
E
# The loop takes requests between two steps.
cat >"$fake/v1/engine/core.py" <<'E'
import importlib, queue
from types import SimpleNamespace as NS
from vllm.config import config_of
from vllm.v1.serial_utils import MsgpackEncoder
class EngineCoreProc:
    def __init__(self, a, out):
        module, name = a.scheduler_cls.rsplit(".", 1)
        self.scheduler = getattr(importlib.import_module(module), name)(a.max_num_batched_tokens)
        self.model_executor, self.inputs, self.out = NS(), queue.Queue(), out
        self.encoder = MsgpackEncoder()
        self.vllm_config = config_of(a, [4, 2, 1], 100)
    def preprocess_add_request(self, request): return request, 0
    def add_request(self, request, wave=0): self.scheduler.add_request(request)
    def _process_engine_step(self):
        out = self.scheduler.schedule()
        for outputs in self.scheduler.update_from_output(out).values():
            self.out(self.encoder.encode_into(outputs, bytearray())[0])
        return True
    def run_busy_loop(self):
        while True:
            while not self.scheduler.q or not self.inputs.empty():
                request = self.inputs.get()
                if request is None: return
                self.add_request(*self.preprocess_add_request(request))
            self._process_engine_step()
    def shutdown(self): pass
E
cat >"$fake/v1/engine/async_llm.py" <<'E'
import asyncio, os, threading
from types import SimpleNamespace as NS
from vllm.v1.engine.core import EngineCoreProc
class AsyncLLM:
    from_engine_args = classmethod(lambda c, a: c(a))
    def __init__(self, a):
        assert a.load_format == "dummy" and a.skip_tokenizer_init and not hasattr(a, "profile")
        assert os.path.exists(a.model + "/config.json")
        self.loop, self.queues, self.n, self.seen = asyncio.get_running_loop(), {}, 0, set()
        self.core = EngineCoreProc(a, self.deliver)
        self.thread = threading.Thread(target=self.serve)
        self.thread.start()
    def serve(self):
        self.core.run_busy_loop(); self.core.shutdown()
    def deliver(self, outputs):
        for o in outputs.outputs:
            self.loop.call_soon_threadsafe(self.queues[o.request_id].put_nowait, o)
    async def generate(self, prompt, params, name):
        ids = prompt["prompt_token_ids"]
        head = tuple(ids[:3])
        assert all(0 <= x < 4000 for x in ids) and (len(ids) < 3 or head not in self.seen), head
        self.seen.add(head)
        self.n += 1; full = "%s-%08x" % (name, self.n); q = self.queues[full] = asyncio.Queue()
        output = params.max_tokens - (name == os.environ.get("SHORT"))
        self.core.inputs.put(NS(request_id=full, prompt_token_ids=ids, output=output))
        for _ in range(output):
            yield NS(outputs=[NS(token_ids=(await q.get()).new_token_ids)])
    def shutdown(self): self.core.inputs.put(None); self.thread.join()
E

serve() {
	"$python" "$srcdir/contrib/vllm_serve_steps.py" --max-num-seqs 4 "$@" >"$tmp/.out" 2>&1
}
refuses() { # refuses PATTERN ARGUMENT...
	pattern=$1
	shift
	! serve "$@" && grep -q -e "$pattern" "$tmp/.out"
}
holds() { # holds LOG EXPRESSION: of h (header), s (steps), r (requests)
	"$python" - "$@" <<'E'
import json, sys
lines = [json.loads(line) for line in open(sys.argv[1])]
h, s, r = lines[0], [x for x in lines if "begin" in x], [x for x in lines if "request" in x]
tokens = lambda i: sum(n for x in s for n, k in zip(x["tokens"], x["requests"]) if k == i)
sys.exit(not eval("(" + sys.argv[2] + ")"))
E
}
cat >"$tmp/a.csv" <<'E'
TIMESTAMP,ContextTokens,GeneratedTokens
2024-01-01 00:00:00.4,700,2
2024-01-01 00:00:00.41,100,3
2024-01-01 00:00:00.42,9000,1
2024-01-01 00:00:00.5,8,1
E
echo '{"loop_ns":12.5}' >"$tmp/probe"
ok 'a trace' serve "$tmp/model" "$tmp/a.csv" "$tmp/a" --budget 512 --probe "$tmp/probe"
ok 'the header' holds "$tmp/a" 'h["engine"] == "vllm" and h["version"] == "0.24.0" and h["async"]
	and h["gpu"] == "Test GPU" and h["max_num_batched_tokens"] == 512 and h["max_num_seqs"] == 4
	and h["cudagraph_capture_sizes"] == [1, 2, 4] and h["model"]["vocab_size"] == 4000
	and h["front"] == "async" and h["probe"] == {"loop_ns": 12.5} and "zero" not in h'
ok 'steps of the trace alone, with its requests' holds "$tmp/a" \
	's[0]["tokens"] == [512] and s[0]["requests"] == [0] and all(x["begin"] >= 0 for x in s) and
	[tokens(i) for i in range(4)] == [701, 102, 0, 8]'
ok '... in order, and in parts' holds "$tmp/a" \
	'all(a["end"] <= b["begin"] for a, b in zip(s, s[1:])) and
	all(x["schedule"] > 0 and x["update"] > 0 and x["wait"] == 0 for x in s)'
ok 'requests pass the front end, the engine and its scheduler' holds "$tmp/a" 'all(x["arrival"] <=
	x["sent"] <= x["received"] <= x["queued"] <= x["first_token"] <= x["last_token"] and x["admit"] > 0
	for x in r if x["request"] != 2)'
ok '... but for one that is too long' holds "$tmp/a" '[sorted(r[2]), len(r)] ==
	[["arrival", "output_tokens", "prompt_tokens", "request"], 4]'
ok 'tokens reach the clients after their step' holds "$tmp/a" 'sum(x["seen"][1] for x in s if "seen"
	in x) == 6 and all(x["begin"] <= x["posted"] <= x["seen"][0] for x in s if "seen" in x)'
attnreplay=$ATTNREPLAY
is 'attnreplay takes the log' "$("$attnreplay" import-engine "$tmp/a" --trace "$tmp/a.csv" \
	--db "$tmp/a.db" 2>/dev/null | cut -d ' ' -f 1,2,5-8)" 'run 1: and 4 requests of'
ok '... and fits a host' sh -c "'$attnreplay' calibrate host '$tmp/a' --model llama-3.1-8b \
	-o '$tmp/h' | grep -q 'receive_ns  *[1-9]'"
ok 'repeated runs, with the other scheduler' serve "$tmp/model/config.json" "$tmp/a.csv" \
	"$tmp/d.jsonl" --repeat 2 --sync
ok '... have numbered logs' holds "$tmp/d.2.jsonl" 'not h["async"] and tokens(0) == 701'
SHORT=attnreplay-r-1 serve "$tmp/model" "$tmp/a.csv" "$tmp/short"
ok 'an output that ends early is named' grep -q 'request 1 got 2 tokens, not 3' "$tmp/.out"

# The log of a server that the script did not start, which is written at its end.
ok 'the log of a server' env "PYTHONPATH=$tmp/fake:$srcdir/contrib" "ATTNREPLAY_STEPS=$tmp/own" \
	"MODEL=$tmp/model" "$python" - <<'E'
import os, time
from types import SimpleNamespace as NS
from vllm.v1.engine.core import EngineCoreProc
core = EngineCoreProc(NS(scheduler_cls="vllm_serve_steps.AsyncSteps", max_num_batched_tokens=64,
                         max_num_seqs=2, async_scheduling=True, model=os.environ["MODEL"]),
                      lambda x: None)
for i in range(2):
    core.inputs.put(NS(request_id="cmpl-x-%d" % i, prompt_token_ids=[1] * 9, output=2))
end = EngineCoreProc._process_engine_step
def step(self):
    end(self)
    if not self.scheduler.q: self.inputs.put(None)
EngineCoreProc._process_engine_step = step
core.run_busy_loop()
core.shutdown()
E
ok '... names its requests' holds "$tmp/own" '[x["id"] for x in r] == ["cmpl-x-0", "cmpl-x-1"] and
	[tokens(0), tokens(1)] == [10, 10] and [x["output_tokens"] for x in r] == [2, 2] and
	all(x["arrival"] <= x["first_token"] <= x["last_token"] for x in r)'
is '... which attnreplay takes' "$("$attnreplay" import-engine "$tmp/own" --db "$tmp/a.db" \
	2>/dev/null | cut -d ' ' -f 1,2,5-8)" 'run 2: and 2 requests of'

# A server of HTTP in place of 'vllm serve'.  Of a connection that idles for a moment it resets the
# next request, as uvicorn may.  It refuses a prompt of $REFUSED tokens, and breaks off one of $BROKEN.
mkdir -p "$fake/entrypoints/cli"
: >"$fake/entrypoints/__init__.py"
: >"$fake/entrypoints/cli/__init__.py"
cat >"$fake/entrypoints/cli/main.py" <<'E'
import asyncio, json, os, sys, threading, time
from types import SimpleNamespace as NS
from vllm.v1.engine.core import EngineCoreProc
def parse(args):
    a = NS(model=args[1])
    for flag, value in zip(args, args[1:]):
        if flag.startswith("--"):
            setattr(a, flag[2:].replace("-", "_"), int(value) if value.isdigit() else value)
    a.async_scheduling = "--async-scheduling" in args
    return a
async def serve(a):
    assert os.path.exists(a.model + "/tokenizer.json") and a.served_model_name == "m"
    loop, queues, resets = asyncio.get_running_loop(), {}, [0]
    def deliver(outputs):
        for o in outputs.outputs: loop.call_soon_threadsafe(queues[o.request_id].put_nowait, o)
    core = EngineCoreProc(a, deliver)
    threading.Thread(target=core.run_busy_loop, daemon=True).start()
    def piece(x): return b"%x;x\r\n%s\r\n" % (len(x), x)
    async def answer(reader, writer, head, idle):
        if head.startswith(b"GET /health "):
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            return True
        fields = dict(l.decode().split(": ", 1) for l in head.split(b"\r\n")[1:-2])
        body = json.loads(await reader.readexactly(int(fields["Content-Length"])))
        if time.monotonic() - idle > 0.1:
            resets[0] += 1
            with open(os.environ["RESETS"], "w") as f: f.write(str(resets[0]))
            return True
        name, n = "cmpl-%s-0" % fields["X-Request-Id"], str(len(body["prompt"]))
        if n == os.environ.get("REFUSED"):
            text = b'{"error":{"message":"no"}}'
            writer.write(b"HTTP/1.1 400 Bad\r\nContent-Length: %d\r\n\r\n%s" % (len(text), text))
            return False
        queues[name] = asyncio.Queue()
        core.inputs.put(NS(request_id=name, prompt_token_ids=body["prompt"],
                           output=body["max_tokens"]))
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for i in range(body["max_tokens"]):
            await queues[name].get()
            line = b"data: " + json.dumps({"choices": [{}], "usage": {
                "completion_tokens": i + 1}}).encode() + b"\n\n"
            writer.write(piece(line[:9]) + piece(line[9:]))
            if n == os.environ.get("BROKEN"): return True
        writer.write(piece(b"data: [DONE]\n\n") + b"0\r\n\r\n")
        return False
    async def talk(reader, writer):
        idle, end = time.monotonic(), False
        while not end and (head := await reader.readuntil(b"\r\n\r\n")):
            end = await answer(reader, writer, head, idle)
            if not end: await writer.drain()
            idle = time.monotonic()
        if head.startswith(b"GET"): writer.close()
        else: writer.transport.abort()
    async with await asyncio.start_server(talk, "127.0.0.1", a.port) as server:
        await server.serve_forever()
asyncio.run(serve(parse(sys.argv[1:])))
E
export RESETS="$tmp/resets"
ok 'over HTTP' serve "$tmp/model/config.json" "$tmp/a.csv" "$tmp/http" --http
ok '... all tokens come' holds "$tmp/http" '[tokens(i) for i in range(4)] == [701, 102, 0, 8] and
	h["front"] == "http" and [x.get("output_tokens") for x in r] == [2, 3, 1, 1] and
	all(x["sent"] <= x["received"] <= x["first_token"] for x in r if x["request"] != 2)'
ok '... though the server resets connections that idle' test "$(cat "$RESETS")" -gt 0
over_http() { refuses "$1" "$tmp/model/config.json" "$tmp/a.csv" "$tmp/x" --http; }
refused() { REFUSED=700 over_http 'the server refused attnreplay-r-0: .*no'; }
broken() { BROKEN=100 over_http 'the server broke off its answer to attnreplay-r-1'; }
ok '... a refusal is named' refused
ok '... as is an answer without an end' broken

ok "a probe that is no JSON" refuses "a.csv: " "$tmp/model" "$tmp/a.csv" "$tmp/x" --probe "$tmp/a.csv"
ok '--http with a folder' refuses 'give a single config.json' "$tmp/model" "$tmp/a.csv" "$tmp/x" \
	--http
ok 'a trace without a log' refuses 'each TRACE needs an OUT' "$tmp/model" "$tmp/a.csv"
ok 'a missing folder for logs' refuses 'none: no such folder' "$tmp/model" "$tmp/a.csv" "$tmp/none/x"
ok 'after all that there is no log' test ! -e "$tmp/x"
finish

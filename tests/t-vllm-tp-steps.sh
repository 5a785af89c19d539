#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# contrib/vllm_tp_steps.py with a stand-in for vLLM, whose two workers run one after the other in this
# process: the options of the engine, the times of each kind of step, and the turns of two engines.
. "$srcdir/tests/tap.sh"
. "$srcdir/tests/fake_vllm.sh"

fake_clock
packages distributed
echo '{"hidden_size":64,"max_position_embeddings":16384}' >"$tmp/model.json"

# A kernel of attention and one of collectives run in each layer, of which there are two.  The GPU
# is as fast as the host, which is slower by a millisecond once the profiler has run.
cat >>"$tmp/fake/torch/__init__.py" <<'E'
import time
class Event:
    def __init__(self, enable_timing): assert enable_timing
    def record(self): self.at = time.perf_counter()
    def elapsed_time(self, end): return (end.at - self.at) * 1e3
class cuda:
    Event = Event
    synchronize = staticmethod(lambda: None)
    get_device_name = staticmethod(lambda: "Test GPU")
class inference_mode:
    def __enter__(self): pass
    def __exit__(self, *x): pass
bfloat16 = "bf16"
def ones(tokens, hidden, dtype, device):
    assert hidden == 64 and dtype == "bf16" and device == "cuda"
    return tokens
traced, started, asked = [], [], []     # asked: rounds that have ended
from torch import profiler
E
cat >"$tmp/fake/torch/profiler.py" <<'E'
import torch
class ProfilerActivity:
    CUDA = 0
class profile:
    def __init__(self, activities): assert activities == [0]
    def start(self): self.steps = 0; torch.traced.append(self); torch.started.append(self)
    def stop(self): torch.traced.remove(self)
    def key_averages(self):
        class Kernel:
            def __init__(self, key, us, n): self.key, self.self_device_time_total, self.count = key, us, n
        n = self.steps                  # of two layers, but it sees both workers
        return [Kernel("flash::Fwd", 50.0 * n, n), Kernel("AllReduce", 7.0 * n, n)]
E
cat >"$fake/distributed/parallel_state.py" <<'E'
import time
from types import SimpleNamespace as NS
def get_tp_group():
    return NS(all_reduce=lambda tokens: time.sleep(20e-6 + tokens * 1e-8), device_communicator=NS(ca_comm=NS(disabled=True), pynccl_comm=NS(disabled=False),
                                     qr_comm=None, device=0))
E
cat >"$fake/v1/engine/llm_engine.py" <<'E'
import json, os, time
from types import SimpleNamespace as NS
import torch
from vllm.config import config_of
class Runner:
    def execute_model(self, output, tensors=None):
        slow = float(os.environ.get("SLOW", "0")) * (len(torch.asked) == 2) + bool(torch.started)
        time.sleep(0.002 + 0.001 * slow + sum(output.num_scheduled_tokens.values()) * 1e-6)
        for p in torch.traced: p.steps += 1
    def sample_tokens(self, grammar): time.sleep(0.001)
class LLMEngine:
    from_engine_args = classmethod(lambda c, a: c(a))
    def __init__(self, a):
        assert os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] == "0"
        assert os.path.exists(a.model + "/config.json")
        with open(os.environ["OPTIONS"], "w") as f: json.dump(vars(a), f)
        module, _, name = a.worker_extension_cls.rpartition(".")
        Watch = getattr(__import__(module), name)
        self.workers = [type("Worker", (Watch,), {})() for _ in range(a.tensor_parallel_size)]
        for w in self.workers: w.model_runner = Runner()
        self.requests, self.n = {}, 0
        config = config_of(a, a.cudagraph_capture_sizes, 6000)
        self.engine_core = NS(engine_core=NS(vllm_config=config, batch_queue=None,
            scheduler=NS(schedule=lambda n: n, update_from_output=lambda: None),
            model_executor=NS(execute_model=lambda n: None, sample_tokens=lambda n: None)))
    def collective_rpc(self, method, args):
        if method == "watch_collective" and args[0] == 512: torch.asked.append(method)
        return [getattr(w, method)(*args) for w in self.workers]
    def has_unfinished_requests(self): return bool(self.requests)
    def add_request(self, name, prompt, params):
        self.n += 1
        self.requests["%s-%08x" % (name, self.n)] = [len(prompt["prompt_token_ids"]), params.max_tokens]
    def step(self):
        left, tokens, out = 8192, {}, []
        for name, r in list(self.requests.items()):
            n = min(left, r[0] or 1)
            if n:
                tokens[name] = n; left -= n; r[0] -= min(n, r[0])
                if not r[0]:
                    r[1] -= 1
                    out.append(NS(request_id=name.rpartition("-")[0], outputs=[NS(token_ids=[7])]))
                    if not r[1]: del self.requests[name]
        self.engine_core.engine_core.scheduler.schedule(NS(num_scheduled_tokens=tokens))
        for i, w in enumerate(self.workers):
            time.sleep(0.0005 * i)
            w.model_runner.execute_model(NS(num_scheduled_tokens=tokens))
            w.model_runner.sample_tokens(None)
        return out
E
OPTIONS=$tmp/options
export OPTIONS
steps() { "$python" "$srcdir/contrib/vllm_tp_steps.py" "$tmp/model.json" "$tmp/out" "$@" >"$tmp/lines" 2>"$tmp/err" ||
	{ cat "$tmp/err"; return 1; }; }
holds() { # holds FILE EXPRESSION: of x, the object in the file
	"$python" -c 'import json, sys
x = json.load(open(sys.argv[1]))
sys.exit(not eval("(" + sys.argv[2] + ")"))' "$@"
}

ok 'an engine of two ranks' steps
ok 'its all-reduces are its own' holds "$tmp/options" 'not x["disable_custom_all_reduce"] and
	x["tensor_parallel_size"] == 2 and x["kv_cache_memory_bytes"] == 9e9 and
	x["load_format"] == "dummy" and not x["enable_prefix_caching"]'
ok '... or not' steps --disable-custom-all-reduce --graphs 1,2
ok '... if asked' holds "$tmp/options" 'x["disable_custom_all_reduce"] and
	x["cudagraph_capture_sizes"] == [1, 2]'
is 'a line for each kind' "$(cut -d ' ' -f 1 "$tmp/lines" | tr '\n' ' ')" \
	'decode1 decode8 decode32 decode64 prefill512 prefill1024 prefill2048 prefill8192 '
ok 'what an engine has for all-reduces' holds "$tmp/out" \
	'x["engine"]["all_reduces"] == {"ca_comm": "False", "pynccl_comm": "True"}'
# Two workers run in turn: of 3 ms and a microsecond for each token, and half a millisecond between.
ok 'decodes have times from end to end' holds "$tmp/out" 'all(x["decode%d" % b]["steps"] == 60 and
	abs(x["decode%d" % b]["period"] - (6.5 + .002 * b)) < .03 for b in (1, 8, 32, 64))'
ok '... of each rank' holds "$tmp/out" 'all(len(x[k]["ranks"]) == 2 and
	abs(x[k]["ranks"][1]["period"] - x[k]["period"]) < .03 for k in x if k != "engine")'
ok '... from the call on, and of the host' holds "$tmp/out" 'all(abs(x["decode8"][k] - 3.008) < .03
	for k in ("span", "launch"))'
ok 'prompts are one a step' holds "$tmp/out" 'all(x["prefill%d" % n]["steps"] == s and
	abs(x["prefill%d" % n]["span"] - (3 + n / 1000)) < .03
	for n, s in ((512, 11), (1024, 11), (2048, 11), (8192, 5)))'
ok 'kernels are those of a step' holds "$tmp/out" 'all(abs(x[k]["kernels"]["AllReduce"][1] - 2) < 1e-9
	and abs(x[k]["attention_ms"] - .1) < 1e-9 for k in x if k != "engine")'

ok 'the host takes this long for an all-reduce' holds "$tmp/out" '[len(us) == 2 and
	abs(us[1] - 20.125 - n / 100) < .01 for r in x["engine"]["collective_us"] for n, us in
	((int(n), us) for n, us in r.items())] == [True] * 4'

# The third round is slower, by two milliseconds in each of two workers.
ok 'three rounds' env SLOW=2 "$python" "$srcdir/contrib/vllm_tp_steps.py" "$tmp/model.json" \
	"$tmp/out" --rounds 3 --again decode8,prefill512
ok '... of the kinds that are asked for' holds "$tmp/out" '[k for k in x if k != "engine" and
	len(x[k]["rounds"]) == 3] == ["decode8", "prefill512"] and len(x["decode1"]["rounds"]) == 1'
ok '... have medians and a range' holds "$tmp/out" 'abs(x["decode8"]["period"] - 6.516) < .03 and
	abs(x["decode8"]["range"][0] - 6.516) < .03 and abs(x["decode8"]["range"][1] - 10.516) < .03'
ok '... of the launch, too' holds "$tmp/out" 'abs(x["decode8"]["launch"] - 3.008) < .03 and
	abs(x["decode8"]["rounds"][2][1]["launch"] - 5.008) < .03'

# Sleeps move the clock alone, so files of turns are there or are not.
touch "$tmp/turn.1.go" "$tmp/turn.profile.go" "$tmp/turn.end"
ok 'an engine takes its turn' steps --turn "$tmp/turn"
ok '... and says when' [ -e "$tmp/turn.ready" -a -e "$tmp/turn.1.done" -a -e "$tmp/turn.profile.done" ]
ok '... with kernels' holds "$tmp/out" '"kernels" in x["prefill8192"]'
touch "$tmp/other.1.go" "$tmp/other.end"
ok 'it ends before its turn for kernels' steps --turn "$tmp/other"
ok '... with the times' holds "$tmp/out" 'x["prefill8192"]["steps"] == 5 and
	not any("kernels" in k for k in x.values())'
finish

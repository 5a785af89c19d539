#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Run vLLM on a trace with random weights and log each step, for attnreplay import-engine.

The engine runs in this process, without server and tokenizer.  Requests are added at the arrival
times of the trace; then LLMEngine.step() runs until none is left.  A prompt is random tokens, and
a request gets exactly the output tokens that the trace says.

A log is JSON lines; times are seconds since the start of the trace.
  {"engine": ...}   versions, limits and the model's config.json
  {"begin": ...}    a call of step(): scheduled tokens of each request, and where the host's time
                    went: schedule, execute (prepare and launch), wait (for sampled tokens), update
  {"request": ...}  arrival, lengths, first and last token, and the time to add it (admit)
With asynchronous scheduling a step waits for the tokens of the step before it.

OUT.prof of --profile is an object: "engine" as above, and for each kind of step its wall time, busy
time of the GPU and time of attention, with the time and launches of kernels by name.  "mixed" is a
list of such steps with a chunk of a prompt on a context, and the keys of each decode beside it;
chunk 0 is the decodes alone.

For each log it prints p50 and p90 of the steps beyond the largest CUDA graph.  Where they differ
between runs of one trace, so did the speed of the host.

Needs vllm 0.24 or newer and a GPU; tried with 0.24.0.
"""
import argparse
import csv
import datetime
import gzip
import json
import os
import random
import re
import shutil
import sys
import tempfile
import time

PARTS = ("schedule", "execute", "wait", "update")
DECODES = (1, 8, 32, 64)                                # batches of --profile
DECODE_CONTEXT = 2000                                   # their prompts
PREFILLS = (256, 512, 1024, 2048, 4096, 8192)           # prompts of --profile
# Chunks of one prompt, in this order: contexts of 0 to 43 Ki tokens.  No step runs for a context
# alone.
CHUNKS = (512, 1024, 2048, 4096, 512, 8192, 2048, 512, 4096, 1024, 8192, 512, 2048, 8192)
# Prompts of the decodes that run beside them, short ones first.  Two sets tell the longest from the
# sum.
BESIDE = sorted([()] + [(n,) * b for b in (1, 8, 32) for n in (2048, 8192, 16384, 32768, 65536)] +
                [(32768,) + (2048,) * 7, (65536,) + (2048,) * 31], key=sum)
ATTENTION = re.compile(r"flash::|flash_fwd|fmha", re.I)     # not reshape_and_cache_flash
HELPER = re.compile(r"combine|prepare", re.I)               # the others run once in a layer
# FlashAttention 3 zeroes the counter of its tile scheduler before a call, unless prepare_varlen
# did.  Memsets are not counted: they grow from 1 to 4 a layer, with the products and not with
# attention.
FILL = "FillFunctor<int>"
NS = 1_000_000_000


def die(message):
    sys.exit("vllm_steps: " + message)


def say(message):
    print("vllm_steps: " + message, file=sys.stderr, flush=True)


def make_parser(about):
    p = argparse.ArgumentParser(description=about.splitlines()[0])
    p.add_argument("model", metavar="MODEL", help="folder with config.json, or such a file")
    p.add_argument("pairs", metavar="TRACE OUT", nargs="+",
                   help="trace (CSV with Azure's columns, or what 'attnreplay trace convert' "
                        "writes) and the log to write; more pairs run in the same process")
    p.add_argument("--max-num-batched-tokens", "--budget", type=int, default=8192, metavar="N",
                   help="tokens of a step (default: 8192)")
    p.add_argument("--max-num-seqs", type=int, default=256, metavar="N",
                   help="requests of a step (default: 256)")
    p.add_argument("--max-model-len", type=int, metavar="N",
                   help="longest prompt with output (default: what the traces need)")
    p.add_argument("--gpu-memory-utilization", type=float, default=0.8, metavar="X",
                   help="share of the GPU's memory to use (default: 0.8)")
    p.add_argument("--sync", action="store_true", help="turn asynchronous scheduling off")
    p.add_argument("--repeat", type=int, default=1, metavar="N",
                   help="run all traces, one after the other, N times, so that a host that gets "
                        "slower does so for each of them; logs OUT.1.jsonl, OUT.2.jsonl, ...")
    p.add_argument("--probe", type=read_probe, default={}, metavar="FILE",
                   help="what 'attnreplay bench host --json FILE' wrote on this host, for the log")
    return p


def read_probe(path):
    """The part of a log's header that says how fast the host is."""
    try:
        with open(path, encoding="utf-8") as f:
            return {"probe": json.load(f)}
    except (OSError, ValueError) as e:
        die("%s: %s" % (path, e))


def parse_pairs(p):
    a = p.parse_args()
    if len(a.pairs) % 2:
        p.error("each TRACE needs an OUT")
    if a.repeat < 1:
        p.error("--repeat: want a number from 1 on")
    a.pairs = list(zip(a.pairs[::2], a.pairs[1::2]))
    return a


def parse_args():
    p = make_parser(__doc__)
    p.add_argument("--profile", action="store_true",
                   help="write kernel times of steps of one kind, and of chunks of a prompt beside "
                        "decodes, to OUT.prof of the first OUT")
    return parse_pairs(p)


# ---- traces ----

def date_ns(text):
    """A date and time such as 2023-11-16 18:15:46.6805900 in ns since 1970; a zone must be UTC."""
    m = re.fullmatch(r"(\d+-\d+-\d+)[ T](\d+:\d+:\d+)(?:\.(\d{1,9}))?(?:Z|\+00:00)?", text.strip())
    if not m:
        raise ValueError("'%s' is no date and time in UTC" % text)
    when = datetime.datetime.fromisoformat(m[1] + " " + m[2])
    seconds = round((when - datetime.datetime(1970, 1, 1)).total_seconds())
    return seconds * NS + int((m[3] or "0").ljust(9, "0"))


def rows_of(path):
    """Yield line number, arrival in ns, prompt and output tokens."""
    with (gzip.open if path.endswith(".gz") else open)(path, "rt", encoding="utf-8-sig") as f:
        first = f.readline()
        if first.startswith("{"):
            if json.loads(first).get("format") != "reqtrace":
                raise ValueError("unknown format; convert it with 'attnreplay trace convert'")
            for i, line in enumerate(f, 2):
                r = json.loads(line)
                yield i, r["arrival_ns"], r["prompt_tokens"], r["output_tokens"]
            return
        names = [s.strip() for s in first.split(",")]
        for i, row in enumerate(csv.reader(f), 2):
            if row:
                r = dict(zip(names, row))
                yield (i, date_ns(r["TIMESTAMP"]), int(r["ContextTokens"]),
                       int(r["GeneratedTokens"]))


def read_trace(path):
    """The requests that attnreplay would replay, in its order: (seconds, prompt, output)."""
    line, requests = 1, []
    try:
        for line, arrival, prompt, output in rows_of(path):
            if prompt > 0 and output > 0:
                requests.append((arrival, line, prompt, output))
    except (KeyError, ValueError, TypeError, OSError, EOFError) as e:
        what = "no column %s; convert it with 'attnreplay trace convert'" % e \
            if isinstance(e, KeyError) else e
        die("%s: near line %d: %s" % (path, line, what))
    if not requests:
        die("%s: no requests" % path)
    requests.sort()
    zero = requests[0][0]
    return [((arrival - zero) / NS, prompt, output) for arrival, _, prompt, output in requests]


# ---- what the host does in a step ----

class Clock:
    """Time by part.  A part inside of another one is not counted twice."""

    def __init__(self):
        self.part, self.since, self.spent = None, 0.0, {}
        self.scheduled = {}             # tokens by request of the current step
        self.zero = 0.0

    def now(self):
        return time.perf_counter() - self.zero

    def reset(self):
        self.spent = dict.fromkeys(PARTS, 0.0)
        self.scheduled = {}

    def switch(self, part):
        """Begin a part; return the one before."""
        before, t = self.part, time.perf_counter()
        if before:
            self.spent[before] += t - self.since
        self.part, self.since = part, t
        return before

    def spy(self, owner, name, part, seen=None):
        """Time calls of owner.name, if there is such a method; seen looks at the results."""
        call = getattr(owner, name, None)
        if call is None:
            return

        def timed(*args, **kwargs):
            before = self.switch(part)
            try:
                result = call(*args, **kwargs)
                if seen:
                    seen(result)
                return result
            finally:
                self.switch(before)
        setattr(owner, name, timed)


class Recorder(Clock):
    """Spies on an engine's scheduler and executor.

    Where: EngineCore.step() and step_with_batch_queue(), vllm/v1/engine/core.py.
    """

    def __init__(self, core):
        super().__init__()
        self.reset()
        self.spy(core.scheduler, "schedule", "schedule", self.saw_schedule)
        self.spy(core.scheduler, "update_from_output", "update", self.saw_update)
        for name in ("execute_model", "sample_tokens"):
            self.spy(core.model_executor, name, "execute", self.saw_future)
        # Without asynchronous scheduling sample_tokens() itself waits for the GPU.  Where: the
        # runners of vllm/v1/worker/gpu_model_runner.py and vllm/v1/worker/gpu/.
        worker = getattr(core.model_executor, "driver_worker", None)
        runner = getattr(getattr(worker, "worker", None), "model_runner", None)
        self.spy(runner, "_to_list", "wait")
        outputs = sys.modules.get("vllm.v1.worker.gpu.async_utils")
        self.spy(getattr(outputs, "AsyncOutput", None), "get_output", "wait")

    def saw_schedule(self, output):
        self.scheduled = dict(output.num_scheduled_tokens)

    def saw_update(self, outputs):
        pass

    def saw_future(self, result):
        if hasattr(result, "add_done_callback"):
            self.spy(result, "result", "wait")


# ---- kernels of attention ----

def attention(kernels):
    """Attention in one step: ns in a layer, and the number of layers.  None: there is none."""
    ms = calls = 0
    for name, (time, launches) in kernels.items():
        if ATTENTION.search(name):
            ms += time
            calls += 0 if HELPER.search(name) else launches
    if not calls:
        return None
    for name, (time, launches) in kernels.items():
        if FILL in name and launches >= calls:              # inputs of the step are filled, too
            ms += time * calls / launches
    return ms * 1e6 / calls, round(calls)


def kernels_in(profile, steps):
    """Kernels of each of these steps, by name, and their times in ms, from PyTorch's profile."""
    kernels = {}
    for e in profile.key_averages():
        ms, n = kernels.get(e.key[:90], (0.0, 0.0))
        if e.self_device_time_total > 0:
            kernels[e.key[:90]] = (ms + e.self_device_time_total / 1e3 / steps, n + e.count / steps)
    found = attention(kernels)
    return {"gpu_busy_ms": sum(ms for ms, _ in kernels.values()),
            "attention_ms": found and found[0] * found[1] / 1e6, "kernels": kernels}


def attention_names(layers):
    """Backends of attention layers, with the version of FlashAttention where one has it.

    Where: the layers of compilation_config.static_forward_context, vllm/v1/attention/backends/.
    """
    names = set()
    for layer in layers.values():
        if hasattr(layer, "attn_backend"):
            version = getattr(layer.impl, "vllm_flash_attn_version", None)
            names.add(layer.attn_backend.get_name() + (" %d" % version if version else ""))
    return ", ".join(sorted(names))


# ---- the engine ----

def warm_prompts(budget):
    """Prompts beyond the CUDA graphs that warm an engine up."""
    return [600, 1000, 1500, 2000, 3000, 4000, 6000, budget - 8, budget + 100]



def header_of(config, gpu, folder):
    """The header of a log, from an engine's VllmConfig."""
    import torch
    import vllm
    header = {
        "engine": "vllm", "version": vllm.__version__, "gpu": gpu,
        "async": bool(config.scheduler_config.async_scheduling),
        "max_num_batched_tokens": config.scheduler_config.max_num_batched_tokens,
        "max_num_seqs": config.scheduler_config.max_num_seqs,
        "cudagraph_capture_sizes": sorted(
            config.compilation_config.cudagraph_capture_sizes or []),
        "block_size": config.cache_config.block_size,
        "num_gpu_blocks": config.cache_config.num_gpu_blocks,
        "torch": torch.__version__,
    }
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as f:
        header["model"] = json.load(f)
    return header


class Engine:
    def __init__(self, a, folder, max_model_len):
        import torch
        from vllm import SamplingParams
        from vllm.engine.arg_utils import EngineArgs
        from vllm.sampling_params import RequestOutputKind
        from vllm.v1.engine.llm_engine import LLMEngine

        self.torch, self.sampling, self.delta = torch, SamplingParams, RequestOutputKind.DELTA
        self.llm = LLMEngine.from_engine_args(EngineArgs(**self.options(a, folder, max_model_len)))
        self.core = self.llm.engine_core.engine_core
        config = self.core.vllm_config
        self.max_len = config.model_config.max_model_len
        self.budget, self.max_seqs = a.max_num_batched_tokens, a.max_num_seqs
        self.header = header_of(config, torch.cuda.get_device_name(), folder)
        self.header.update(a.probe)
        self.header["attention"] = attention_names(config.compilation_config.static_forward_context)
        self.graphs = self.header["cudagraph_capture_sizes"]
        vocab = config.model_config.get_vocab_size()
        self.choice = random.Random(1)
        self.pool = [self.choice.randrange(vocab // 2, vocab) for _ in range(2 * self.max_len)]
        self.clock = Recorder(self.core)
        self.computed = {}              # tokens by request, of step()

    def options(self, a, folder, max_model_len):
        """Arguments of vLLM's EngineArgs."""
        return {
            "model": folder, "load_format": "dummy", "skip_tokenizer_init": True,
            "dtype": "bfloat16", "max_num_batched_tokens": a.max_num_batched_tokens,
            "max_num_seqs": a.max_num_seqs, "max_model_len": max_model_len,
            "gpu_memory_utilization": a.gpu_memory_utilization, "enable_prefix_caching": False,
            "disable_log_stats": True, "async_scheduling": not a.sync,
        }

    def prompt(self, n):
        start = self.choice.randrange(len(self.pool) - n)
        return {"prompt_token_ids": self.pool[start:start + n]}

    def params(self, n):
        return self.sampling(max_tokens=n, ignore_eos=True, temperature=0.0, detokenize=False,
                             output_kind=self.delta)

    def add(self, name, prompt, output):
        self.llm.add_request(name, self.prompt(prompt), self.params(output))

    def busy(self):
        """As vLLM's server: also a batch whose tokens nobody waits for is fetched."""
        return self.llm.has_unfinished_requests() or bool(getattr(self.core, "batch_queue", None))

    def drain(self):
        while self.busy():
            self.llm.step()

    def fit(self, prompt, output):
        """Cut a prompt so that it and the output fit."""
        return max(1, min(prompt, self.max_len - output))

    # ---- warm-up ----

    def warm_up(self):
        """Run all sizes of graphs, as decodes and with a prompt, and long prompts."""
        t = time.perf_counter()
        for i in range(min(self.max_seqs, self.max_len - 10)):
            self.add("w0-%d" % i, 8, 2 + i)             # batches shrink by one request a step
        self.drain()
        long = warm_prompts(self.budget)
        for turn in range(2):
            for i in range(4):
                self.add("w1-%d-%d" % (turn, i), 8, min(200, self.max_len - 8))
            for i, n in enumerate(self.graphs + long):
                for _ in range(2):
                    self.llm.step()
                self.add("w2-%d-%d" % (turn, i), self.fit(n - 4, 3), 3)
            self.drain()
        for i, n in enumerate(long):
            self.add("w3-%d" % i, self.fit(n, 2), 2)
            self.drain()
        self.torch.cuda.synchronize()
        say("warm after %.0f s" % (time.perf_counter() - t))

    # ---- a trace ----

    def run(self, requests):
        """Return the lines of a log after its header."""
        clock, llm = self.clock, self.llm
        prompts = [self.prompt(p) if p + o <= self.max_len else None for _, p, o in requests]
        params = [self.params(o) for _, _, o in requests]
        first, last, count = ([None] * len(requests) for _ in range(3))
        admit, steps, k = [None] * len(requests), [], 0

        self.torch.cuda.synchronize()
        clock.zero = time.perf_counter()
        while k < len(requests) or self.busy():
            while k < len(requests) and requests[k][0] <= clock.now():
                if prompts[k]:
                    t = clock.now()
                    llm.add_request(str(k), prompts[k], params[k])
                    admit[k] = clock.now() - t
                    prompts[k] = None
                k += 1
            if not self.busy():
                gap = requests[k][0] - clock.now() if k < len(requests) else 0
                if gap > 0.002:
                    time.sleep(gap - 0.001)
                continue
            clock.reset()
            begin = clock.now()
            outputs = llm.step()
            end = clock.now()
            steps.append((begin, end, clock.scheduled, clock.spent))
            for o in outputs:
                n = len(o.outputs[0].token_ids)
                if n:
                    i = int(o.request_id)
                    first[i] = end if first[i] is None else first[i]
                    last[i], count[i] = end, (count[i] or 0) + n
        lines = [step_line(*s, [int(name_of(name)) for name in s[2]]) for s in steps]
        for i, (arrival, prompt, output) in enumerate(requests):
            lines.append(request_line(i, arrival, prompt, output, count[i],
                                      first_token=first[i], last_token=last[i], admit=admit[i]))
        return lines

    # ---- kernels ----

    def step(self):
        self.clock.reset()
        outputs = self.llm.step()
        for name, n in self.clock.scheduled.items():
            name = name_of(name)
            self.computed[name] = self.computed.get(name, 0) + n
        return outputs

    def start(self, prompts, name, output):
        """Add requests, and run steps until each decodes and a few more."""
        for i, n in enumerate(prompts):
            self.add(name % i, n, output)
        started = set()
        while len(started) < len(prompts) and self.llm.has_unfinished_requests():
            started.update(o.request_id for o in self.step() if o.outputs[0].token_ids)
        for _ in range(4 if prompts else 0):
            self.step()

    def kernels_of(self, steps):
        """Run steps under the profiler; return ms of wall time and kernels for each step."""
        from torch.profiler import ProfilerActivity, profile
        self.torch.cuda.synchronize()
        with profile(activities=[ProfilerActivity.CUDA]) as p:
            t = time.perf_counter()
            for _ in range(steps):
                self.step()
            self.torch.cuda.synchronize()
            wall = (time.perf_counter() - t) * 1e3 / steps
        return dict(wall_ms=wall, **kernels_in(p, steps))

    def profile(self, path):
        """Steps of one kind: decodes of some requests, prompts that one step computes, and chunks
        beside decodes."""
        result = {"engine": self.header}

        def done(name, kinds):
            self.drain()
            result[name] = kinds
            write(path, [result])
            say_step(name, kinds)

        self.add("profiler", 8, 8)
        self.kernels_of(1)                              # the profiler starts
        self.drain()
        steps = 20
        for b in DECODES:
            if b > self.max_seqs:
                continue
            output = decode_output(b, self.budget)
            self.start([self.fit(DECODE_CONTEXT, output)] * b, "decode%d-%%d" % b, output)
            done("decode%d" % b, self.kernels_of(steps))
        for n in PREFILLS:
            if n <= self.budget and n + 1 <= self.max_len:
                self.add("prefill%d" % n, n, 1)
                done("prefill%d" % n, self.kernels_of(1))
        for prompts in BESIDE:
            if self.fits(prompts):
                result.setdefault("mixed", []).extend(self.chunks_beside(prompts))
                write(path, [result])

    def fits(self, prompts):
        """Whether the engine can run these decodes and the chunks."""
        chunks, output = chunks_of(self.budget), beside_output(prompts, self.budget)
        tokens = sum(chunks) + sum(prompts) + len(prompts) * output
        fits = min(chunks) > 0 and len(prompts) < self.max_seqs and \
            max(sum(chunks) + 1, max(prompts, default=0) + output) <= self.max_len and \
            tokens < self.header["num_gpu_blocks"] * self.header["block_size"]
        if not fits:
            say("chunks%s are left out: the engine's limits are too low" % beside_text(prompts))
        return fits

    def chunks_beside(self, prompts):
        """Steps with decodes of these prompts: alone, then beside each chunk of one prompt."""
        self.computed.clear()
        self.start(prompts, "beside-%d", beside_output(prompts, self.budget))
        result = []

        def run(steps):
            context = self.computed.get("chunks", 0)
            kinds = self.kernels_of(steps)
            keys = [self.computed["beside-%d" % i] for i in range(len(prompts))]
            chunk = self.computed.get("chunks", 0) - context
            result.append(dict(chunk=chunk, context=context, decodes=keys, **kinds))
            say_step("chunk of %d on %d%s" % (chunk, context, beside_text(prompts)), kinds)

        if prompts:
            run(5)
        chunks, config = chunks_of(self.budget), self.core.scheduler.scheduler_config
        self.add("chunks", sum(chunks), 1)
        for n in chunks:
            config.long_prefill_token_threshold = n
            run(1)
        config.long_prefill_token_threshold = 0
        self.drain()
        return result


def decode_output(b, budget):
    """Output tokens that b decodes need until all run, and for the profile after that."""
    return 80 + 2 * b * DECODE_CONTEXT // budget


def beside_output(prompts, budget):
    """The same of decodes beside chunks."""
    return 20 + len(CHUNKS) + 2 * sum(prompts) // budget


def chunks_of(budget):
    """The chunks that fit beside any of the decodes: the same beside all."""
    return [min(n, budget - max(len(prompts) for prompts in BESIDE)) for n in CHUNKS]


def beside_text(prompts):
    return " beside %d decodes of %d to %d" % (len(prompts), min(prompts), max(prompts)) \
        if prompts else ""


def say_step(name, kinds):
    say("%s: %.3f ms, kernels %.3f ms, of these attention %.3f ms" % (
        name, kinds["wall_ms"], kinds["gpu_busy_ms"], kinds["attention_ms"] or 0))


# ---- logs ----

def name_of(request):
    """The engine appends "-" and 8 characters to the name of a request."""
    return request.rpartition("-")[0]


def step_line(begin, end, scheduled, spent, requests):
    line = {"begin": round(begin, 9), "end": round(end, 9), "tokens": list(scheduled.values()),
            "requests": requests}
    line.update((part, round(spent[part], 9)) for part in PARTS)
    return line


def request_line(i, arrival, prompt, output, count, **times):
    """count: output tokens that came; None: the request was left out."""
    if count not in (None, output):
        say("request %d got %d tokens, not %d" % (i, count, output))
        output = count
    line = {"request": i, "arrival": round(arrival, 9), "prompt_tokens": prompt,
            "output_tokens": output}
    line.update((name, round(t, 9)) for name, t in times.items() if t is not None)
    return line


def write(path, lines):
    """Write JSON lines; the file appears when it is complete."""
    with open(path + ".tmp", "w", encoding="utf-8") as f:
        for line in lines:
            json.dump(line, f, separators=(",", ":"))
            f.write("\n")
    os.replace(path + ".tmp", path)


def numbered(path, i, repeat):
    """The log of run i, from 1."""
    if repeat == 1:
        return path
    return "%s.%d.jsonl" % (path[:-6] if path.endswith(".jsonl") else path, i)


def percentile(values, p):
    """Between the two values next to it, linearly; of none 0."""
    if not values:
        return 0.0
    values = sorted(values)
    at = (len(values) - 1) * p / 100
    below = values[int(at)]
    return below + (values[min(int(at) + 1, len(values) - 1)] - below) * (at - int(at))


def summary(path, lines, graph_rows):
    """Print a line for a log.  graph_rows: rows of the largest CUDA graph; times of longer steps
    show how fast the host was."""
    requests = [r for r in lines if "request" in r and "last_token" in r]
    ttft = [(r["first_token"] - r["arrival"]) * 1e3 for r in requests]
    tpot = [(r["last_token"] - r["first_token"]) / (r["output_tokens"] - 1) * 1e3
            for r in requests if r["output_tokens"] > 1]
    steps = [s for s in lines if "begin" in s]
    eager = [(s["end"] - s["begin"]) * 1e3 for s in steps if sum(s["tokens"]) > graph_rows]
    text = "%s: %d steps, %d requests; medians in ms: TTFT %.2f, TPOT %.3f" % (
        path, len(steps), len(requests), percentile(ttft, 50), percentile(tpot, 50))
    if eager:
        text += "; %d steps of more than %d tokens take %.2f ms (p50), %.2f ms (p90)" % (
            len(eager), graph_rows, percentile(eager, 50), percentile(eager, 90))
    say(text)


def model_folder(path, temporary):
    """vLLM wants a folder: put a single file into one."""
    if os.path.isfile(path):
        shutil.copy(path, os.path.join(temporary, "config.json"))
        return temporary
    if not os.path.isfile(os.path.join(path, "config.json")):
        die("%s: no config.json in this folder" % path)
    return path


def needed_len(a, traces, folder):
    """Tokens of the longest request to run, as far as the model goes."""
    longest = max(p + o for requests, _, _ in traces for _, p, o in requests)
    if a.profile:
        longest = max([longest] + [n + 1 for n in PREFILLS if n <= a.max_num_batched_tokens] +
                      [DECODE_CONTEXT + decode_output(b, a.max_num_batched_tokens)
                       for b in DECODES if b <= a.max_num_seqs] + [sum(CHUNKS) + 1] +
                      [max(prompts, default=0) + beside_output(prompts, a.max_num_batched_tokens)
                       for prompts in BESIDE if len(prompts) < a.max_num_seqs])
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as f:
        config = json.load(f)
    limit = config.get("text_config", config).get("max_position_embeddings")
    longest = max(2048, -(-longest // 16) * 16)
    return min(longest, limit) if limit else longest


def name_too_long(traces, max_len):
    for requests, trace, _ in traces:
        too_long = sum(p + o > max_len for _, p, o in requests)
        if too_long:
            say("%s: %d requests of more than %d tokens are left out" % (
                trace, too_long, max_len))


def runs_of(a, traces):
    """Yield requests, trace and log of each run, all traces in each round."""
    for i in range(1, a.repeat + 1):
        for requests, trace, out in traces:
            yield requests, trace, numbered(out, i, a.repeat)


def write_log(path, header, trace, lines):
    write(path, [dict(header, trace=os.path.basename(trace))] + lines)
    summary(path, lines, max(header["cudagraph_capture_sizes"], default=0))


def run_all(a, traces, folder):
    t = time.perf_counter()
    engine = Engine(a, folder, a.max_model_len or needed_len(a, traces, folder))
    say("started after %.0f s" % (time.perf_counter() - t))
    engine.warm_up()
    name_too_long(traces, engine.max_len)
    for requests, trace, path in runs_of(a, traces):
        write_log(path, engine.header, trace, engine.run(requests))
    if a.profile:
        engine.profile(traces[0][2] + ".prof")


def read_traces(a):
    traces = [(read_trace(trace), trace, out) for trace, out in a.pairs]
    for _, _, out in traces:
        if not os.path.isdir(os.path.dirname(out) or "."):
            die("%s: no such folder" % os.path.dirname(out))
    return traces


def set_defaults():
    """What the engine reads from the environment, unless it is set."""
    for name, value in (("VLLM_LOGGING_LEVEL", "WARNING"), ("HF_HUB_OFFLINE", "1"),
                        ("VLLM_NO_USAGE_STATS", "1"), ("VLLM_USE_FLASHINFER_SAMPLER", "0")):
        os.environ.setdefault(name, value)


def main():
    a = parse_args()
    traces = read_traces(a)
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    set_defaults()
    with tempfile.TemporaryDirectory() as temporary:
        run_all(a, traces, model_folder(a.model, temporary))


if __name__ == "__main__":
    main()

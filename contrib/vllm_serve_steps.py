#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Serve a trace with vLLM in two processes, and log steps and what clients see, for attnreplay.

AsyncLLM is the front end; EngineCore runs in a process of its own, as in 'vllm serve'.  Prompts are
random token ids, weights are random, and a request gets exactly the output tokens of the trace.
With --http, a 'vllm serve' of its own gets the requests over HTTP.

A log has the lines that vllm_steps.py writes.  The times of a request are those of its client:
  arrival, sent         when it was due, and when the client gave it to the front end
  received, queued      when the engine's process had read it, and when its scheduler had it
  first_token, last_token
A step whose tokens were recorded also has
  posted                when they were written for the front end
  seen: [time, n]       when they reached the clients of n requests, on average

In EngineCore's process AsyncSteps stands for vLLM's scheduler.  It logs the steps to the file that
ATTNREPLAY_STEPS names.  So it logs those of any server, which writes the file when it ends:
  ATTNREPLAY_STEPS=FILE PYTHONPATH=contrib \\
  vllm serve MODEL --async-scheduling --scheduler-cls vllm_serve_steps.AsyncSteps

Needs vllm 0.24 or newer and a GPU; tried with 0.24.0.
"""
import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request

from vllm_steps import (Recorder, die, header_of, make_parser, model_folder, name_too_long,
                        needed_len, parse_pairs, read_traces, request_line, runs_of, say,
                        set_defaults, step_line, warm_prompts, write, write_log)

STEPS = "ATTNREPLAY_STEPS"      # the environment names the file of the steps
MARK = "attnreplay-mark"        # a request of this name: write what was logged, and begin anew
SETTLE = 0.3                    # seconds before a trace begins
START = 300                     # seconds that a server may take to start
CONNECTS = 600                  # tries to connect, 0.1 s apart


# ---- in EngineCore's process ----

class EngineLog(Recorder):
    """Log the steps and requests of an EngineCore.

    Where: EngineCoreProc, vllm/v1/engine/core.py.  One thread reads requests from the socket
    (preprocess_add_request), one writes tokens to it (encode_into), and the loop is a third.
    """

    def __init__(self, core, path):
        super().__init__(core)
        self.core, self.path = core, path
        self.steps, self.requests, self.posting, self.posted = [], {}, {}, {}
        self.after(core, "preprocess_add_request", self.saw_received)
        self.around(core, "_process_engine_step", self.saw_step)
        self.around(core, "add_request", self.saw_added)
        from vllm.v1.serial_utils import MsgpackEncoder
        self.after(MsgpackEncoder, "encode_into", self.saw_posted)

    @staticmethod
    def around(owner, name, seen):
        call = getattr(owner, name)

        def logged(*args, **kwargs):
            begin = time.perf_counter()
            return seen(begin, lambda: call(*args, **kwargs), *args)
        setattr(owner, name, logged)

    def after(self, owner, name, seen):
        def call_then(_, call, *args):
            result = call()
            seen(*args)
            return result
        self.around(owner, name, call_then)

    def saw_received(self, request):
        self.requests[request.request_id] = {
            "received": time.perf_counter(), "prompt": len(request.prompt_token_ids or ())}

    def saw_added(self, begin, call, request, *_):
        if MARK in request.request_id:
            self.flush()
        result = call()
        end = time.perf_counter()
        self.requests.setdefault(request.request_id, {}).update(queued=end, admit=end - begin)
        return result

    def saw_step(self, _, call):
        self.reset()
        begin = time.perf_counter()
        result = call()
        self.steps.append((begin, time.perf_counter(), self.scheduled, self.spent))
        return result

    def saw_update(self, outputs):
        """Tokens of the step that runs; outputs by client."""
        for some in (outputs or {}).values():
            self.posting[id(some)] = len(self.steps), [
                (o.request_id, len(o.new_token_ids)) for o in some.outputs]

    def saw_posted(self, _, outputs, *__):
        """The output thread has encoded the outputs of a step."""
        step, tokens = self.posting.pop(id(outputs), (None, ()))
        if step is None:
            return
        now = time.perf_counter()
        self.posted[step] = now, tokens
        for name, n in tokens:
            times = self.requests.get(name)
            if times and n:
                times.setdefault("first_token", now)
                times["last_token"], times["count"] = now, times.get("count", 0) + n

    def lines(self):
        """Lines of the log; requests have the engine's times, and arrive when they are received."""
        zero = min([s[0] for s in self.steps] +
                   [r["received"] for r in self.requests.values() if "received" in r],
                   default=0.0)
        config = self.core.vllm_config
        from vllm.platforms import current_platform
        yield dict(header_of(config, current_platform.get_device_name(),
                             config.model_config.model), zero=zero)
        number = {name: i for i, name in enumerate(self.requests)}
        for i, (begin, end, scheduled, spent) in enumerate(self.steps):
            line = step_line(begin - zero, end - zero, scheduled, spent,
                             [number.get(name, -1) for name in scheduled])
            if i in self.posted:
                posted, tokens = self.posted[i]
                line["posted"] = round(posted - zero, 9)
                line["emit"] = [[number.get(name, -1), n] for name, n in tokens if n]
            yield line
        for name, r in self.requests.items():
            if "received" in r:
                times = {k: r[k] - zero for k in ("received", "queued", "first_token", "last_token")
                         if k in r}
                yield dict(request_line(number[name], r["received"] - zero, r["prompt"],
                                        r.get("count", 0), None, admit=r.get("admit"), **times),
                           id=name)

    def flush(self):
        write(self.path, self.lines())
        self.steps, self.requests, self.posted = [], {}, {}


def log_steps():
    """Log each EngineCore that this process runs from now on."""
    from vllm.v1.engine.core import EngineCoreProc
    run, stop = EngineCoreProc.run_busy_loop, EngineCoreProc.shutdown

    def run_busy_loop(core):
        core.attnreplay = EngineLog(core, os.environ[STEPS])
        run(core)

    def shutdown(core):
        log = getattr(core, "attnreplay", None)
        if log and log.steps:
            log.flush()
        stop(core)
    EngineCoreProc.run_busy_loop, EngineCoreProc.shutdown = run_busy_loop, shutdown


def __getattr__(name):
    """AsyncSteps and SyncSteps, vLLM's schedulers, made where EngineCore asks for one."""
    if name == "AsyncSteps":
        from vllm.v1.core.sched.async_scheduler import AsyncScheduler as base
    elif name == "SyncSteps":
        from vllm.v1.core.sched.scheduler import Scheduler as base
    else:
        raise AttributeError(name)
    if STEPS in os.environ:
        log_steps()
    made = globals()[name] = type(name, (base,), {})
    return made


# ---- the client ----

def engine_options(a, folder, max_model_len):
    return {
        "model": folder, "load_format": "dummy", "dtype": "bfloat16",
        "max_num_batched_tokens": a.max_num_batched_tokens, "max_num_seqs": a.max_num_seqs,
        "max_model_len": max_model_len, "gpu_memory_utilization": a.gpu_memory_utilization,
        "async_scheduling": not a.sync,
        "scheduler_cls": "vllm_serve_steps.%sSteps" % ("Sync" if a.sync else "Async"),
    }


class Direct:
    """AsyncLLM in this process."""

    def __init__(self, options):
        from vllm import SamplingParams
        from vllm.engine.arg_utils import AsyncEngineArgs
        from vllm.sampling_params import RequestOutputKind
        from vllm.v1.engine.async_llm import AsyncLLM
        self.sampling, self.delta = SamplingParams, RequestOutputKind.DELTA
        self.llm = AsyncLLM.from_engine_args(AsyncEngineArgs(
            skip_tokenizer_init=True, disable_log_stats=True, **options))

    async def start(self):
        pass

    async def ask(self, name, prompt, output):
        """Yield how many tokens came."""
        params = self.sampling(max_tokens=output, ignore_eos=True, temperature=0.0,
                               detokenize=False, output_kind=self.delta)
        async for o in self.llm.generate({"prompt_token_ids": prompt}, params, name):
            yield len(o.outputs[0].token_ids)

    async def stop(self):
        self.llm.shutdown()


class Http:
    """'vllm serve' as a third process, with a tokenizer of made-up words for the output."""

    def __init__(self, options):
        folder, self.port = options["model"], 8000 + os.getpid() % 20000
        write_tokenizer(folder)
        args = [sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", folder,
                "--served-model-name", "m", "--host", "127.0.0.1", "--port", str(self.port),
                "--disable-uvicorn-access-log", "--no-enable-log-requests"]
        for name, value in options.items():
            flag = "--" + name.replace("_", "-")
            if name == "async_scheduling":
                args.append(flag if value else "--no-async-scheduling")
            elif name != "model":
                args += [flag, str(value)]
        self.server = subprocess.Popen(args, stdout=sys.stderr)
        self.idle = []          # open connections that no request uses

    def check(self):
        if self.server.poll() is not None:
            die("the server ended with status %d" % self.server.returncode)

    async def start(self):
        since = time.perf_counter()
        while True:
            try:
                urllib.request.urlopen("http://127.0.0.1:%d/health" % self.port,
                                       timeout=5).close()
                break
            except OSError:
                self.check()
                if time.perf_counter() - since > START:
                    die("the server did not start in %d s" % START)
                await asyncio.sleep(0.2)

    async def connect(self):
        """Return a connection, and whether it was used before."""
        while self.idle:
            reader, writer = self.idle.pop()
            if not reader.at_eof():
                return reader, writer, True
            writer.close()
        for _ in range(CONNECTS):
            try:
                return *await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 24), False
            except ConnectionError:     # too many at once
                self.check()
                await asyncio.sleep(0.1)
        die("the server takes no connection")

    async def post(self, head, body):
        """Send a request.  Return its connection, the status of the answer, and its headers."""
        while True:
            reader, writer, used = await self.connect()
            try:
                writer.write(head + body)
                await writer.drain()
                status = await reader.readline()
            except ConnectionError:
                status = b""
            if status:
                break
            # The server closes a connection that idles, perhaps as this request is sent.
            writer.close()
            self.check()
            if not used:
                die("the server closed a connection without an answer")
        headers = {}
        while (line := await reader.readline()).strip():
            key, _, value = line.decode().partition(":")
            headers[key.lower()] = value.strip().lower()
        return reader, writer, int(status.split()[1]), headers

    async def lines(self, name, reader, headers):
        """Yield the lines of an answer as they come."""
        rest = b""
        try:
            if "content-length" in headers:
                rest = await reader.readexactly(int(headers["content-length"]))
            while headers.get("transfer-encoding") == "chunked":
                size = int((await reader.readuntil(b"\n")).split(b";")[0], 16)
                rest += (await reader.readexactly(size + 2))[:size]
                if not size:
                    break
                *whole, rest = rest.split(b"\n")
                for line in whole:
                    yield line
        except (ConnectionError, EOFError):
            self.check()
            die("the server broke off its answer to %s" % name)
        yield rest

    async def ask(self, name, prompt, output):
        body = json.dumps({
            "model": "m", "prompt": prompt, "max_tokens": output, "ignore_eos": True,
            "temperature": 0.0, "stream": True,
            "stream_options": {"include_usage": True, "continuous_usage_stats": True}}).encode()
        head = ("POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Request-Id: %s\r\n"
                "Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" %
                (name, len(body))).encode()
        reader, writer, status, headers = await self.post(head, body)
        had = 0
        async for line in self.lines(name, reader, headers):
            data = json.loads(line[6:]) if line.startswith(b"data: {") else {}
            if status != 200 or "error" in data:
                die("the server refused %s: %s" % (name, line.decode(errors="replace")[:500]))
            now = (data.get("usage") or {}).get("completion_tokens", had)
            if data.get("choices") and now > had:
                yield now - had
                had = now
        if headers.get("connection") == "close":
            writer.close()
        else:
            self.idle.append((reader, writer))

    async def stop(self):
        for _, writer in self.idle:
            writer.close()
        self.server.terminate()
        self.server.wait(60)


def write_tokenizer(folder):
    """A tokenizer.json in which each id is a word."""
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as f:
        config = json.load(f)
    vocab = {"w%d" % i: i for i in range(config.get("text_config", config)["vocab_size"])}
    with open(os.path.join(folder, "tokenizer.json"), "w", encoding="utf-8") as f:
        json.dump({"version": "1.0", "truncation": None, "padding": None, "added_tokens": [],
                   "normalizer": None, "pre_tokenizer": {"type": "WhitespaceSplit"},
                   "post_processor": None, "decoder": None,
                   "model": {"type": "WordLevel", "vocab": vocab, "unk_token": "w0"}}, f)
    with open(os.path.join(folder, "tokenizer_config.json"), "w", encoding="utf-8") as f:
        json.dump({"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "w0",
                   "eos_token": "w1"}, f)


class Client:
    def __init__(self, server, steps, max_len, vocab):
        self.server, self.steps, self.max_len, self.vocab = server, steps, max_len, vocab
        self.asked = 0

    def prompt(self, n):
        """n token ids.  No two prompts begin alike, so that no prefix cache has them."""
        self.asked += 1
        ids = [self.vocab // 2 + i % (self.vocab // 2) for i in range(7 * self.asked,
                                                                     7 * self.asked + n)]
        for i in range(min(n, 3)):
            ids[i] = 10 + self.asked // 1000 ** i % 1000
        return ids

    async def take(self, name, prompt, output, seen):
        async for n in self.server.ask(name, prompt, output):
            if n:
                seen.append((time.perf_counter(), n))

    async def mark(self):
        """Let the engine write its log, and begin a new one."""
        await self.take(MARK, self.prompt(1), 1, [])

    async def warm_up(self, budget, max_seqs, graphs):
        """Run all sizes of graphs, as decodes and with a prompt, and long prompts."""
        t, room = time.perf_counter(), self.max_len

        async def ask(n, output):
            await self.take("attnreplay-w-%d" % self.asked, self.prompt(max(1, min(n, room - output))),
                            output, [])
        await asyncio.gather(*[ask(8, min(2 + i, room - 8)) for i in range(max_seqs)])
        for _ in range(2):
            beside = [asyncio.create_task(ask(8, min(300, room - 8))) for _ in range(4)]
            for n in graphs + warm_prompts(budget):
                await ask(n - 4, 3)
            await asyncio.gather(*beside)
        for n in warm_prompts(budget):
            await ask(n, 2)
        say("warm after %.0f s" % (time.perf_counter() - t))

    async def run(self, requests):
        """Return the lines of a log after its header, and the engine's header."""
        seen, sent = [[] for _ in requests], [None] * len(requests)
        fits = [p + o <= self.max_len for _, p, o in requests]
        prompts = [self.prompt(p) if fit else None for (_, p, _), fit in zip(requests, fits)]
        tasks = []

        async def ask(i):
            sent[i] = time.perf_counter()
            await self.take("attnreplay-r-%d" % i, prompts[i], requests[i][2], seen[i])
        await self.mark()
        await asyncio.sleep(SETTLE)
        zero = time.perf_counter()
        for i, (arrival, _, _) in enumerate(requests):
            while (gap := zero + arrival - time.perf_counter()) > 0:
                # The loop's clock is coarse: near the arrival let only other tasks run.
                await asyncio.sleep(max(0, gap - 0.002))
            if fits[i]:
                tasks.append(asyncio.create_task(ask(i)))
        await asyncio.gather(*tasks)
        await asyncio.sleep(SETTLE)
        await self.mark()
        return joined(zero, requests, sent, seen, self.steps)


def joined(zero, requests, sent, seen, path):
    """The engine's header, and its steps with what the client saw."""
    with open(path, encoding="utf-8") as f:
        log = [json.loads(line) for line in f]
    shift = log[0].pop("zero") - zero
    own, index = {}, {}                 # rows by request, and requests by number in the log
    for r in log:
        m = "id" in r and re.search(r"attnreplay-r-(\d+)", r["id"])
        if m:
            index[r["request"]] = int(m[1])
            own[int(m[1])] = r
    tokens = {i: iter([t for t, n in s for _ in range(n)]) for i, s in enumerate(seen)}
    lines = []
    for s in log:
        if "begin" not in s or s["begin"] + shift < 0 or any(k not in index for k in s["requests"]):
            continue
        for name in ("begin", "end", "posted"):
            if name in s:
                s[name] = round(s[name] + shift, 9)
        s["requests"] = [index[k] for k in s["requests"]]
        times = [t for k, n in s.pop("emit", ()) if k in index for _ in range(n)
                 for t in (next(tokens[index[k]], None),) if t is not None]
        if times:
            s["seen"] = [round(sum(times) / len(times) - zero, 9), len(times)]
        lines.append(s)
    for i, (arrival, prompt, output) in enumerate(requests):
        lines.append(request_line(
            i, arrival, prompt, output, sum(n for _, n in seen[i]) if seen[i] else None,
            sent=sent[i] and sent[i] - zero,
            **{name: own[i][name] + shift for name in ("received", "queued")
               if name in own.get(i, ())},
            admit=own.get(i, {}).get("admit"),
            first_token=seen[i][0][0] - zero if seen[i] else None,
            last_token=seen[i][-1][0] - zero if seen[i] else None))
    return log[0], lines


# ---- all ----

def parse_args():
    p = make_parser(__doc__)
    p.add_argument("--http", action="store_true",
                   help="send the requests over HTTP to a 'vllm serve' of its own")
    p.set_defaults(profile=False)
    return parse_pairs(p)


async def run_all(a, traces, folder, steps):
    t = time.perf_counter()
    max_len = a.max_model_len or needed_len(a, traces, folder)
    options = engine_options(a, folder, max_len)
    server = (Http if a.http else Direct)(options)
    try:
        await server.start()
        say("started after %.0f s" % (time.perf_counter() - t))
        with open(os.path.join(folder, "config.json"), encoding="utf-8") as f:
            config = json.load(f)
        client = Client(server, steps, max_len, config.get("text_config", config)["vocab_size"])
        await client.mark()
        with open(steps, encoding="utf-8") as f:
            graphs = json.loads(f.readline())["cudagraph_capture_sizes"]
        await client.warm_up(a.max_num_batched_tokens, a.max_num_seqs, graphs)
        name_too_long(traces, max_len)
        for requests, trace, path in runs_of(a, traces):
            header, lines = await client.run(requests)
            write_log(path, dict(header, front="http" if a.http else "async", **a.probe), trace,
                      lines)
    finally:
        await server.stop()


def main():
    a = parse_args()
    traces = read_traces(a)
    here = os.path.dirname(os.path.abspath(__file__))
    path = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = here + (os.pathsep + path if path else "")
    set_defaults()
    with tempfile.TemporaryDirectory() as temporary:
        folder = model_folder(a.model, temporary)
        if a.http and folder != temporary:
            die("--http: give a single config.json: a tokenizer is written beside it")
        os.environ[STEPS] = os.path.join(temporary, "steps.jsonl")
        asyncio.run(run_all(a, traces, folder, os.environ[STEPS]))


if __name__ == "__main__":
    main()

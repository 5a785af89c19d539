#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Time steps of vLLM with tensor parallelism, of one kind after the other, and name their kernels.

  vllm_tp_steps.py MODEL OUT [OPTION]...

MODEL is a folder with config.json, or such a file; weights are random.  A kind is decodes of 1, 8,
32 or 64 requests of 2000 tokens each, or prompts of 512 to 8192 tokens, one a step and one behind
the other.  It prints a line for each, and OUT gets them as an object:

  period   ms from the end of the step before on the GPU to the end of this one
  span     ms from the call of the step to its end on the GPU
  launch   ms that a worker's host takes to prepare and launch it
  kernels  by name, with ms and launches of a step, from further steps under PyTorch's profiler

Figures are medians of the first rank, and "ranks" has those of all.  With --rounds N each is the
median of N rounds, with "range", and "rounds" has them all.  Hosts change their speed within seconds,
so a step that waits for its launch needs several.  All are timed before the profiler runs.  With the
kernels dense_as_engine.py takes OUT.

"collective_us" of "engine" is the time of each rank's host to launch an all-reduce that no graph
holds, in each round by the tokens of the step.

Several such engines may start side by side and take turns.  With --turn NAME one says that it is
ready by the file NAME.ready.  It begins round I when there is NAME.I.go, and says that it has ended
by NAME.I.done.  The profile is round "profile".  It ends when there is NAME.end, also if rounds are
left.  The workers of a waiting engine spin, so stop its process group (SIGSTOP) until its next turn.

Needs vllm 0.24 or newer and the GPUs; tried with 0.24.0.
"""
import argparse
import json
import os
import statistics
import tempfile
import time

from vllm_steps import (DECODES, DECODE_CONTEXT, Engine, decode_output, kernels_in, model_folder,
                        say, set_defaults, write)

PROMPTS = (512, 1024, 2048, 8192)
TIMED = 60                      # steps of decodes
LEFT_OUT = 3                    # first steps of a kind
LAUNCHED = 8                    # all-reduces one behind the other, which the GPU's queue holds
PROFILED = 20
REPEATS = {8192: 9}             # prompts of a kind, else 15
FIGURES = ("period", "span", "launch")
KINDS = [("decode", b) for b in DECODES] + [("prefill", n) for n in PROMPTS]


# ---- in a worker's process ----

class Watch:
    """Methods that vLLM adds to its workers.  Where: worker_extension_cls."""

    def watch(self):
        """Time all steps from now on."""
        import torch
        runner = self.model_runner
        execute, sample = runner.execute_model, runner.sample_tokens
        self.watched = []

        def execute_model(output, *args, **kwargs):
            tokens = output.num_scheduled_tokens
            begin, t = torch.cuda.Event(enable_timing=True), time.perf_counter()
            begin.record()
            result = execute(output, *args, **kwargs)
            if tokens:
                self.watched.append([len(tokens), sum(tokens.values()), begin, None,
                                     time.perf_counter() - t])
            return result

        def sample_tokens(*args, **kwargs):
            t = time.perf_counter()
            result = sample(*args, **kwargs)
            end = torch.cuda.Event(enable_timing=True)
            end.record()
            if self.watched and self.watched[-1][3] is None:
                self.watched[-1][3] = end
                self.watched[-1][4] += time.perf_counter() - t
            return result
        runner.execute_model, runner.sample_tokens = execute_model, sample_tokens

    def watch_take(self):
        """[requests, tokens, period, span, launch] of each step since the last call, in ms."""
        import torch
        torch.cuda.synchronize()
        steps, self.watched = [s for s in self.watched if s[3]], []
        ends = [None] + [s[3] for s in steps]
        return [[n, tokens, before.elapsed_time(end) if before else None, begin.elapsed_time(end),
                 launch * 1e3] for before, (n, tokens, begin, end, launch) in zip(ends, steps)]

    def watch_profile(self, on):
        """Begin to trace kernels, or return those since then."""
        import torch
        torch.cuda.synchronize()
        if on:
            self.watch_profiler = torch.profiler.profile(
                activities=[torch.profiler.ProfilerActivity.CUDA])
            self.watched = []
            self.watch_profiler.start()
            return None
        self.watch_profiler.stop()
        return kernels_in(self.watch_profiler, max(len(self.watched), 1))

    def watch_collective(self, tokens, hidden, times):
        """Median of the host's us to launch an all-reduce of these tokens."""
        import torch
        from vllm.distributed.parallel_state import get_tp_group
        group, us = get_tp_group(), []
        x = torch.ones(tokens, hidden, dtype=torch.bfloat16, device="cuda")
        for _ in range(times):
            torch.cuda.synchronize()
            with torch.inference_mode():
                t = time.perf_counter()
                for _ in range(LAUNCHED):
                    group.all_reduce(x)
                us.append((time.perf_counter() - t) * 1e6 / LAUNCHED)
        torch.cuda.synchronize()
        return statistics.median(us)

    def watch_all_reduces(self):
        """What vLLM has for all-reduces, and whether it is in use."""
        from vllm.distributed.parallel_state import get_tp_group
        device = get_tp_group().device_communicator
        return {name: str(not getattr(part, "disabled", False))
                for name, part in vars(device).items()
                if name.endswith("_comm") and part is not None}


# ---- the engine ----

class Parallel(Engine):
    def options(self, a, folder, max_model_len):
        return dict(super().options(a, folder, max_model_len), tensor_parallel_size=a.tp,
                    distributed_executor_backend="mp", kv_cache_memory_bytes=a.kv_bytes,
                    disable_custom_all_reduce=a.disable_custom_all_reduce,
                    cudagraph_capture_sizes=a.graphs,
                    worker_extension_cls="vllm_tp_steps.Watch")

    def ask(self, method, *args):
        return self.llm.collective_rpc(method, args=args)

    def decodes(self, b, steps):
        """b requests that decode in some steps."""
        output = decode_output(b, self.budget) + steps - TIMED
        self.start([DECODE_CONTEXT] * b, "decode%d-%%d" % b, output)

    def prompts(self, n, count):
        """One prompt a step; the next one is there before its turn."""
        for i in range(count):
            self.add("prompt%d-%d" % (n, i), n, 1)
            self.step()
        self.drain()

    def profiled(self, run):
        self.ask("watch_profile", True)
        run()
        made = self.ask("watch_profile", False)
        self.drain()
        return made

    def some_steps(self, n):
        for _ in range(n):
            self.step()

    def measure(self, run, requests, tokens):
        """Medians of the steps of this kind, of each rank."""
        self.ask("watch_take")
        run()
        self.drain()
        ranks = []
        for steps in self.ask("watch_take"):
            of = [s for s in steps if s[:2] == [requests, tokens] and s[2] is not None]
            of = of[LEFT_OUT:LEFT_OUT + TIMED]
            ranks.append(dict(steps=len(of), **{
                name: statistics.median(s[2 + i] for s in of) if of else None
                for i, name in enumerate(FIGURES)}))
        return ranks

    def time_kind(self, name):
        """One round of a kind: the medians of each rank."""
        what, n = name
        if what == "decode":
            return self.measure(lambda: self.decodes(n, TIMED), n, n)
        return self.measure(lambda: self.prompts(n, REPEATS.get(n, 15)), 1, n)

    def time_collectives(self, times=30):
        config = self.header["model"]
        hidden = config.get("text_config", config)["hidden_size"]
        return {n: self.ask("watch_collective", n, hidden, times) for n in PROMPTS}

    def profile_kind(self, name):
        what, n = name
        if what == "decode":
            self.decodes(n, TIMED)
            return self.profiled(lambda: self.some_steps(PROFILED))[0]
        return self.profiled(lambda: self.prompts(n, 3))[0]

    def warm(self):
        """Each kind once, so that nothing is compiled later."""
        for n in PROMPTS:
            self.prompts(n, 2)
        for b in DECODES:
            self.start([16] * b, "warm%d-%%d" % b, 8)
            self.drain()


def parse_args():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model", metavar="MODEL")
    p.add_argument("out", metavar="OUT")
    p.add_argument("--tp", type=int, default=2, help="ranks (%(default)s)")
    p.add_argument("--disable-custom-all-reduce", action="store_true",
                   help="as vLLM's option: all-reduces are NCCL's")
    p.add_argument("--graphs", type=lambda s: [int(x) for x in s.split(",")],
                   default=[1, 8, 32, 64, 512], metavar="LIST",
                   help="sizes of CUDA graphs (1,8,32,64,512); few start sooner")
    p.add_argument("--kv-bytes", type=int, default=9 * 10**9, metavar="N",
                   help="bytes of the KV cache of each rank (%(default)s)")
    p.add_argument("--rounds", type=int, default=1, metavar="N",
                   help="times that each kind is timed (%(default)s)")
    p.add_argument("--again", type=lambda s: s.split(","), metavar="KINDS",
                   help="those that rounds after the first have, such as decode8,prefill512 (all)")
    p.add_argument("--turn", metavar="NAME", help="take turns with other engines, as above")
    a = p.parse_args()
    a.max_num_batched_tokens, a.max_num_seqs, a.gpu_memory_utilization = 8192, 64, 0.15
    a.sync, a.probe = False, {}
    return a


def tell(a, what):
    if a.turn:
        with open("%s.%s" % (a.turn, what), "w", encoding="utf-8"):
            pass


def wait_for(a, what):
    """Whether it is there before the end is."""
    while a.turn and not os.path.exists("%s.%s" % (a.turn, what)):
        if os.path.exists("%s.end" % a.turn):
            return False
        time.sleep(0.1)
    return True


def middle(values):
    values = [v for v in values if v is not None]
    return statistics.median(values) if values else None


def of_rounds(rounds):
    """The figures of a kind from its rounds: of the first rank, and of all."""
    ranks = [dict(steps=min(r[i]["steps"] for r in rounds),
                  **{name: middle([r[i][name] for r in rounds]) for name in FIGURES})
             for i in range(len(rounds[0]))]
    periods = [r[0]["period"] for r in rounds if r[0]["steps"]]
    return dict(ranks[0], range=[min(periods), max(periods)] if periods else None,
                wall_ms=ranks[0]["period"], ranks=ranks, rounds=rounds)


def text_of(kind):
    if not kind["range"]:
        return "none"
    return "; ".join("rank %d: %d steps, period %.3f, span %.3f, launch %.2f" % (
        i, r["steps"], r["period"], r["span"], r["launch"]) for i, r in enumerate(kind["ranks"])) + (
            "; %d rounds, period %.3f to %.3f" % (len(kind["rounds"]), *kind["range"])
            if len(kind["rounds"]) > 1 else "")


def time_rounds(a, engine, result):
    """Whether all turns for them came."""
    for i in range(1, a.rounds + 1):
        if not wait_for(a, "%d.go" % i):
            return False
        for kind in KINDS:
            name = "%s%d" % kind
            if i == 1 or not a.again or name in a.again:
                before = result[name]["rounds"] if name in result else []
                result[name] = of_rounds(before + [engine.time_kind(kind)])
        result["engine"].setdefault("collective_us", []).append(engine.time_collectives())
        write(a.out, [result])
        tell(a, "%d.done" % i)
    return True


def run(a, folder):
    t = time.perf_counter()
    engine = Parallel(a, folder, 8704)
    engine.ask("watch")
    say("started after %.0f s; all-reduces: %s" % (
        time.perf_counter() - t, engine.ask("watch_all_reduces")[0]))
    engine.warm()
    say("warm after %.0f s" % (time.perf_counter() - t))
    tell(a, "ready")
    result = {"engine": dict(engine.header, all_reduces=engine.ask("watch_all_reduces")[0])}
    go_on = time_rounds(a, engine, result)
    for name in result:
        if name != "engine":
            print("%-12s %s" % (name, text_of(result[name])), flush=True)
    if go_on and wait_for(a, "profile.go"):
        for kind in KINDS:
            result["%s%d" % kind].update(engine.profile_kind(kind))
            write(a.out, [result])
        tell(a, "profile.done")
    wait_for(a, "end")


def main():
    a = parse_args()
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    set_defaults()
    with tempfile.TemporaryDirectory() as temporary:
        run(a, model_folder(a.model, temporary))


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Time steps of vLLM with tensor parallelism, of one kind after the other, and name their kernels.

  vllm_tp_steps.py MODEL OUT [OPTION]...

MODEL is a folder with config.json, or such a file; weights are random.  A kind is decodes of 1, 8,
32 or 64 requests of 2000 tokens each, or prompts of 512 to 8192 tokens, one a step and one behind
the other.  It prints a line for each, and OUT gets them as an object that dense_as_engine.py takes:

  period   ms from the end of the step before on the GPU to the end of this one
  span     ms from the call of the step to its end on the GPU
  launch   ms that a worker's host takes to prepare and launch it
  kernels  by name, with ms and launches of a step, from further steps under PyTorch's profiler

Figures are medians of the first rank, and "ranks" has those of all.  Several such engines may start
side by side and take turns: with --turn NAME one says that it is ready by the file NAME.ready, goes
when there is NAME.go, says so by NAME.done, and ends when there is NAME.end.

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
PROFILED = 20
REPEATS = {8192: 9}             # prompts of a kind, else 15


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
                for i, name in enumerate(("period", "span", "launch"))}))
        return ranks

    def kind(self, name, result, run, profiled, requests, tokens):
        ranks = self.measure(run, requests, tokens)
        result[name] = dict(ranks[0], ranks=ranks, wall_ms=ranks[0]["period"], **profiled()[0])
        print("%-12s %s" % (name, "; ".join(
            "rank %d: %d steps, period %.3f, span %.3f, launch %.2f" % (
                i, r["steps"], r["period"], r["span"], r["launch"])
            if r["steps"] else "rank %d: none" % i for i, r in enumerate(ranks))), flush=True)

    def decode_kind(self, b, result):
        def profiled():
            self.decodes(b, TIMED)
            return self.profiled(lambda: self.some_steps(PROFILED))
        self.kind("decode%d" % b, result, lambda: self.decodes(b, TIMED), profiled, b, b)

    def prompt_kind(self, n, result):
        self.kind("prefill%d" % n, result, lambda: self.prompts(n, REPEATS.get(n, 15)),
                  lambda: self.profiled(lambda: self.prompts(n, 3)), 1, n)

    def warm(self):
        """Each kind once, so that nothing is compiled later."""
        for n in PROMPTS:
            self.prompts(n, 2)
        for b in DECODES:
            self.start([16] * b, "warm%d-%%d" % b, 8)
            self.drain()
        self.ask("watch_profile", True)
        self.prompts(512, 2)
        self.ask("watch_profile", False)


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
    while a.turn and not os.path.exists("%s.%s" % (a.turn, what)):
        time.sleep(0.1)


def run(a, folder):
    t = time.perf_counter()
    engine = Parallel(a, folder, 8704)
    engine.ask("watch")
    say("started after %.0f s; all-reduces: %s" % (
        time.perf_counter() - t, engine.ask("watch_all_reduces")[0]))
    engine.warm()
    say("warm after %.0f s" % (time.perf_counter() - t))
    tell(a, "ready")
    wait_for(a, "go")
    result = {"engine": dict(engine.header, all_reduces=engine.ask("watch_all_reduces")[0])}
    for make, sizes in ((engine.decode_kind, DECODES), (engine.prompt_kind, PROMPTS)):
        for n in sizes:
            make(n, result)
            write(a.out, [result])
    tell(a, "done")
    wait_for(a, "end")


def main():
    a = parse_args()
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    set_defaults()
    with tempfile.TemporaryDirectory() as temporary:
        run(a, model_folder(a.model, temporary))


if __name__ == "__main__":
    main()

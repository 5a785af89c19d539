#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Time vLLM's custom all-reduce between GPUs of this host, for --comm.

  vllm_collectives.py --tp 2 >FILE       print a table of its all-reduces
  vllm_collectives.py --tp 2 --nccl TABLE >FILE
                                         ... followed by what vLLM leaves to NCCL, from TABLE of
                                         'attnreplay bench collective'

It needs PyTorch and the library of vLLM's kernels alone: --library names the file if vLLM is not
installed.  vLLM runs these kernels for messages below 8 MiB whose bytes are a multiple of 16.  All
run in a CUDA graph, in which they read the inputs of other ranks in place: a chain of a small kernel
and the all-reduce, in turn, behind a barrier.  What an all-reduce adds is the time of a link of that
chain less that of a chain of small kernels, on the slowest rank.
"""
import argparse
import datetime
import importlib.util
import os
import pathlib
import sys

from later import Later

torch, dist = Later("torch"), Later("torch.distributed")
mp = Later("torch.multiprocessing")

LIMIT = 8 << 20         # bytes of a message that vLLM leaves to NCCL, and above
LINKS = 16              # of a chain
COLUMNS = "collective type ranks hosts mode bytes n p10_ns p50_ns p90_ns kernel"


def parse_args():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--tp", type=int, default=2, help="ranks (default: 2)")
    p.add_argument("--library", help="the file _C_stable_libtorch.abi3.so of vLLM")
    p.add_argument("--version", default="0.24.0", help="of vLLM, for the header")
    p.add_argument("--repeat", type=int, default=50, help="times of each size (default: 50)")
    p.add_argument("--nccl", help="a table with the larger messages and the all-gathers")
    p.add_argument("--port", type=int, default=29517, help="that the ranks meet at")
    return p.parse_args()


def find_library(args):
    if args.library:
        return args.library
    spec = importlib.util.find_spec("vllm")
    if not spec:
        sys.exit("vllm_collectives.py: vLLM is not installed; name its library with --library")
    return str(pathlib.Path(spec.origin).parent / "_C_stable_libtorch.abi3.so")


def sizes():
    x = 1024
    while x < LIMIT:
        yield x
        yield x // 2 * 3
        x *= 2
    yield LIMIT - 16


class Ranks:
    """vLLM's all-reduce, as its CustomAllreduce sets it up."""

    def __init__(self, rank, n):
        self.rank, self.n, self.ops = rank, n, torch.ops._C_custom_ar
        self.meta = self.share(self.ops.meta_size() + LIMIT)
        self.buffer = self.share(LIMIT)
        self.data = torch.empty(LIMIT, dtype=torch.uint8, device="cuda")
        self.own = self.ops.init_custom_ar(self.meta, self.data, rank, True)
        self.ops.register_buffer(self.own, self.buffer)

    def share(self, size):
        pointer, handle = self.ops.allocate_shared_buffer_and_handle(size)
        handles = [None] * self.n
        dist.all_gather_object(handles, handle)
        return [pointer if i == self.rank else self.ops.open_mem_handle(h)
                for i, h in enumerate(handles)]

    def reduce(self, x, out, registered):
        self.ops.all_reduce(self.own, x, out, 0 if registered else self.buffer[self.rank],
                            0 if registered else LIMIT)

    def register(self):
        mine = self.ops.get_graph_buffer_ipc_meta(self.own)
        every = [None] * self.n
        dist.all_gather_object(every, tuple(list(x) for x in mine))
        self.ops.register_graph_buffers(self.own, [x[0] for x in every], [x[1] for x in every])


def chain_us(ranks, x, out, reduces, repeat):
    """Microseconds of a link of the chain, of all ranks and repeats."""
    small = torch.zeros(8192, device="cuda")
    one = torch.zeros(8, device="cuda", dtype=torch.bfloat16)
    end = torch.empty_like(one)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(LINKS):
            small.add_(1)
            if reduces:
                ranks.reduce(x, out, True)
    if reduces:
        ranks.register()
    mine = []
    for _ in range(repeat + 3):
        begin, finish = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(400_000)      # the host gets ahead
        ranks.reduce(one, end, False)   # a barrier
        begin.record()
        graph.replay()
        finish.record()
        torch.cuda.synchronize()
        mine.append(begin.elapsed_time(finish) * 1e3 / LINKS)
    every = [None] * ranks.n
    dist.all_gather_object(every, mine[3:])
    return every


def measure(ranks, bytes_, alone, repeat):
    """Sorted ns that an all-reduce adds, and whether its sums are right."""
    x = torch.randn(bytes_ // 2, device="cuda").bfloat16()
    out = torch.empty_like(x)
    every = chain_us(ranks, x, out, True, repeat)
    parts = [None] * ranks.n
    dist.all_gather_object(parts, x[:4096].float().cpu())
    right = torch.allclose(out[:4096].float().cpu(), sum(parts), rtol=0.02, atol=0.05)
    return sorted(1e3 * (max(us) - alone) for us in zip(*every)), right


def percentile(x, p):
    at = (len(x) - 1) * p / 100
    low = int(at)
    return x[low] + (at - low) * (x[min(low + 1, len(x) - 1)] - x[low])


def rank_main(rank, args, library):
    torch.cuda.set_device(rank)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(args.port))
    dist.init_process_group("gloo", rank=rank, world_size=args.tp)
    torch.ops.load_library(library)
    ranks = Ranks(rank, args.tp)
    if not rank:
        print(f"# gpu {torch.cuda.get_device_name()}  ranks {args.tp}  vllm {args.version}  "
              f"measured {datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d}", flush=True)
        print(COLUMNS)
    alone = chain_us(ranks, None, None, False, args.repeat)
    alone = percentile(sorted(max(us) for us in zip(*alone)), 50)
    for size in sizes():
        ns, right = measure(ranks, size, alone, args.repeat)
        if not right:
            sys.exit(f"vllm_collectives.py: wrong sums of {size} bytes")
        if not rank:
            print(f"allreduce bf16 {args.tp} 1 graph {size} {args.repeat} "
                  f"{percentile(ns, 10):.0f} {percentile(ns, 50):.0f} {percentile(ns, 90):.0f} "
                  "vllm-custom", flush=True)
    dist.barrier()
    dist.destroy_process_group()


def main():
    args = parse_args()
    print("# attnreplay collectives 1", flush=True)
    mp.spawn(rank_main, (args, find_library(args)), nprocs=args.tp)
    for line in open(args.nccl, encoding="utf-8") if args.nccl else ():
        op, _, _, _, mode, size, *_ = line.split() + [""] * 6
        if line.startswith("# gpu"):
            print("# larger ones, and all-gathers: " + line[2:], end="")
        elif op == "allgather" or (op, mode) == ("allreduce", "graph") and int(size) >= LIMIT:
            print(line, end="")


if __name__ == "__main__":
    main()

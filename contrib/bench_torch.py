#!/usr/bin/env python3
"""Measure PyTorch's attention on the shapes that attnreplay bench measured.

Reads the JSON lines of 'attnreplay bench attention --json FILE' and writes lines of the same kind
with a member 'impl': scaled_dot_product_attention through cuDNN and through FlashAttention for
dense prefill and decode, flex_attention for tables and block-sparse lists, over the same random
blocks.  Where a chunk is its whole context attention is causal; elsewhere every row sees every
key, which PyTorch has a kernel for, and work is counted accordingly.

Times are medians between CUDA events over inputs that take turns and are larger than the L2
cache.  A shape that a backend refuses gets a row without a time and with a member 'error'.
"""
import argparse
import contextlib
import json
import statistics
import sys
import time
import warnings

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

WARM = 3
L2_TIMES = 4
BLOCK = 128
CEILING = 8192
AHEAD_CYCLES = 40_000_000       # what the GPU waits while the host runs ahead of it
BACKENDS = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}
SHAPE = ("what", "batch", "chunk", "context", "q_heads", "kv_heads", "head_dim", "density")


def parse_args():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--rows", required=True, metavar="FILE", help="JSON lines of attnreplay bench")
    p.add_argument("--json", metavar="FILE", help="write there instead of standard output")
    p.add_argument("--repeat", type=int, default=30, metavar="N", help="timed calls (default: 30)")
    p.add_argument("--flex", type=float, default=0, metavar="SECONDS",
                   help="measure flex_attention too, which compiles for each shape; begin no "
                        "shape after SECONDS (default: 0, none)")
    p.add_argument("--device", type=int, default=0, metavar="N", help="number of the GPU")
    return p.parse_args()


def read_rows(path):
    """The distinct shapes, in order."""
    seen = {}
    with open(path, encoding="utf-8") as f:
        for line in f:
            row = json.loads(line)
            if row["what"] in ("dense", "decode", "table", "blocksparse"):
                seen.setdefault(tuple(row[k] for k in SHAPE), row)
    return list(seen.values())


# ---- times ----

def n_sets(input_bytes):
    l2 = torch.cuda.get_device_properties(torch.cuda.current_device()).L2_cache_size
    return min(max(2, -(-L2_TIMES * l2 // input_bytes)), 64)


def measure(call, n_set, repeat):
    """Median microseconds of call(set)."""
    for i in range(WARM):
        call(i % n_set)
    torch.cuda.synchronize()
    marks = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True))
             for _ in range(repeat)]
    if hasattr(torch.cuda, "_sleep"):
        torch.cuda._sleep(AHEAD_CYCLES)
    for i, (start, end) in enumerate(marks):
        start.record()
        call((WARM + i) % n_set)
        end.record()
    torch.cuda.synchronize()
    return statistics.median(start.elapsed_time(end) for start, end in marks) * 1e3


def random_sets(n_set, *shape):
    return [torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in range(n_set)]


# ---- one shape ----

class Inputs:
    """Queries, keys and values of a row, as sets."""

    def __init__(self, row):
        b, hq, hkv, d = row["batch"], row["q_heads"], row["kv_heads"], row["head_dim"]
        self.n = n_sets(2 * b * d * (hq * row["chunk"] + 2 * hkv * row["context"]))
        self.q = random_sets(self.n, b, hq, row["chunk"], d)
        self.k = random_sets(self.n, b, hkv, row["context"], d)
        self.v = random_sets(self.n, b, hkv, row["context"], d)

    def expanded(self, group):
        """Keys and values repeated for every query head, for backends without grouped heads."""
        return ([k.repeat_interleave(group, 1) for k in self.k],
                [v.repeat_interleave(group, 1) for v in self.v])


def sdpa(row, inputs, backend, repeat):
    """Median time, and how grouped heads were handled."""
    causal = row["chunk"] == row["context"]
    group = row["q_heads"] // row["kv_heads"]

    def run(k, v, **more):
        with sdpa_kernel(backend):
            return measure(lambda i: F.scaled_dot_product_attention(
                inputs.q[i], k[i], v[i], is_causal=causal, **more), inputs.n, repeat)

    try:
        return run(inputs.k, inputs.v, enable_gqa=group > 1), "native"
    except (RuntimeError, TypeError):
        if row["what"] == "decode" or group == 1:
            raise
    return run(*inputs.expanded(group)), "expanded"


def dense_pairs(row):
    """(head, row, key) that are computed: a triangle where attention is causal."""
    rows, keys = row["chunk"], row["context"]
    seen = rows * (rows + 1) // 2 if rows == keys and rows > 1 else rows * keys
    return row["batch"] * row["q_heads"] * seen


# ---- the same random blocks ----

def signed(x):
    return x - (1 << 64) if x >> 63 else x


def shifted(x, n):
    """x >> n of 64 bits without sign."""
    return (x >> n) & ((1 << (64 - n)) - 1)


def mix(x):
    """rng_mix() of attnreplay, on 64-bit integers that wrap."""
    x = x + signed(0x9e3779b97f4a7c15)
    x = (x ^ shifted(x, 30)) * signed(0xbf58476d1ce4e5b9)
    x = (x ^ shifted(x, 27)) * signed(0x94d049bb133111eb)
    return x ^ shifted(x, 31)


def draw(seed, lists, blocks):
    """bench_kept() of attnreplay keeps a block where this is below density * 2^53."""
    return shifted(mix(mix(mix(seed) + lists) + blocks), 11)


def block_mask(row):
    """BlockMask over the lists of a row."""
    from torch.nn.attention.flex_attention import BlockMask
    past, n_kv = (row["context"] - row["chunk"]) // BLOCK, row["context"] // BLOCK
    batch, heads, n_q = row["batch"], row["q_heads"], n_kv - past
    if row["context"] % BLOCK or row["chunk"] % BLOCK:
        raise RuntimeError(f"chunk and context must be multiples of {BLOCK}")

    def count(n):
        return torch.arange(n, device="cuda", dtype=torch.int64)

    b, h = count(batch).view(-1, 1, 1, 1), count(heads).view(1, -1, 1, 1)
    i = count(n_q).view(1, 1, -1, 1)
    blocks, own = count(n_kv).view(1, 1, 1, -1), past + i
    if row["what"] == "table":
        lists = b * row["kv_heads"] + h // (heads // row["kv_heads"])
        always = blocks >= past
    else:
        lists = (b * n_q + i) * heads + h
        always = blocks >= own
    seed = torch.tensor(row["seed"], device="cuda", dtype=torch.int64)
    kept = draw(seed, lists, blocks).double() * 2.0 ** -53 < row["density"]
    full = ((kept | always) & (blocks < own)).expand(batch, heads, n_q, n_kv)
    edge = (blocks == own).expand(batch, heads, n_q, n_kv)

    def lists_of(mask):
        order = torch.argsort((~mask).to(torch.int8), dim=-1, stable=True)
        return mask.sum(-1).to(torch.int32), order.to(torch.int32).contiguous()

    offset = row["context"] - row["chunk"]
    return BlockMask.from_kv_blocks(
        *lists_of(edge), *lists_of(full), BLOCK_SIZE=BLOCK,
        mask_mod=lambda b, h, q, kv: q + offset >= kv,
        seq_lengths=(row["chunk"], row["context"]))


def flex(row, inputs, repeat):
    from torch.nn.attention.flex_attention import flex_attention
    torch.compiler.reset()
    call = torch.compile(flex_attention, dynamic=False)
    mask = block_mask(row)
    gqa = row["q_heads"] > row["kv_heads"]
    return measure(lambda i: call(inputs.q[i], inputs.k[i], inputs.v[i], block_mask=mask,
                                  enable_gqa=gqa), inputs.n, repeat), "native"


# ---- rows ----

class Sink:
    def __init__(self, f, repeat):
        self.f, self.repeat = f, repeat
        self.gpu = torch.cuda.get_device_name()

    def put(self, impl, row, us=None, flops=None, size=None, **more):
        line = {"impl": impl, "version": torch.__version__}
        line.update((k, row.get(k)) for k in SHAPE)
        line.update(flops=flops, bytes=size, us=us, event_us=us,
                    tflops=flops / us * 1e-6 if us and flops else None,
                    tbs=size / us * 1e-6 if us and size else None,
                    clock="events", repeat=self.repeat, seed=row.get("seed"), gpu=self.gpu)
        line.update(more)
        print(json.dumps(line), file=self.f, flush=True)

    def attempt(self, impl, row, make, flops, size=None):
        """A row of what make() measures, or of why it does not."""
        try:
            us, heads = make()
            self.put(impl, row, us, flops, size, gqa=heads)
        except Exception as e:      # each backend refuses in its own way
            text = str(e).strip() or type(e).__name__
            self.put(impl, row, flops=flops, size=size, error=text.splitlines()[0][:200])


def ceilings(sink):
    n = CEILING
    count = n_sets(2 * 2 * n * n)
    a, b = random_sets(count, n, n), random_sets(count, n, n)
    out = torch.empty_like(a[0])
    us = measure(lambda i: torch.mm(a[i], b[i].t(), out=out), count, sink.repeat)
    sink.put("torch", {"what": "gemm"}, us, 2 * n ** 3)
    a, b = random_sets(2, 2 * n, 2 * n), random_sets(2, 2 * n, 2 * n)
    us = measure(lambda i: b[i].copy_(a[i]), 2, sink.repeat)
    sink.put("torch", {"what": "copy"}, us, None, 2 * 2 * (2 * n) ** 2)


def run_sdpa(row, sink):
    flops = 4 * row["head_dim"] * dense_pairs(row)
    size = None
    if row["what"] == "decode":
        size = 2 * 2 * row["batch"] * row["context"] * row["kv_heads"] * row["head_dim"]
    inputs = Inputs(row)
    for impl, backend in BACKENDS.items():
        sink.attempt(impl, row, lambda b=backend: sdpa(row, inputs, b, sink.repeat), flops, size)


def run_flex(row, sink, deadline):
    if time.monotonic() > deadline:
        sink.put("flex", row, flops=row["flops"], error="no time left")
        return
    sink.attempt("flex", row, lambda: flex(row, Inputs(row), sink.repeat), row["flops"])


def main():
    args = parse_args()
    rows = read_rows(args.rows)
    if not torch.cuda.is_available():
        sys.exit("bench_torch: no usable GPU")
    warnings.simplefilter("ignore")
    torch.cuda.set_device(args.device)
    torch.manual_seed(1)
    with contextlib.ExitStack() as stack:
        f = stack.enter_context(open(args.json, "w", encoding="utf-8")) if args.json else sys.stdout
        stack.enter_context(torch.no_grad())
        sink = Sink(f, args.repeat)
        ceilings(sink)
        for row in rows:
            if row["what"] in ("dense", "decode"):
                torch.cuda.empty_cache()
                run_sdpa(row, sink)
        deadline = time.monotonic() + args.flex
        # the shapes that matter most first, in case time runs out
        lists = [r for r in rows if r["what"] in ("table", "blocksparse")]
        for row in sorted(lists, key=lambda r: (r["chunk"] != 1024, r["context"] < 65536)):
            if args.flex > 0:
                torch.cuda.empty_cache()
                run_flex(row, sink, deadline)


if __name__ == "__main__":
    main()

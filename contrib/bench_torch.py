#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measure attnreplay's attention and PyTorch's on the same shapes, in turns.

The clock of a GPU follows its power and heat, so measurements a minute apart do not compare.  Here
both programs measure a shape right after each other, round by round, and every other round runs
backwards.  Figures of the same round compare.  Both programs stay alive during the run.
'attnreplay bench attention --cases -' reads a case when its turn comes.  PyTorch holds no GPU
memory between its turns.

For dense prefill and decode, PyTorch runs scaled_dot_product_attention through cuDNN and through
FlashAttention.  For tables and block-sparse lists it runs flex_attention over the same blocks,
random ones or those of a file.  When a chunk is its whole context, dense attention is causal.
Otherwise every row attends to every key: PyTorch has a kernel for that, and attnreplay calls it
'past'.  The work is counted accordingly.  FlashAttention 3 and 4 are causal for every chunk.
FlashAttention 4 also runs over the same blocks, as its block-sparse tensors.  FlashInfer runs
decodes, from pages of 16 tokens, and the same blocks; where lists differ among the heads of a
group, it gets expanded heads.

Times are medians between CUDA events, after as many warm-ups as attnreplay's.  Launches take turns
over inputs that together are larger than the L2 cache.  A shape that a backend refuses gets a row
with a member 'error' and no time.
"""
import argparse
import contextlib
import functools
import importlib.machinery
import importlib.metadata
import importlib.util
import itertools
import json
import pathlib
import statistics
import subprocess
import sys
import time
import warnings
from typing import Callable, NamedTuple, Optional

from later import Later

torch, F, attention = map(Later, ("torch", "torch.nn.functional", "torch.nn.attention"))

TOP = pathlib.Path(__file__).resolve().parent.parent   # samples are below
WARM, WARM_DECODE = 3, 20     # as in src/bench/bench_device.c
L2_TIMES = 4
BLOCK = 128
PAGE = 16
WORKSPACE = 256 << 20           # bytes, of FlashInfer's partial results
CEILING = 8192
AHEAD_CYCLES = 40_000_000       # time the GPU waits while the host enqueues work
BACKENDS = {"cudnn": "CUDNN_ATTENTION", "flash": "FLASH_ATTENTION"}
SHAPE = ("what", "batch", "chunk", "context", "q_heads", "kv_heads", "head_dim", "density",
         "lists")

WHOLE = ("dense", "past", "decode")
LISTED = ("table", "blocksparse")
# The last row of a case that has several.
LAST = {"select": "metadata", "copy": "copy-attend", "gather": "gather-attend"}


def parse_args():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--cases", required=True, metavar="FILE",
                   help="lines of WHAT BATCH CHUNK CONTEXT [DENSITY or LISTS], lists separated by "
                        "commas")
    p.add_argument("--ours", required=True, metavar="FILE", help="file for the rows of attnreplay")
    p.add_argument("--theirs", required=True, metavar="FILE", help="file for the rows of PyTorch")
    p.add_argument("--rounds", type=int, default=4, metavar="N", help="rounds (default: 4)")
    p.add_argument("--repeat", type=int, default=20, metavar="N",
                   help="timed calls in a turn (default: 20)")
    p.add_argument("--limit", type=float, default=400, metavar="SECONDS",
                   help="begin no shape after SECONDS of measuring (default: 400)")
    p.add_argument("--impl", metavar="LIST",
                   help="kernels to measure: cudnn, flash and flex are PyTorch's, fa3 and fa4 are "
                        "FlashAttention's, and flashinfer (default: all whose package is there)")
    p.add_argument("--before", metavar="PROGRAM",
                   help="another attnreplay, which takes turns as one more implementation")
    p.add_argument("program", nargs="+", metavar="PROGRAM", help="attnreplay, after --")
    return p.parse_args()


def read_shapes(path):
    """The lines of the file: (list of kinds, fields of the shape), in order."""
    out = []
    with open(path, encoding="utf-8") as f:
        for line in f:
            fields = [field.split(",") for field in line.split("#")[0].split()]
            if fields:
                out += [(fields[0], shape) for shape in itertools.product(*fields[1:])]
    return out


# ---- attnreplay ----

class Program:
    """The attnreplay process; it measures a case when it reads its line."""

    def __init__(self, command, repeat):
        self.command = [*command, "bench", "attention", "--cases", "-", "--format", "json",
                        "--repeat", str(repeat)]

    @functools.cached_property
    def child(self):
        """The process.  It measures the ceilings first, so it begins with its first turn."""
        return subprocess.Popen(self.command, bufsize=0, stdin=subprocess.PIPE,
                                stdout=subprocess.PIPE, text=True)

    def measure(self, what, shape):
        """Rows of the case; the first call also returns the rows of the ceilings."""
        rows = self.rows(what, shape)
        if not rows or rows[-1]["what"] != LAST.get(what, what):
            sys.exit(self.child.wait() or f"bench_torch: no rows of {what} {' '.join(shape)}")
        return rows

    def rows(self, what, shape):
        """Rows of the case.  There are fewer if the program ends, as one does that lacks it."""
        rows = []
        with contextlib.suppress(BrokenPipeError):
            self.child.stdin.write(" ".join((what, *shape)) + "\n")
        while not rows or rows[-1]["what"] != LAST.get(what, what):
            line = self.child.stdout.readline()
            if not line:
                break
            rows.append(json.loads(line))
        return rows

    def close(self):
        """The exit status."""
        self.child.stdin.close()
        return self.child.wait()


# ---- times ----

def n_sets(input_bytes):
    l2 = torch.cuda.get_device_properties(torch.cuda.current_device()).L2_cache_size
    return min(max(2, -(-L2_TIMES * l2 // input_bytes)), 64)


def measure(call, n_set, repeat, warm=WARM):
    """Median microseconds of call(set)."""
    for i in range(warm):
        call(i % n_set)
    torch.cuda.synchronize()
    marks = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True))
             for _ in range(repeat)]
    if hasattr(torch.cuda, "_sleep"):
        torch.cuda._sleep(AHEAD_CYCLES)
    for i, (start, end) in enumerate(marks):
        start.record()
        call((warm + i) % n_set)
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
        self.warm = WARM_DECODE if row["what"] == "decode" else WARM

    def expanded(self, group):
        """Keys and values repeated for every query head, for backends without grouped heads."""
        return ([k.repeat_interleave(group, 1) for k in self.k],
                [v.repeat_interleave(group, 1) for v in self.v])


def is_causal(row, impl):
    return row["what"] == "dense" and (IMPLS[impl].causal or row["chunk"] == row["context"])


def by_token(inputs):
    """Queries, keys and values with the heads of a token side by side."""
    return ([x.transpose(1, 2).contiguous() for x in some]
            for some in (inputs.q, inputs.k, inputs.v))


def sdpa(row, inputs, impl, repeat):
    """Median time, and how grouped heads were handled."""
    causal = is_causal(row, impl)
    group = row["q_heads"] // row["kv_heads"]

    def run(k, v, **more):
        with attention.sdpa_kernel(getattr(attention.SDPBackend, BACKENDS[impl])):
            return measure(lambda i: F.scaled_dot_product_attention(
                inputs.q[i], k[i], v[i], is_causal=causal, **more), inputs.n, repeat,
                inputs.warm)

    try:
        return run(inputs.k, inputs.v, enable_gqa=group > 1), "native"
    except (RuntimeError, TypeError):
        if row["what"] == "decode" or group == 1:
            raise
    return run(*inputs.expanded(group)), "expanded"


def fa3(row, inputs, impl, repeat):
    """FlashAttention 3, which chooses splits and the packing of grouped heads as in vLLM."""
    from fa3_fwd_interface import flash_attn_func
    q, k, v = by_token(inputs)
    return measure(lambda i: flash_attn_func(q[i], k[i], v[i], causal=is_causal(row, impl),
                                             num_splits=0), inputs.n, repeat,
                   inputs.warm), "native"


def fa4(row, inputs, impl, repeat):
    """FlashAttention 4, which cannot split keys on Hopper."""
    from flash_attn.cute import flash_attn_func
    q, k, v = by_token(inputs)
    return measure(lambda i: flash_attn_func(q[i], k[i], v[i], causal=is_causal(row, impl)),
                   inputs.n, repeat, inputs.warm), "native"


def workspace():
    return torch.zeros(WORKSPACE, dtype=torch.uint8, device="cuda")


def flashinfer_decode(row, inputs, impl, repeat):
    """FlashInfer's decodes by tensor cores, with one page after the other."""
    from flashinfer import BatchDecodeWithPagedKVCacheWrapper
    batch, heads, dim = row["batch"], row["kv_heads"], row["head_dim"]
    pages = row["context"] // PAGE
    if row["context"] % PAGE:
        raise RuntimeError(f"context must be a multiple of {PAGE}")

    def count(n):
        return torch.arange(n, device="cuda", dtype=torch.int32)

    wrapper = BatchDecodeWithPagedKVCacheWrapper(workspace(), use_tensor_cores=True)
    wrapper.plan(count(batch + 1) * pages, count(batch * pages), count(batch) * 0 + PAGE,
                 row["q_heads"], heads, dim, PAGE, q_data_type=torch.bfloat16)
    q, k, v = by_token(inputs)
    q = [x.view(batch, row["q_heads"], dim) for x in q]
    k, v = ([x.view(batch * pages, PAGE, heads, dim) for x in some] for some in (k, v))
    return measure(lambda i: wrapper.run(q[i], (k[i], v[i])), inputs.n, repeat,
                   inputs.warm), "native"


def dense_pairs(row, impl):
    """Number of computed (head, row, key): causal attention leaves out a triangle of the chunk."""
    rows, keys = row["chunk"], row["context"]
    left_out = rows * (rows - 1) // 2 if is_causal(row, impl) else 0
    return row["batch"] * row["q_heads"] * (rows * keys - left_out)


# ---- the same blocks ----

def signed(x):
    return x - (1 << 64) if x >> 63 else x


def shifted(x, n):
    """Logical shift x >> n of 64 bits."""
    return (x >> n) & ((1 << (64 - n)) - 1)


def mix(x):
    """rng_mix() of attnreplay, on 64-bit integers that wrap."""
    x = x + signed(0x9e3779b97f4a7c15)
    x = (x ^ shifted(x, 30)) * signed(0xbf58476d1ce4e5b9)
    x = (x ^ shifted(x, 27)) * signed(0x94d049bb133111eb)
    return x ^ shifted(x, 31)


def draw(seed, lists, blocks):
    """Random draw of attnreplay: bench_kept() keeps a block if this is below density * 2^53."""
    return shifted(mix(mix(mix(seed) + lists) + blocks), 11)


def given(row, heads, n_q, n_kv):
    """Whether the lists of the row's file keep a block: [1, head, query block, block]."""
    path = pathlib.Path(row["lists"])
    with open(path if path.exists() else TOP / path, encoding="utf-8") as f:
        s = json.load(f)["selections"][0]
    kept = torch.zeros(1, heads, n_q, n_kv, dtype=torch.bool, device="cuda")
    for h, i in itertools.product(range(heads), range(n_q)):
        if row["what"] == "table":
            blocks = s["tables"][h // (s["q_heads"] // s["kv_heads"]) % s["kv_heads"]]
        else:
            blocks = s["blocks"][h % s["q_heads"]][i]
        kept[0, h, i, blocks] = True
    return kept


def kept_blocks(row):
    """Blocks of a row, [batch][heads][blocks of rows][blocks of keys]: those that are kept whole,
    and those of which rows see a triangle."""
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
    if row.get("lists"):
        kept = given(row, heads, n_q, n_kv)
    else:
        seed = torch.tensor(row["seed"], device="cuda", dtype=torch.int64)
        kept = draw(seed, lists, blocks).double() * 2.0 ** -53 < row["density"]
    full = ((kept | always) & (blocks < own)).expand(batch, heads, n_q, n_kv)
    edge = (blocks == own).expand(batch, heads, n_q, n_kv)
    return full, edge


def lists_of(mask):
    """How many blocks a list has, and their numbers, followed by those of the others."""
    order = torch.argsort((~mask).to(torch.int8), dim=-1, stable=True)
    return mask.sum(-1).to(torch.int32), order.to(torch.int32).contiguous()


def block_mask(row):
    """BlockMask over the lists of a row."""
    from torch.nn.attention.flex_attention import BlockMask
    full, edge = kept_blocks(row)
    offset = row["context"] - row["chunk"]
    return BlockMask.from_kv_blocks(
        *lists_of(edge), *lists_of(full), BLOCK_SIZE=BLOCK,
        mask_mod=lambda b, h, q, kv: q + offset >= kv,
        seq_lengths=(row["chunk"], row["context"]))


@functools.lru_cache(maxsize=1)
def compiled(members):
    """flex_attention and the mask of one row, compiled once for all rounds."""
    from torch.nn.attention.flex_attention import flex_attention
    torch.compiler.reset()
    return torch.compile(flex_attention, dynamic=False), block_mask(dict(members))


def flex(row, inputs, repeat):
    call, mask = compiled(tuple((k, row.get(k)) for k in (*SHAPE, "seed")))
    gqa = row["q_heads"] > row["kv_heads"]
    return measure(lambda i: call(inputs.q[i], inputs.k[i], inputs.v[i], block_mask=mask,
                                  enable_gqa=gqa), inputs.n, repeat), "native"


@functools.lru_cache(maxsize=1)
def triangle():
    """The mask of FlashAttention 4 for blocks of which rows see a triangle."""
    import cutlass
    from cutlass import cute
    from flash_attn.cute import utils

    @cute.jit
    def mask(batch, head, row, key, lengths, aux):
        past = utils.scalar_to_ssa(lengths.seqlen_k - lengths.seqlen_q, cutlass.Int32)
        return key <= row + past

    return mask


def fa4_lists(row, inputs, repeat):
    from flash_attn.cute import flash_attn_func
    from flash_attn.cute.block_sparsity import BlockSparseTensorsTorch
    full, edge = kept_blocks(row)
    some = BlockSparseTensorsTorch(*lists_of(edge), *lists_of(full), block_size=(BLOCK, BLOCK))
    q, k, v = by_token(inputs)
    return measure(lambda i: flash_attn_func(q[i], k[i], v[i], mask_mod=triangle(),
                                             block_sparse_tensors=some), inputs.n, repeat), "native"


def flashinfer_lists(row, inputs, repeat):
    """FlashInfer gets the lists of all requests as those of heads of one.  A causal mask cuts the
    triangle, as the block of a row is the last of its list; those of a table are the chunk."""
    from flashinfer import VariableBlockSparseAttentionWrapper
    batch, kv_heads, dim = row["batch"], row["kv_heads"], row["head_dim"]
    group = row["q_heads"] // kv_heads
    full, edge = kept_blocks(row)
    kept, k, v, rows = full | edge, inputs.k, inputs.v, BLOCK
    if row["what"] == "table":
        kept, rows = kept[:, ::group, -1:], row["chunk"]
    elif group > 1:
        kv_heads, (k, v) = row["q_heads"], inputs.expanded(group)
    heads = batch * kv_heads
    sizes = [torch.full((heads, n), size, device="cuda", dtype=torch.int32)
             for n, size in ((row["chunk"] // rows, rows), (row["context"] // BLOCK, BLOCK))]
    wrapper = VariableBlockSparseAttentionWrapper(workspace())
    wrapper.plan(kept.reshape(heads, row["chunk"] // rows, -1), *sizes, batch * row["q_heads"],
                 heads, dim, causal=True, q_data_type=torch.bfloat16)
    q, k, v = ([x.reshape(-1, x.shape[2], dim) for x in some] for some in (inputs.q, k, v))
    return (measure(lambda i: wrapper.run(q[i], k[i], v[i]), inputs.n, repeat),
            "expanded" if kv_heads > row["kv_heads"] else "native")


# ---- their kernels ----

class Impl(NamedTuple):
    """Kernels to measure.  whole measures rows of these kinds, and lists the rows with lists;
    causal: chunks of longer contexts are causal, too."""
    package: str
    module: str
    kinds: tuple
    whole: Optional[Callable]
    lists: Optional[Callable]
    causal: bool


IMPLS = {
    "cudnn": Impl("torch", "torch", WHOLE, sdpa, None, False),
    "flash": Impl("torch", "torch", WHOLE, sdpa, None, False),
    "flex": Impl("torch", "torch", (), None, flex, False),
    "fa3": Impl("fa3-fwd", "fa3_fwd_interface", WHOLE, fa3, None, True),
    "fa4": Impl("flash-attn-4", "flash_attn.cute", WHOLE, fa4, fa4_lists, True),
    "flashinfer": Impl("flashinfer-python", "flashinfer", ("decode",), flashinfer_decode,
                       flashinfer_lists, False),
}


def is_there(impl):
    """Whether its module is installed.  That of a folder is looked for without reading it."""
    names = IMPLS[impl].module.split(".")
    spec = importlib.util.find_spec(names[0])
    for name in names[1:]:
        spec = spec and importlib.machinery.PathFinder.find_spec(
            name, spec.submodule_search_locations)
    return spec is not None


@functools.lru_cache
def version(impl):
    try:
        return importlib.metadata.version(IMPLS[impl].package)
    except importlib.metadata.PackageNotFoundError:     # an unpacked one
        return None


# ---- rows ----

class Sink:
    """Writer of rows with the number of their round; None: a single measurement."""

    def __init__(self, ours, theirs, repeat):
        self.ours, self.theirs, self.repeat = ours, theirs, repeat
        self.gpu = torch.cuda.get_device_name()
        self.round = None

    def put_ours(self, row):
        once = row["what"] in ("gemm", "copy")
        print(json.dumps({**row, "round": None if once else self.round}), file=self.ours,
              flush=True)

    def put_before(self, row):
        if row["what"] not in ("gemm", "copy"):
            print(json.dumps({**row, "impl": "before", "round": self.round}), file=self.theirs,
                  flush=True)

    def put(self, impl, row, us=None, flops=None, size=None, **more):
        line = {"impl": impl, "version": version(impl) if impl in IMPLS else torch.__version__}
        line.update((k, row.get(k)) for k in SHAPE)
        line.update(flops=flops, bytes=size, us=us, event_us=us,
                    tflops=flops / us * 1e-6 if us and flops else None,
                    tbs=size / us * 1e-6 if us and size else None,
                    clock="events", repeat=self.repeat, seed=row.get("seed"), gpu=self.gpu,
                    round=self.round)
        line.update(more)
        print(json.dumps(line), file=self.theirs, flush=True)

    def attempt(self, impl, rows, make, flops, size=None):
        """One row for each of our rows: the measurement of make(), or why it failed."""
        try:
            us, heads = make()
            more = {"us": us, "gqa": heads}
        except Exception as e:      # each backend refuses in its own way
            text = str(e).strip() or type(e).__name__
            more = {"error": text.splitlines()[0][:200]}
        for row in rows:
            self.put(impl, row, flops=flops, size=size, **more)


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


def run_whole(rows, impl, sink):
    """Measure the rows of one problem."""
    row, size = rows[0], None
    if row["what"] == "decode":
        size = 2 * 2 * row["batch"] * row["context"] * row["kv_heads"] * row["head_dim"]
    sink.attempt(impl, rows, lambda: IMPLS[impl].whole(row, Inputs(row), impl, sink.repeat),
                 4 * row["head_dim"] * dense_pairs(row, impl), size)


def run_theirs(rows, impl, sink):
    """Measure our rows of a shape with one implementation, as far as it supports them."""
    problems, lists = {}, IMPLS[impl].lists
    for row in rows:
        if lists and row["what"] in LISTED:
            sink.attempt(impl, [row], lambda: lists(row, Inputs(row), sink.repeat), row["flops"])
        if row["what"] in IMPLS[impl].kinds:
            kind = row["what"] == "decode", is_causal(row, impl)
            problems.setdefault(kind, []).append(row)
    for same in problems.values():
        run_whole(same, impl, sink)
    torch.cuda.empty_cache()


def run_shape(what, shape, args, program, before, sink):
    ours = {}

    def turn_ours(name):
        rows = program.measure(name, shape)
        for row in rows:
            sink.put_ours(row)
        ours[name] = rows[-1]

    def turn_before(name):
        for row in before.rows(name, shape):
            sink.put_before(row)

    turns = [functools.partial(turn_ours, name) for name in what]
    turns += [functools.partial(turn_before, name) for name in what if before]
    turns += [lambda i=impl: run_theirs(ours.values(), i, sink) for impl in args.impl.split(",")]
    for i in range(args.rounds):
        sink.round = i + 1
        for turn in turns[::-1] if i % 2 else turns:
            turn()


def run(args, sink):
    """Run the program and return its exit status."""
    ceilings(sink)
    torch.cuda.empty_cache()
    program = Program(args.program, args.repeat)
    before = Program([args.before], args.repeat) if args.before else None
    shapes = read_shapes(args.cases)
    start, late = time.monotonic(), 0
    for i, (what, shape) in enumerate(shapes):
        now = time.monotonic() - start
        if now > args.limit:
            late = len(shapes) - i
            print(f"bench_torch: no time left for the last {late} shapes", file=sys.stderr)
            break
        print(f"{now:5.0f} s  {i + 1}/{len(shapes)}  {','.join(what)} {' '.join(shape)}",
              flush=True)
        run_shape(what, shape, args, program, before, sink)
    if before:
        before.close()
    return program.close() or bool(late)


def main():
    args = parse_args()
    args.impl = args.impl or ",".join(filter(is_there, IMPLS))
    unknown = set(args.impl.split(",")) - set(IMPLS)
    if unknown:
        sys.exit(f"bench_torch: --impl: unknown {', '.join(unknown)}")
    if not torch.cuda.is_available():
        sys.exit("bench_torch: no usable GPU")
    warnings.simplefilter("ignore")
    torch.manual_seed(1)
    with (open(args.ours, "w", encoding="utf-8") as ours,
          open(args.theirs, "w", encoding="utf-8") as theirs, torch.no_grad()):
        status = run(args, Sink(ours, theirs, args.repeat))
    sys.exit(status)


if __name__ == "__main__":
    main()

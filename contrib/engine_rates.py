#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Rates of vLLM's kernels for backend roofline, from the tables that AIConfigurator measured.

Install the wheel first: pip install aiconfigurator-core==0.12.0

  engine_rates.py fit GPU          print the member "engines" of the file of a GPU
  engine_rates.py steps >FILE      print the times of steps that the fit leaves out

check_engine_rates.sh compares the roofline with these steps.

GPU is one of a100, h100, h200 and l40s.  The tables are of vLLM 0.24, those of the A100 of 0.14.

The steps are prompts of 256, 1024, 2048 and 8192 tokens, and decodes of 1, 8, 32 and 64 requests
of 2048 tokens, of the four models in MODELS on one GPU.  A time is the sum over the operations of
AIConfigurator's own model of the step.  The fit leaves out each table row with a hidden size, with
heads or with experts of these models.

A rate is fitted to rows of a kind of kernel.  It has the least mean of |log(modelled / measured)|.
Tables repeat a kernel on the same operands, which may stay in the L2 cache; the layers of a model
do not.  So the fit also leaves out attention of decodes and experts whose operands may do that.
Norms, RoPE and the append to the KV cache are in no table.  Theirs are from a profile of vLLM 0.24
on an H200, with one rank in four of llama-3.1-8b, as shares of the peak of any GPU.
"""
import argparse
import importlib.util
import json
import logging
import pathlib
import sys

from later import Later

np, pd, optimize = Later("numpy"), Later("pandas"), Later("scipy.optimize")

VERSION = "0.12.0"      # of the wheel
MODELS = {"llama-3.1-8b": "meta-llama/Meta-Llama-3.1-8B",
          "llama-3.1-70b": "meta-llama/Meta-Llama-3.1-70B",
          "qwen3-32b": "Qwen/Qwen3-32B",
          "qwen3-30b-a3b": "Qwen/Qwen3-30B-A3B"}
PROMPTS, DECODES, CONTEXT = (256, 1024, 2048, 8192), (1, 8, 32, 64), 2048
HIDDEN = (2048, 4096, 5120, 8192)               # of MODELS
HEADS = ((32, 4), (32, 8), (64, 8))             # of queries, of keys
EXPERTS = (2048, 768)                           # hidden size, and that of an expert
# Rows prefer some experts: n rows touch as many as n ** DRAWS rows that draw them evenly.  Of 0.85,
# 0.9, 0.95 and 1, this has the least error on the four GPUs together.
DRAWS = 0.9
UNGATED = (6, 22)       # experts a token of Nemotron, which vLLM 0.24 ran with two matrices, not three

# Folder of the tables, version of vLLM, TFLOP/s in bf16, GB/s, bytes of the L2 cache
GPUS = {"a100": ("a100_sxm", "0.14.0", 312, 2039, 40e6),
        "h100": ("h100_sxm", "0.24.0", 989, 3350, 50e6),
        "h200": ("h200_sxm", "0.24.0", 989, 4800, 50e6),
        "l40s": ("l40s", "0.24.0", 362, 864, 96e6)}

# The profile: at 8192 rows, of 4096 channels and 3584 of the MLP, norms and activation take 163.6
# us for 713 MB, RoPE 16.1 us for 46 MB.  The append takes 2.28 ns a row of two heads, which its
# bytes do not explain: 8900 bytes more would.  Alone a norm takes 2.0 us, RoPE 1.5, an append 2.0.
PROFILED = {"norm": {"compute": 1, "memory": 0.94, "fixed_ns": 2000},
            "rope": {"compute": 1, "memory": 0.66, "fixed_ns": 1500},
            "cache": {"compute": 1, "memory": 1, "fixed_ns": 2000, "edge": 8900}}
BF16 = 2


def parse_args():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    sub = p.add_subparsers(dest="command", required=True)
    fit = sub.add_parser("fit", help="print rates for the file of a GPU")
    fit.add_argument("gpu", choices=sorted(GPUS), metavar="GPU")
    sub.add_parser("steps", help="print the steps that the fit leaves out")
    return p.parse_args()


# ---- the steps ----

def print_steps():
    logging.disable(logging.CRITICAL)
    from aiconfigurator_core.sdk.engine import EngineHandle
    bf16 = dict.fromkeys(("gemm_quant_mode", "moe_quant_mode", "kvcache_quant_mode",
                          "fmha_quant_mode"), "bfloat16")

    print("gpu,model,prefill_tokens,decodes,context,ms")
    for gpu, (folder, version, *_) in GPUS.items():
        for model, name in MODELS.items():
            engine = EngineHandle.compile(name, folder, "vllm", backend_version=version, **bf16)
            for n in PROMPTS:
                ops, _ = engine.run_static_per_op(batch_size=1, isl=n, osl=1, mode="static_ctx")
                print(f"{gpu},{model},{n},0,0,{sum(op[1] for op in ops):.4g}")
            for n in DECODES:
                _, ops = engine.run_static_per_op(batch_size=n, isl=CONTEXT, osl=2,
                                                  mode="static_gen")
                print(f"{gpu},{model},0,{n},{CONTEXT},{sum(op[1] for op in ops):.4g}")


# ---- the fit ----

class Peaks:
    """The peaks of a GPU in FLOPs and bytes a ns, and the bytes of its L2 cache."""

    def __init__(self, tflops, gbps, l2):
        self.flops, self.gbps, self.l2 = 1e3 * tflops, gbps, l2

    def fit(self, ns, flops, moved, edge, launches, with_edge, streamed=False):
        """The rates with which max(flops, moved) + fixed is nearest to ns."""
        if streamed:        # operands are too large for the L2 cache, or too small to matter
            use = (moved > 2 * self.l2) | (moved < self.l2 / 16)
            ns, flops, moved, edge = ns[use], flops[use], moved[use], edge[use]

        def modelled(x):
            compute, memory, fixed, more = np.exp(x)
            return np.maximum((flops + (edge * more if with_edge else 0)) / self.flops / compute,
                              moved / self.gbps / memory) + launches * fixed

        def loss(x):
            return np.abs(np.log(modelled(x) / ns)).mean() + 10 * max(0, x[1])

        best = min((optimize.minimize(loss, np.log([compute, 0.8, 5000, more]),
                                      method="Nelder-Mead",
                                      options={"maxiter": 6000, "maxfev": 6000, "fatol": 1e-7})
                    for compute in (0.4, 0.7) for more in (20, 200)), key=lambda r: r.fun)
        compute, memory, fixed, more = np.exp(best.x)
        print(f"{len(ns)} rows, mean error {100 * best.fun:.1f} %", file=sys.stderr)
        rate = {"compute": round(compute, 3), "memory": round(memory, 3), "fixed_ns": round(fixed)}
        return rate | ({"edge": round(more)} if with_edge else {})


class Tables(Peaks):
    """The measured rows of a GPU in bf16."""

    def __init__(self, gpu):
        wheel = pathlib.Path(importlib.util.find_spec("aiconfigurator_core").origin).parent
        folder, self.version, *peaks = GPUS[gpu]
        super().__init__(*peaks)
        self.data = wheel / "systems" / "data" / folder

    def rows(self, family, table, dtype):
        d = pd.read_parquet(self.data / family / "vllm" / self.version / f"{table}_perf.parquet")
        return d[(d[dtype] == "bfloat16") & (d.get("kv_cache_dtype", "bfloat16") == "bfloat16")]


def fit_linear(t):
    d = t.rows("gemm", "gemm", "gemm_dtype")
    d = d[~d.n.isin(HIDDEN) & ~d.k.isin(HIDDEN) & (d.n * d.k >= 1 << 23) & (d.m <= 16384)]
    m, n, k = (d[x].to_numpy(float) for x in ("m", "n", "k"))
    return t.fit(1e6 * d.latency.to_numpy(), 2 * m * n * k, BF16 * (m * k + n * k + m * n),
                 0 * n, 1, with_edge=False)


def attention(t, table):
    d = t.rows("attention", table, "attn_dtype")
    d = d[(d.head_dim == 128) & (d.num_heads >= 8) & (d.get("window_size", 0) == 0)]
    heads = pd.Series(list(zip(d.num_heads, d.num_key_value_heads)), d.index)
    return d[~heads.isin(HEADS)]


def columns(d, *names):
    return [d[x].to_numpy(float) for x in names]


def fit_attend(t):
    d = attention(t, "context_attention")
    d = d[(d.isl >= 128) & (d.batch_size * d.isl <= 32768)]
    b, n, q, kv = columns(d, "batch_size", "isl", "num_heads", "num_key_value_heads")
    return t.fit(1e6 * d.latency.to_numpy(), 4 * 128 * q * b * n * (n + 1) / 2,
                 BF16 * 128 * b * n * (2 * q + 2 * kv), 4 * 128 * q * b * n, 1, with_edge=True)


def fit_decode(t):
    d = attention(t, "generation_attention")
    d = d[(d.step >= 255) & (d.num_heads >= 16) & (d.batch_size <= 512)]
    b, n, q, kv = columns(d, "batch_size", "step", "num_heads", "num_key_value_heads")
    n += 1
    return t.fit(1e6 * d.latency.to_numpy(), 4 * 128 * q * b * n,
                 BF16 * 128 * b * (2 * q + 2 * kv * n), 0 * n, 1, with_edge=False, streamed=True)


def fit_experts(t, norm):
    """A table's row is all that experts do; what phase norm counts of it is taken off."""
    d = t.rows("moe", "moe", "moe_dtype")
    d = d[(d.distribution == "power_law_1.2") & (d.moe_tp_size <= 4) & (d.moe_ep_size == 1) &
          (d.num_tokens <= 16384)]
    d = d[(d.hidden_size != EXPERTS[0]) | (d.inter_size != EXPERTS[1])]
    n, h, f, k, e, tp = columns(d, "num_tokens", "hidden_size", "inter_size", "topk", "num_experts",
                                "moe_tp_size")
    f /= tp
    rows, touched = n * k, e * (1 - (1 - k / e) ** n ** DRAWS)
    matrices = np.where(d.topk.isin(UNGATED) & (t.version == "0.24.0"), 2, 3)
    norms = BF16 * (rows * (2 * h + matrices * f) + n * (k - 1) * h)
    ns = 1e6 * d.latency.to_numpy() - norms / t.gbps / norm["memory"] - 2 * norm["fixed_ns"]
    use = ns > 0
    return t.fit(ns[use], (2 * matrices * rows * h * f)[use],
                 (BF16 * (rows * (2 * h + matrices * f) + touched * matrices * h * f))[use],
                 (2 * matrices * touched * h * f)[use], 2, with_edge=True, streamed=True)


def print_rates(gpu):
    t = Tables(gpu)
    linear = fit_linear(t)
    phases = {"linear": linear, **PROFILED, "attend": fit_attend(t), "decode": fit_decode(t),
              "head": {k: v for k, v in linear.items() if k != "edge"}}
    experts = {"bf16": fit_experts(t, PROFILED["norm"])}
    print_engine(f"AIConfigurator {VERSION}, tables of vLLM {t.version.rsplit('.', 1)[0]}",
                 {"phases": phases, "experts": experts}, {"draws": DRAWS})


def print_engine(source, rates, more={}):
    """Print the member "engines" of a GPU's file.  more: members beside the rates."""
    own = {"about": source + "; norm, rope and cache: a profile of vLLM 0.24 on an H200",
           "launch_ns": 0, "graph_launch_ns": 0} | more
    lines = [f'      "{k}": {json.dumps(v)}' for k, v in own.items()] + \
            [member(name, x) for name, x in rates.items()]
    print('  "engines": {\n    "vllm": {\n' + ",\n".join(lines) + "\n    }\n  }")


def member(name, rates):
    """A member of an engine as text, one line a rate."""
    lines = (f'        "{kind}": {json.dumps(rate)}' for kind, rate in rates.items())
    return f'      "{name}": {{\n' + ",\n".join(lines) + "\n      }"


if __name__ == "__main__":
    args = parse_args()
    if args.command == "steps":
        print_steps()
    else:
        print_rates(args.gpu)

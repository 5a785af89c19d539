#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Rates of vLLM's kernels for backend roofline, from the tables that LLMServingSim publishes.

  llmservingsim_rates.py FOLDER GPU    print the member "engines" of the file of a GPU

FOLDER is profiler/perf of a copy of LLMServingSim; its tables have the layers of models in bf16, as
vLLM 0.19 ran them.  GPU is rtx-4090 or rtx-pro-6000.

engine_rates.py says how a rate is fitted.  Here products are fitted to the tables of all models on
one GPU, as far as their weights do not stay in the L2 cache.
"""
import argparse
import pathlib
import sys

from engine_rates import BF16, PROFILED, Peaks, columns, np, pd, print_engine

# Folder of the tables, TFLOP/s in bf16, GB/s, bytes of the L2 cache
GPUS = {"rtx-4090": ("RTX4090", 165, 1008, 72e6),
        "rtx-pro-6000": ("RTXPRO6000", 500, 1597, 128e6)}
HEAD_DIM = 128
# Hidden size, rows of Q, K and V together and of the MLP, vocabulary; heads of queries and of keys
MODELS = {"meta-llama/Llama-3.1-8B": (4096, 6144, 14336, 128256, 32, 8),
          "Qwen/Qwen3-32B": (5120, 10240, 25600, 151936, 64, 8)}


def parse_args():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("folder", metavar="FOLDER", type=pathlib.Path, help="the tables")
    p.add_argument("gpu", choices=sorted(GPUS), metavar="GPU", help="the GPU")
    return p.parse_args()


class Tables(Peaks):
    def __init__(self, folder, gpu):
        name, *peaks = GPUS[gpu]
        super().__init__(*peaks)
        self.models = [(sizes, folder / name / model / "bf16" / "tp1")
                       for model, sizes in MODELS.items() if (folder / name / model).exists()]
        if not self.models:
            sys.exit(f"llmservingsim_rates: {folder / name}: no tables of {', '.join(MODELS)}")

    def rows(self, table):
        """A table of each model, with columns of the model's sizes."""
        return pd.concat([pd.read_csv(path / f"{table}.csv").assign(
            **dict(zip(("hidden", "qkv", "ffn", "vocab", "q", "kv"), sizes)))
            for sizes, path in self.models], ignore_index=True)


def fit_linear(t):
    parts = []
    for table, rows, shapes in (
            ("dense", "tokens", {
                "qkv_proj": ("qkv", "hidden"), "o_proj": ("hidden", "q"),
                "gate_up_proj": ("ffn", "hidden"), "down_proj": ("hidden", "ffn")}),
            ("per_sequence", "sequences", {"lm_head": ("vocab", "hidden")})):
        d = t.rows(table)
        for layer, (n, k) in shapes.items():
            m, n, k, us = columns(d[d.layer == layer], rows, n, k, "time_us")
            n = n * (2 if layer == "gate_up_proj" else 1)
            k = k * (HEAD_DIM if layer == "o_proj" else 1)
            parts.append((m, n, k, us))
    m, n, k, us = (np.concatenate(x) for x in zip(*parts))
    use = BF16 * n * k > 1.5 * t.l2
    m, n, k, us = m[use], n[use], k[use], us[use]
    return t.fit(1e3 * us, 2 * m * n * k, BF16 * (m * k + n * k + m * n), 0 * n, 1, with_edge=False)


def fit_attend(t):
    d = t.rows("attention")
    d = d[(d.n_decode == 0) & (d.prefill_chunk >= 128)]
    n, past, q, kv, us = columns(d, "prefill_chunk", "kv_prefill", "q", "kv", "time_us")
    return t.fit(1e3 * us, 4 * HEAD_DIM * q * n * (past + (n + 1) / 2),
                 BF16 * HEAD_DIM * (2 * q * n + 2 * kv * (past + n)), 4 * HEAD_DIM * q * n, 1,
                 with_edge=True)


def fit_decode(t):
    d = t.rows("attention")
    d = d[(d.prefill_chunk == 0) & (d.kv_decode >= 128)]
    b, n, q, kv, us = columns(d, "n_decode", "kv_decode", "q", "kv", "time_us")
    return t.fit(1e3 * us, 4 * HEAD_DIM * q * b * n, BF16 * HEAD_DIM * b * (2 * q + 2 * kv * n),
                 0 * n, 1, with_edge=False, streamed=True)


def main():
    a = parse_args()
    t = Tables(a.folder, a.gpu)
    linear = fit_linear(t)
    phases = {"linear": linear, **PROFILED, "attend": fit_attend(t), "decode": fit_decode(t),
              "head": linear}
    print_engine("tables of vLLM 0.19 that LLMServingSim publishes", {"phases": phases})


if __name__ == "__main__":
    main()

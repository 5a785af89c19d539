#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write a file for 'attnreplay run --dense-as-engine': how much longer vLLM's attention takes.

PROF is what 'vllm_steps.py --profile' writes: times of kernels, for steps of some kinds.  DB is a
database of attnreplay with a run of method dense on the same GPU, with a model of the same heads
and the same --tp.  RUN is its number, if there are several such runs.

The run must have iterations of the same kinds: decodes of 1, 8, 32 and 64 requests with prompts of
2000 tokens, and prompts of 256 to 8192 tokens, each alone and in one chunk.  A kind that one of the
two lacks is named on standard error and left out.  The others are listed there with their times.

A factor is the time of vLLM's attention kernels in a layer, divided by the median time of phase
attend or decode.  The number of keys beside it is the mean of the rows of a prompt, or the sum of
all decodes.
"""
import argparse
import json
import os
import pathlib
import sqlite3
import statistics
import sys

from vllm_steps import ATTENTION, DECODE_CONTEXT, DECODES, PREFILLS, attention

LONGER = 1.1                # decodes of DECODE_CONTEXT to this many times as many keys are alike
LIMITS = (0.1, 100)         # of factors that attnreplay takes


def die(message):
    sys.exit("dense_as_engine: " + message)


def say(message):
    print("dense_as_engine: " + message, file=sys.stderr)


def parse_args():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("prof", metavar="PROF", help="kernel times of vllm_steps.py --profile")
    p.add_argument("db", metavar="DB", help="database with a run of method dense")
    p.add_argument("run", metavar="RUN", type=int, nargs="?", help="number of the run")
    return p.parse_args()


# ---- the engine ----

def read_profile(path):
    """{kind: (ns in a layer, layers)}"""
    try:
        with open(path, encoding="utf-8") as f:
            kinds = {kind: attention(step["kernels"]) for kind, step in json.load(f).items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as e:
        die("%s: no kernel times of vllm_steps.py --profile: %r" % (path, e))
    for kind, found in kinds.items():
        if not found:
            die("%s: %s has no attention kernels that this script knows (%s)" % (
                path, kind, ATTENTION.pattern))
    return kinds


# ---- attnreplay ----

def open_run(path, number):
    """The database and the run's (number, layers run, model, its layers, tp, GPU)."""
    db = sqlite3.connect(pathlib.Path(path).absolute().as_uri() + "?mode=ro", uri=True)
    runs = db.execute(
        "SELECT run_id, layers_run, model.name, n_layers, tp, gpu.name FROM run"
        " JOIN method USING(method_id) JOIN model USING(model_id) JOIN gpu USING(gpu_id)"
        " WHERE is_dense AND status = 'done' AND clock = 'cupti' AND run_id = ifnull(?, run_id)"
        " ORDER BY run_id", (number,)).fetchall()
    if not runs:
        die("%s: %s of method dense with clock cupti" % (
            path, "no finished run" if number is None else "run %d is no finished run" % number))
    if len(runs) > 1:
        die("%s: name one of the runs %s" % (path, ", ".join(str(r[0]) for r in runs)))
    return db, runs[0]


def measured(db, run, phase, keys, where, values):
    """Median time of the phase in ns in the iterations, and their mean number of keys."""
    rows = db.execute(
        "SELECT gpu_ns, " + keys + " FROM iteration"
        " JOIN iteration_phase USING(run_id, iter_no) JOIN phase USING(phase_id)"
        " WHERE run_id = ? AND phase.name = ? AND " + where, (run, phase) + values).fetchall()
    if not rows:
        return None
    return statistics.median(r[0] for r in rows), statistics.mean(r[1] for r in rows)


def decodes(db, run, n):
    return measured(db, run, "decode", "decode_context",
                    "prefill_tokens = 0 AND decode_tokens = ? AND decode_context BETWEEN ? AND ?",
                    (n, n * DECODE_CONTEXT, n * DECODE_CONTEXT * LONGER))


def prompt(db, run, n):
    return measured(db, run, "attend", "CAST(prefill_pairs AS REAL) / prefill_tokens",
                    "decode_tokens = 0 AND batch_size = 1 AND prefill_tokens = ?"
                    " AND prefill_pairs = ?", (n, n * (n + 1) // 2))


# ---- both ----

def compare(kinds, a, db, run, of):
    """(keys, factor) of each kind that both have.  kinds: {name: number}; of: decodes, prompt."""
    number, layers_run, _, n_layers, _, _ = run
    points = []
    for kind, n in kinds.items():
        ours = of(db, number, n)
        engine = a.kinds.get(kind)
        if not ours or not engine:
            say("%s is left out: %s has no such step" % (
                kind, a.prof if not engine else "run %d of %s" % (number, a.db)))
            continue
        if engine[1] != n_layers:
            die("%s: %s has attention in %d layers, the model of run %d has %d; profile the same "
                "model" % (a.prof, kind, engine[1], number, n_layers))
        ns, keys = ours[0] / layers_run, ours[1]
        factor = engine[0] / ns
        say("%s: %.1f keys, in a layer %.2f us against %.2f us: %.4f" % (
            kind, keys, engine[0] / 1e3, ns / 1e3, factor))
        if not LIMITS[0] <= factor <= LIMITS[1]:
            die("%s: a factor is from %g to %g" % ((kind,) + LIMITS))
        points.append((keys, factor))
    if not points:
        die("no kind of %s that both have" % ", ".join(kinds))
    return points


def main():
    a = parse_args()
    a.kinds = read_profile(a.prof)
    try:
        db, run = open_run(a.db, a.run)
        prefill = compare({"prefill%d" % n: n for n in PREFILLS}, a, db, run, prompt)
        decode = compare({"decode%d" % n: n for n in DECODES}, a, db, run, decodes)
    except sqlite3.Error as e:
        die("%s: %s" % (a.db, e))
    about = "%s against %s:%d, %s with tp %d on %s" % (
        os.path.basename(a.prof), os.path.basename(a.db), run[0], run[2], run[4], run[5])
    lists = ["[" + ", ".join("[%.1f, %.4f]" % p for p in points) + "]"
             for points in (prefill, decode)]
    print('{"about": %s,\n "prefill": %s,\n "decode": %s}' % (json.dumps(about), *lists))


if __name__ == "__main__":
    main()

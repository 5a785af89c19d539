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

Of chunks beside decodes PROF alone tells the time: the longer of a sum, of factors of the times of
the chunk alone and of the decodes alone, and of the walk of the longest decode over its keys.
fill_rows is the least number of rows, of the chunks that ran and their multiples, that explains
which chunks leave room to split these keys.
"""
import argparse
import collections
import json
import math
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

def in_layer(path, kind, step):
    """(ns in a layer, layers) of attention in a step."""
    found = attention(step["kernels"])
    if not found:
        die("%s: %s has no attention kernels that this script knows (%s)" % (
            path, kind, ATTENTION.pattern))
    return found


def read_profile(path):
    """{kind: (ns in a layer, layers)}, the launches with chunks and decodes, the backend's name"""
    try:
        with open(path, encoding="utf-8") as f:
            prof = json.load(f)
        backend = prof.pop("engine", {}).get("attention")
        launches = read_launches(path, prof.pop("mixed", []))
        return {kind: in_layer(path, kind, step) for kind, step in prof.items()}, launches, backend
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as e:
        die("%s: no kernel times of vllm_steps.py --profile: %r" % (path, e))


# ---- launches with chunks and decodes ----

# ns in a layer: of the chunk alone, of the decodes alone, of both, and of all kernels of the step.
Launch = collections.namedtuple("Launch", "rows longest prefill decode ns step")
Fit = collections.namedtuple("Fit", "prefill decode walk_us fill_rows")


def read_launches(path, steps):
    launches, alone, decodes = [], {}, 0
    for step in steps:
        chunk, context, keys = (step[k] for k in ("chunk", "context", "decodes"))
        ns, layers = in_layer(path, "chunk %d on %d" % (chunk, context), step)
        if not chunk:
            decodes = ns
        elif not keys:
            alone[chunk, context] = ns
        elif (chunk, context) in alone:
            launches.append(Launch(chunk, max(keys), alone[chunk, context], decodes, ns,
                                   step["gpu_busy_ms"] * 1e6 / layers))
    return launches


def work_ns(fit, x):
    return fit.prefill * x.prefill + fit.decode * x.decode


def walk_ns(fit, x):
    """us for 1000 keys are ns for one.  Keys are split as far as a chunk leaves room."""
    return fit.walk_us * x.longest / max(fit.fill_rows // x.rows, 1)


def launch_error(fit, x):
    """As a share of the step's time: of this the user sees it."""
    return (max(work_ns(fit, x), walk_ns(fit, x)) - x.ns) / x.step


def fit_work(launches):
    """Factors >= 0 of prefill and decode, by least squares of the error."""
    pp, pd, dd, p1, d1 = (sum(f(x) / x.step ** 2 for x in launches) for f in (
        lambda x: x.prefill ** 2, lambda x: x.prefill * x.decode, lambda x: x.decode ** 2,
        lambda x: x.prefill * x.ns, lambda x: x.decode * x.ns))
    det = pp * dd - pd * pd
    if det > 1e-9 * pp * dd:
        prefill, decode = (p1 * dd - d1 * pd) / det, (d1 * pp - p1 * pd) / det
        if prefill >= 0 and decode >= 0:
            return {"prefill": prefill, "decode": decode}
    if p1 * p1 * dd >= d1 * d1 * pp:
        return {"prefill": p1 / pp, "decode": 0.0}
    return {"prefill": 0.0, "decode": d1 / dd}


def fit_walk(fit, launches):
    walk = [(walk_ns(fit._replace(walk_us=1), x), x) for x in launches]
    kk = sum((ns / x.step) ** 2 for ns, x in walk)
    return sum(ns * x.ns / x.step ** 2 for ns, x in walk) / kk if kk else 0.0


def fit_sides(fit, launches):
    """Fit those that walk and those that work apart, until none changes sides."""
    sides = None
    for _ in range(100):
        before, sides = sides, [walk_ns(fit, x) > work_ns(fit, x) for x in launches]
        if sides == before or all(sides):
            break
        fit = fit._replace(**fit_work([x for x, walks in zip(launches, sides) if not walks]))
        fit = fit._replace(walk_us=fit_walk(fit, [x for x, walks in zip(launches, sides) if walks]))
    return fit


def fit_launches(launches):
    """The best of some starts, for each number of rows at which a chunk's keys may be whole."""
    best = (math.inf,)
    rows = sorted({x.rows for x in launches})
    for fill in [0] + sorted({k * n for n in rows for k in (1, 2, 3, 4) if k * n <= rows[-1]}):
        for start in (5, 10, 20, 40):
            fit = fit_sides(Fit(1.0, 1.0, float(start), fill), launches)
            best = min(best, (sum(launch_error(fit, x) ** 2 for x in launches), fit))
    return best[1]


def mixed_text(launches):
    """The member "mixed" of the file; its errors are listed."""
    fit = fit_launches(launches)
    errors = sorted(abs(launch_error(fit, x)) for x in launches)
    walks = sum(walk_ns(fit, x) > work_ns(fit, x) for x in launches)
    say("chunks beside decodes: %.3f x prefill + %.3f x decode, or %.2f us for 1000 keys of the "
        "longest decode, which are split with chunks of less than %d rows; it decides in %d of %d "
        "launches" % (fit.prefill, fit.decode, fit.walk_us, fit.fill_rows / 2 + 1, walks,
                      len(launches)))
    say("... error in percent of the step: median %.1f, p95 %.1f" % (
        100 * statistics.median(errors), 100 * errors[int(0.95 * (len(errors) - 1))]))
    return '{"prefill": %.4f, "decode": %.4f, "walk_us": %.3f, "fill_rows": %d}' % fit


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
    a.kinds, launches, backend = read_profile(a.prof)
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
    members = [("about", json.dumps(about)), ("prefill", lists[0]), ("decode", lists[1])]
    if backend:
        members.insert(1, ("attention", json.dumps(backend)))
    if launches:
        members.append(("mixed", mixed_text(launches)))
    print("{" + ",\n ".join('"%s": %s' % m for m in members) + "}")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Try the intervals, comparisons and verdicts of the program against known truth.

Each trial makes requests by a known process, replays them, and looks at what the program says:

  coverage   the share of intervals that hold the truth, which is the median of many more runs; the
             share of runs without an interval; the median width over that of 95 % of these runs
  changed    pairs of samples of one process: how often diff lists a percentile as changed
  power      one sample served at two speeds, TTFT p50 12.5 % apart: how often diff finds it
  host       repeats of one configuration: how often diff lists anything, or crosses a limit of 5 %
  steady     a load beyond the capacity, and one below it: what the report says
  windows    windows of the traces that are named: the truth is the median of the other windows

Prints a table of Markdown for each.  Trials run side by side, two on each processor.

The program is that of contrib/program, or ATTNREPLAY.
"""
import argparse
import collections
import concurrent.futures
import json
import math
import os
import pathlib
import random
import statistics
import subprocess
import tempfile

PROGRAM = os.environ.get("ATTNREPLAY") or str(pathlib.Path(__file__).resolve().parent / "program")
PLACES = (50, 90, 99)
COLUMNS = ["--columns", "arrival=t,prompt=p,output=o"]
# One server, 100 ms a request in the mean: a token takes 1 ms, a prompt has 100 tokens.
SERVER = ["--cost-fixed", "0", "--cost-per-token", "1ms", "--max-num-seqs", "1",
          "--max-num-batched-tokens", "100000", "--no-enable-prefix-caching",
          "--no-async-scheduling", "--engine-defaults", "none", "--host", "none"]
ENGINE = ["--cost-fixed", "6ms", "--cost-per-token", "40us"]


# ---- processes: [(arrival in s, prompt, output)] of n requests ----

def exponential(rng):
    return rng.expovariate(0.01)


def fixed(rng):
    return 100


def poisson(load, length=exponential):
    def make(rng, n):
        t = 0
        for _ in range(n):
            t += rng.expovariate(load * 10)
            yield t, length(rng), 1
    return make


def gamma(load, cv):
    def make(rng, n):
        t = 0
        for _ in range(n):
            t += rng.gammavariate(cv ** -2, cv ** 2 / (load * 10))
            yield t, exponential(rng), 1
    return make


def switching(load, every):
    """Rates of 1.6 and 0.4 times the mean, each for a time of `every` services in the mean."""
    def make(rng, n):
        t, high = 0, rng.random() < 0.5
        until = rng.expovariate(10 / every)
        for _ in range(n):
            gap = rng.expovariate(load * 10 * (1.6 if high else 0.4))
            while t + gap > until:
                t, high = until, not high
                until += rng.expovariate(10 / every)
                gap = rng.expovariate(load * 10 * (1.6 if high else 0.4))
            t += gap
            yield t, exponential(rng), 1
    return make


def autoregressive(load, rho):
    """Logarithms of lengths follow each other with correlation rho."""
    def make(rng, n):
        t, z = 0, rng.gauss(0, 1)
        for _ in range(n):
            t += rng.expovariate(load * 10)
            z = rho * z + math.sqrt(1 - rho * rho) * rng.gauss(0, 1)
            yield t, 100 * math.exp(0.8 * z - 0.32), 1
    return make


def served(rate):
    """Lognormal lengths: prompts of 3000 tokens and outputs of 60 in the mean."""
    def length(rng, mean):
        return mean * math.exp(rng.gauss(0, 1) - 0.5)

    def make(rng, n):
        t = 0
        for _ in range(n):
            t += rng.expovariate(rate)
            yield t, length(rng, 3000), length(rng, 60)
    return make


PROCESSES = {
    "M/M/1, load 0.5": (poisson(0.5), SERVER, (100, 1000)),
    "M/M/1, load 0.8": (poisson(0.8), SERVER, (100, 1000)),
    "M/M/1, load 0.9": (poisson(0.9), SERVER, (100, 1000)),
    "gamma gaps, cv 3, load 0.7": (gamma(0.7, 3), SERVER, (100, 1000)),
    "rate switches every 50 services, load 0.6": (switching(0.6, 50), SERVER, (300, 1000)),
    "rate switches every 300 services, load 0.6": (switching(0.6, 300), SERVER, (300, 1000)),
    "lengths AR(1) 0.8, load 0.7": (autoregressive(0.7, 0.8), SERVER, (300, 1000)),
    "engine, 5 a second": (served(5), ENGINE, (200, 1000)),
    "engine, 6.5 a second": (served(6.5), ENGINE, (200, 1000)),
}


# ---- runs ----

def call(*words):
    done = subprocess.run([PROGRAM, *map(str, words)], capture_output=True, text=True)
    if done.returncode not in (0, 1, 5):
        raise SystemExit(" ".join(map(str, words)) + "\n" + done.stderr)
    return done


class Runs:
    """Makes traces and runs in a folder."""

    def __init__(self, folder, workers):
        self.folder = pathlib.Path(folder)
        self.pool = concurrent.futures.ThreadPoolExecutor(workers)

    def each(self, function, numbers):
        return list(self.pool.map(function, numbers))

    def write(self, name, make, seed, n):
        path = self.folder / f"{name}-{seed}.csv"
        with open(path, "w") as f:
            print("t,p,o", file=f)
            for t, prompt, output in make(random.Random(seed), n):
                print(f"{t:.6f},{max(1, round(prompt))},{max(1, round(output))}", file=f)
        return path

    def run(self, trace, options, *more):
        """The database of a run; the trace is removed."""
        db = trace.with_suffix(".db")
        db.unlink(missing_ok=True)
        call("-q", "run", "--backend", "cost", "--trace", trace, *COLUMNS, *options, "--db", db,
             "--keep-tables", "requests", "--intervals-time", "1h", *more)
        trace.unlink()
        return db

    def figures(self, db, run=1):
        sql = ("SELECT metric, percentile, x, lo, hi, reason FROM v_interval WHERE run_id = "
               f"{run} AND metric IN ('ttft', 'e2e')")
        rows = json.loads(call("sql", "--format", "json", db, sql).stdout)
        return {(r["metric"], r["percentile"]): r for r in rows}


def table(title, heads, rows):
    print(f"\n{title}\n\n| " + " | ".join(heads) + " |\n|" + "---|" * len(heads))
    for row in rows:
        print("| " + " | ".join(map(str, row)) + " |", flush=True)


def share(part, whole):
    return f"{part / whole:.2f}" if whole else "-"


# ---- tables ----

def truth_of(runs, name, make, options, n, count):
    """The figures of `count` runs of their own, by metric and percentile, ascending."""
    def one(seed):
        db = runs.run(runs.write(name, make, 1000000 + seed, n), options, "--intervals", "off")
        found = runs.figures(db)
        db.unlink()
        return found
    found = runs.each(one, range(count))
    return {key: sorted(f[key]["x"] for f in found) for key in found[0]}


def cover(found, truth, metric):
    """Columns: coverage by percentile, the share without an interval, the width."""
    cells, none, wide = [], 0, []
    for p in PLACES:
        key = metric, p
        with_interval = [f[key] for f in found if f[key]["lo"] is not None]
        center = statistics.median(truth[key])
        hits = sum(r["lo"] <= center <= r["hi"] for r in with_interval)
        cells.append(share(hits, len(with_interval)))
        none += len(found) - len(with_interval)
        n = len(truth[key])
        spread = truth[key][int(0.975 * (n - 1))] - truth[key][int(0.025 * (n - 1))]
        if with_interval and spread > 0:
            wide.append(statistics.median(r["hi"] - r["lo"] for r in with_interval) / spread)
    return cells + [share(none, 3 * len(found)), " ".join(f"{w:.2f}" for w in wide) or "-"]


def cells_of(args):
    for name, (make, options, sizes) in PROCESSES.items():
        for n in sizes:
            if n <= args.most and (not args.only or any(word in name for word in args.only)):
                yield name, make, options, n


def listed(diff):
    """What diff lists as changed."""
    changed = json.loads(diff.stdout).get("changed", [])
    return {(r["metric"], int(r["at"][1:])) for r in changed}


def coverage_and_changed(runs, args):
    cover_rows, changed_rows = [], []
    for k, (name, make, options, n) in enumerate(cells_of(args)):
        truth = truth_of(runs, f"truth{k}", make, options, n, args.truth)

        def pair(i):
            dbs = [runs.run(runs.write(f"cell{k}", make, 2 * i + j, n), options) for j in (0, 1)]
            found = [runs.figures(db) for db in dbs], listed(call("diff", "--format", "json", *dbs))
            for db in dbs:
                db.unlink()
            return found
        pairs = runs.each(pair, range((args.trials + 1) // 2))
        found = [f for both, _ in pairs for f in both]
        for metric in ("ttft", "e2e") if options is ENGINE else ("ttft",):
            cover_rows.append([name, n, metric, *cover(found, truth, metric)])
        counts = collections.Counter(p for _, what in pairs for p in what)
        changed_rows.append([name, n, *(share(counts["ttft", p], len(pairs)) for p in PLACES),
                             share(sum(bool(what) for _, what in pairs), len(pairs))])
    table(f"Coverage of intervals of 95 %, {args.trials} trials a row",
          ["process", "requests", "metric", "p50", "p90", "p99", "none", "width p50 p90 p99"],
          cover_rows)
    table(f"Two samples of one process: called changed, {(args.trials + 1) // 2} pairs a row",
          ["process", "requests", "TTFT p50", "p90", "p99", "anything"], changed_rows)


def power(runs, args):
    """At load r, a service longer by d has a sojourn longer by (1 + d)(1 - r) / (1 - r(1 + d))."""
    rows = []
    for load in (0.5, 0.8):
        longer = 0.125 * (1 - load) / (1 - load + 1.125 * load)
        slow = [f"{1 + longer:.5f}ms" if word == "1ms" else word for word in SERVER]

        def one(i):
            make = poisson(load)
            dbs = [runs.run(runs.write(f"power{load}{j}", make, i, 300), options)
                   for j, options in enumerate((SERVER, slow))]
            found = listed(call("diff", "--format", "json", *dbs))
            for db in dbs:
                db.unlink()
            return ("ttft", 50) in found
        found = runs.each(one, range(args.trials))
        rows.append([f"M/M/1, load {load}", 300, share(sum(found), len(found))])
    table(f"TTFT p50 is 12.5 % longer for the same requests: found, {args.trials} pairs a row",
          ["process", "requests", "found"], rows)


def host(runs, args):
    """Eight runs that differ in the seed of the host alone."""
    trace = runs.write("host", served(5), 1, 200)
    text = trace.read_text()
    dbs = []
    for i in range(8):
        path = runs.folder / f"host-{i}.csv"
        path.write_text(text)
        dbs.append(runs.run(path, ENGINE, "--host", "vllm-0.24", "--host-seed", i + 1))
    limits = "ttft.p90>5%,ttft.p99>5%,tpot.p90>5%,tpot.p99>5%,e2e.p90>5%,e2e.p99>5%"
    pairs = [(a, b) for i, a in enumerate(dbs) for b in dbs[i + 1:]]
    done = runs.each(lambda p: call("diff", "--format", "json", "--fail-if", limits, *p), pairs)
    codes = collections.Counter(d.returncode for d in done)
    table("Eight runs that differ in --host-seed alone, all pairs",
          ["pairs", "anything changed", "a limit of 5 % crossed", "not known"],
          [[len(pairs), sum(bool(listed(d)) for d in done), codes[1], codes[5]]])


def steady(runs, args):
    rows = []
    for load in (0.9, 1.1):
        for n in (300, 1000):
            if n > args.most:
                continue

            def one(i):
                db = runs.run(runs.write(f"steady{load}-{n}", poisson(load, fixed), i, n), SERVER)
                sql = "SELECT verdict FROM v_steady"
                verdict = json.loads(call("sql", "--format", "json", db, sql).stdout)
                db.unlink()
                return verdict[0]["verdict"]
            count = collections.Counter(runs.each(one, range(args.trials)))
            rows.append([f"M/D/1, load {load}", n,
                         ", ".join(f"{word} {share(c, args.trials)}"
                                   for word, c in sorted(count.items()))])
    table(f"Can the load be sustained? {args.trials} trials a row",
          ["process", "requests", "verdicts"], rows)


def windows(runs, args):
    rows = []
    for path in args.traces:
        count = sum(1 for _ in open(path)) // args.window
        cache = [] if path.endswith(".csv") else ["--enable-prefix-caching"]

        def one(i):
            db = runs.folder / f"window-{i}.db"
            call("-q", "run", "--backend", "cost", "--trace", path, "--skip-requests", i * args.window,
                 "--requests", args.window, *ENGINE, *cache, "--db", db, "--keep-tables",
                 "requests", "--intervals-time", "1h")
            found = runs.figures(db)
            db.unlink()
            return found
        found = runs.each(one, range(count))
        cells, none = [], 0
        for p in PLACES:
            key = "ttft", p
            hits = total = 0
            for i, f in enumerate(found):
                others = [g[key]["x"] for j, g in enumerate(found) if j != i]
                if f[key]["lo"] is None:
                    none += 1
                    continue
                total += 1
                hits += f[key]["lo"] <= statistics.median(others) <= f[key]["hi"]
            cells.append(share(hits, total))
        rows.append([pathlib.Path(path).name, count, args.window, *cells, share(none, 3 * count)])
    table("Windows of traces: TTFT, truth is the median of the other windows",
          ["trace", "windows", "requests", "p50", "p90", "p99", "none"], rows)


TABLES = {"coverage": coverage_and_changed, "power": power, "host": host, "steady": steady,
          "windows": windows}


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=400, help="of a row (default: 400)")
    parser.add_argument("--truth", type=int, default=400, help="runs for the truth (default: 400)")
    parser.add_argument("--most", type=int, default=1000,
                        help="leave out rows of more requests (default: 1000)")
    parser.add_argument("--tables", default=",".join(TABLES), help="which (default: all)")
    parser.add_argument("--only", nargs="*", metavar="WORD", help="processes with a word of these")
    parser.add_argument("--window", type=int, default=300, help="requests (default: 300)")
    parser.add_argument("traces", nargs="*", metavar="TRACE", help="for the table of windows")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        runs = Runs(folder, 2 * (os.cpu_count() or 1))
        for name in args.tables.split(","):
            TABLES[name](runs, args)


if __name__ == "__main__":
    main()

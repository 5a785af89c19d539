#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Try the intervals, comparisons and verdicts of the program against known truth.

Each trial makes requests by a known process, replays them, and looks at what the program says:

  coverage   pairs of samples of one process.  The share of intervals that hold the truth, which is
             the median of many more runs; the share of runs without an interval; the median width
             over that of 95 % of these runs; and how often diff lists a percentile as changed
  power      one sample served at two speeds, TTFT p50 12.5 % apart: how often diff finds it
  host       repeats of one configuration: how often diff lists anything, or crosses a limit of 5 %
  steady     a load beyond the capacity, and one below it: what the report says
  windows    windows of the traces that are named: the truth is the median of the other windows

Prints a table of Markdown for each.  With --log a trial that is done is not done again, so that a
run may end after --seconds, be killed, and go on; tables are of the trials that are done.

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
import re
import statistics
import subprocess
import tempfile
import time

PROGRAM = os.environ.get("ATTNREPLAY") or str(pathlib.Path(__file__).resolve().parent / "program")
PLACES = (50, 90, 99)
COLUMNS = ["--columns", "arrival=t,prompt=p,output=o"]
# One server, 100 ms a request in the mean: a token takes 1 ms, a prompt has 100 tokens.
SERVER = ["--cost-fixed", "0", "--cost-per-token", "1ms", "--max-num-seqs", "1",
          "--max-num-batched-tokens", "100000", "--no-enable-prefix-caching",
          "--no-async-scheduling", "--engine-defaults", "none", "--host", "none"]
ENGINE = ["--cost-fixed", "6ms", "--cost-per-token", "40us", "--max-num-batched-tokens", "2048",
          "--max-num-seqs", "256"]


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


def query(db, sql):
    return json.loads(call("sql", "--format", "json", db, sql).stdout)


class Runs:
    """Makes traces and runs in a folder, and keeps what trials found in a log."""

    def __init__(self, folder, args):
        self.folder = pathlib.Path(folder)
        self.pool = concurrent.futures.ThreadPoolExecutor(args.jobs)
        self.end = time.monotonic() + args.seconds
        self.done = {}
        self.log = open(args.log, "a+") if args.log else None
        if self.log:
            self.log.seek(0)
            for line in self.log:
                if line.endswith("\n"):
                    key, found = json.loads(line)
                    self.done[key] = found

    def each(self, name, function, count):
        """What function(i) finds for i below count, of those that are done in time."""
        def one(i):
            key = f"{name} {i}"
            if key not in self.done and time.monotonic() < self.end:
                found = function(i)
                self.done[key] = found
                if self.log:
                    self.log.write(json.dumps([key, found], separators=(",", ":")) + "\n")
                    self.log.flush()
            return self.done.get(key)
        return [f for f in self.pool.map(one, range(count)) if f is not None]

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

    def figures(self, db):
        """[figure, low end, high end] by metric and percentile; an end of None: no interval."""
        rows = query(db, "SELECT metric, percentile, x, lo, hi FROM v_interval WHERE metric IN "
                         "('ttft', 'e2e')")
        return {f"{r['metric']} {r['percentile']}": [r["x"], r["lo"], r["hi"]] for r in rows}


def table(title, heads, rows):
    print(f"\n{title}\n\n| " + " | ".join(heads) + " |\n|" + "---|" * len(heads))
    for row in rows:
        print("| " + " | ".join(map(str, row)) + " |", flush=True)


def share(part, whole):
    return f"{part / whole:.2f}" if whole else "-"


# ---- tables ----

def truth_of(runs, name, make, options, n, count):
    """The figures of `count` runs of their own, by metric and percentile, ascending."""
    def one(i):
        db = runs.run(runs.write("truth", make, 1000000 + i, n), options, "--intervals", "off")
        found = {key: x for key, (x, _, _) in runs.figures(db).items()}
        db.unlink()
        return found
    found = runs.each(f"truth {name} {n}", one, count)
    return {key: sorted(f[key] for f in found) for key in (found[0] if found else ())}


def cover(found, truth, metric):
    """Columns: coverage by percentile, the share without an interval, the width."""
    cells, none, wide = [], 0, []
    for p in PLACES:
        key = f"{metric} {p}"
        with_interval = [f[key] for f in found if f[key][1] is not None]
        center = statistics.median(truth[key])
        cells.append(share(sum(lo <= center <= hi for _, lo, hi in with_interval),
                           len(with_interval)))
        none += len(found) - len(with_interval)
        n = len(truth[key])
        spread = truth[key][int(0.975 * (n - 1))] - truth[key][int(0.025 * (n - 1))]
        if with_interval and spread > 0:
            wide.append(statistics.median(hi - lo for _, lo, hi in with_interval) / spread)
    return cells + [share(none, 3 * len(found)), " ".join(f"{w:.2f}" for w in wide) or "-"]


def cells_of(args):
    """Those that take little time come first."""
    cells = [(name, make, options, n) for name, (make, options, sizes) in PROCESSES.items()
             for n in sizes if n <= args.most]
    return sorted(cells, key=lambda cell: (cell[3] > 300, cell[2] is ENGINE))


def listed(diff):
    """What diff lists as changed."""
    changed = json.loads(diff.stdout).get("changed", [])
    return [f"{r['metric']} {r['at'][1:]}" for r in changed]


def coverage(runs, args):
    cover_rows, changed_rows = [], []
    for name, make, options, n in cells_of(args):
        truth = truth_of(runs, name, make, options, n, args.trials)

        def pair(i):
            dbs = [runs.run(runs.write(f"cell{n}", make, 2 * i + j, n), options) for j in (0, 1)]
            found = [runs.figures(db) for db in dbs], listed(call("diff", "--format", "json", *dbs))
            for db in dbs:
                db.unlink()
            return found
        pairs = runs.each(f"pair {name} {n}", pair, args.trials)
        if not pairs or not truth:
            continue
        found = [f for both, _ in pairs for f in both]
        for metric in ("ttft", "e2e") if options is ENGINE else ("ttft",):
            cover_rows.append([name, n, len(found), metric, *cover(found, truth, metric)])
        counts = collections.Counter(p for _, what in pairs for p in what)
        changed_rows.append([name, n, len(pairs),
                             *(share(counts[f"ttft {p}"], len(pairs)) for p in PLACES),
                             share(sum(bool(what) for _, what in pairs), len(pairs))])
    table("Coverage of intervals of 95 %",
          ["process", "requests", "trials", "metric", "p50", "p90", "p99", "none",
           "width p50 p90 p99"], cover_rows)
    table("Two samples of one process: called changed",
          ["process", "requests", "pairs", "TTFT p50", "p90", "p99", "anything"], changed_rows)


def power(runs, args):
    """At load r, a service longer by d has a sojourn longer by (1 + d)(1 - r) / (1 - r(1 + d))."""
    rows = []
    for load in (0.5, 0.8):
        longer = 0.125 * (1 - load) / (1 - load + 1.125 * load)
        slow = [f"{1 + longer:.5f}ms" if word == "1ms" else word for word in SERVER]

        def one(i):
            dbs = [runs.run(runs.write(f"power{j}", poisson(load), i, 300), options)
                   for j, options in enumerate((SERVER, slow))]
            found = listed(call("diff", "--format", "json", *dbs))
            for db in dbs:
                db.unlink()
            return "ttft 50" in found
        found = runs.each(f"power {load}", one, args.trials)
        rows.append([f"M/M/1, load {load}", 300, len(found), share(sum(found), len(found))])
    table("TTFT p50 is 12.5 % longer for the same requests: found",
          ["process", "requests", "pairs", "found"], rows)


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
    done = [call("diff", "--format", "json", "--fail-if", limits, *p) for p in pairs]
    codes = collections.Counter(d.returncode for d in done)
    table("Eight runs that differ in --host-seed alone, all pairs",
          ["pairs", "anything changed", "a limit of 5 % crossed", "not known"],
          [[len(pairs), sum(bool(listed(d)) for d in done), codes[1], codes[5]]])


def steady(runs, args):
    rows = []
    for n in (300, 1000):
        for load in (0.9, 1.1):
            if n > args.most:
                continue

            def one(i):
                db = runs.run(runs.write("steady", poisson(load, fixed), i, n), SERVER)
                verdict = query(db, "SELECT verdict FROM v_steady")[0]["verdict"]
                db.unlink()
                return verdict
            found = runs.each(f"steady {load} {n}", one, args.trials)
            rows.append([f"M/D/1, load {load}", n, len(found),
                         ", ".join(f"{word} {share(c, len(found))}" for word, c
                                   in sorted(collections.Counter(found).items()))])
    table("Can the load be sustained?", ["process", "requests", "trials", "verdicts"], rows)


def windows(runs, args):
    rows = []
    for path in args.traces:
        name = pathlib.Path(path).name
        cache = [] if path.endswith(".csv") else ["--enable-prefix-caching"]
        count = trace_length(path) // args.window

        def one(i):
            db = runs.folder / f"window-{i}.db"
            db.unlink(missing_ok=True)
            call("-q", "run", "--backend", "cost", "--trace", path, "--skip-requests",
                 i * args.window, "--requests", args.window, *ENGINE, *cache, "--db", db,
                 "--keep-tables", "requests", "--intervals-time", "1h")
            found = runs.figures(db)
            db.unlink()
            return found
        found = runs.each(f"window {name} {args.window}", one, count)
        cells, none = [], 0
        for p in PLACES:
            key = f"ttft {p}"
            hits = total = 0
            for i, f in enumerate(found):
                others = [g[key][0] for j, g in enumerate(found) if j != i]
                if f[key][1] is None:
                    none += 1
                    continue
                total += 1
                hits += f[key][1] <= statistics.median(others) <= f[key][2]
            cells.append(share(hits, total))
        rows.append([name, len(found), args.window, *cells, share(none, 3 * len(found))])
    table("Windows of traces: TTFT, truth is the median of the other windows",
          ["trace", "windows", "requests", "p50", "p90", "p99", "none"], rows)


def trace_length(path):
    text = call("trace", "info", path).stdout
    return int(re.search(r"requests\s+(\d+)", text).group(1))


TABLES = {"coverage": coverage, "power": power, "host": host, "steady": steady,
          "windows": windows}


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=400,
                        help="pairs, runs for the truth, or seeds (default: 400)")
    parser.add_argument("--most", type=int, default=1000,
                        help="leave out rows of more requests (default: 1000)")
    parser.add_argument("--tables", default=",".join(TABLES), help="which (default: all)")
    parser.add_argument("--window", type=int, default=300, help="requests (default: 300)")
    parser.add_argument("-j", "--jobs", type=int, default=2 * (os.cpu_count() or 1),
                        help="trials at a time (default: two a processor)")
    parser.add_argument("--log", help="what trials found, a line a trial; go on with it")
    parser.add_argument("--seconds", type=float, default=math.inf,
                        help="begin no trial after so many")
    parser.add_argument("traces", nargs="*", metavar="TRACE", help="for the table of windows")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        runs = Runs(folder, args)
        for name in args.tables.split(","):
            TABLES[name](runs, args)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Predict each workload of a served engine with a host that the other workloads tell, as two tables.

LOGS has step logs of vllm_serve_steps.py, WORKLOAD-TOKENS-PASS.jsonl; TOKENS is the most tokens of a
step.  COSTS has a database for each, WORKLOAD-TOKENS.db, whose first run measured the same requests,
and TRACES the requests, WORKLOAD.csv.  OPTION... are further options of the replays.

Each host is fitted on the logs of all other workloads with the fewest tokens; --host names one that
is taken for all.  The replays draw it --repeats times.  The figures are those of 'attnreplay report':
median of the draws / of the passes with their range, and the error; * within the range of the passes.

  contrib/served_table.py logs costs traces -- --policy vllm-0.24 --max-num-seqs 256
"""
import argparse
import json
import os
import re
import subprocess
import sys
import tempfile

PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "program")
LIMITS = {"p50": 5, "p90": 10, "p99": 10}       # % of error that count as right
LOG = re.compile(r"([^/]+)-(\d+)-[^-/]+\.jsonl$")


def die(message):
    sys.exit("served_table: " + message)


def run(*args):
    made = subprocess.run([PROGRAM, "-q", *args], stdout=subprocess.PIPE, check=False)
    if made.returncode:
        die("'attnreplay %s' failed" % args[0])
    return made.stdout


def parse_args():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("logs", "costs", "traces"):
        p.add_argument(name, metavar=name.upper())
    p.add_argument("options", metavar="OPTION", nargs="*", help="of 'attnreplay run'")
    p.add_argument("--host", help="file or preset of the host, for all workloads")
    p.add_argument("--repeats", type=int, default=15, help="draws of the host (%(default)s)")
    p.add_argument("--only", metavar="WORKLOAD", help="print the rows of this workload alone")
    return p.parse_args()


def find_logs(folder):
    """{(workload, tokens): [log of a pass]}"""
    found = {}
    try:
        names = sorted(os.listdir(folder))
    except OSError as e:
        die(str(e))
    for name in names:
        m = LOG.match(name)
        if m:
            found.setdefault((m[1], int(m[2])), []).append(os.path.join(folder, name))
    if len({workload for workload, _ in found}) < 2:
        die("%s: want logs WORKLOAD-TOKENS-PASS.jsonl of two workloads or more" % folder)
    return found


def costs_of(a, workload, tokens):
    return os.path.join(a.costs, "%s-%d.db:1" % (workload, tokens))


def fit(a, logs, workload, out):
    """Fit a host on the other workloads, with the GPU times of all of them."""
    least = min(tokens for _, tokens in logs)
    others = sorted(w for w, tokens in logs if w != workload and tokens == least)
    run("calibrate", "host", *[log for w in others for log in logs[w, least]],
        "--costs", ",".join(costs_of(a, w, least) for w in others), "--output", out)
    return out


def compare(a, logs, workload, tokens, temporary):
    """The report of a workload's replays beside its passes."""
    db = os.path.join(temporary, "%s-%d.db" % (workload, tokens))
    host = a.host or fit(a, logs, workload, os.path.join(temporary, workload + ".json"))
    run("run", "--backend", "cost", "--costs", costs_of(a, workload, tokens), "--costs-extrapolate",
        "--trace", os.path.join(a.traces, workload + ".csv"), "--host", host,
        "--max-num-batched-tokens", str(tokens), "--repeats", str(a.repeats),
        "--intervals", "off", "--keep-tables", "iterations", "--db", db, *a.options)
    for log in logs[workload, tokens]:
        run("import-engine", log, "--db", db)
    return json.loads(run("report", "--format", "json", db)), passes_of(db)


def passes_of(db):
    """{(metric, percentile): (least, most) of the passes}"""
    text = run("sql", "--format", "csv", db, "SELECT metric, min(p50), max(p50), min(p90), max(p90), "
               "min(p99), max(p99) FROM v_latency JOIN run USING(run_id) WHERE clock = 'engine' "
               "GROUP BY metric")
    rows = [line.split(",") for line in text.decode().splitlines()[1:]]
    return {(r[0], at): (float(r[1 + 2 * i]), float(r[2 + 2 * i]))
            for r in rows if r[1] for i, at in enumerate(LIMITS)}


def short(x):
    return "%.*f" % (0 if abs(x) >= 100 else 1 if abs(x) >= 10 else 2, x)


def cell(row, passes):
    """Text of an error, and whether it is within the limits or the passes."""
    lo, hi = passes[row["metric"], row["at"]]
    inside = lo <= row["run_ms"] <= hi
    return "%s / %s (%s to %s), %+.0f %%%s" % (
        short(row["run_ms"]), short(row["engine_ms"]), short(lo), short(hi), row["error_percent"],
        " *" if inside else ""), inside or abs(row["error_percent"]) <= LIMITS[row["at"]]


def print_table(head, rows):
    print("| %s |\n|%s" % (" | ".join(head), "---|" * len(head)))
    for row in rows:
        print("| %s |" % " | ".join(row))
    print()


def main():
    a = parse_args()
    logs = find_logs(a.logs)
    figures, steps, right, n = [], [], 0, 0
    with tempfile.TemporaryDirectory() as temporary:
        for (workload, tokens), passes in sorted(logs.items(), key=lambda x: (x[0][1], x[0][0])):
            if a.only not in (None, workload):
                continue
            report, least_most = compare(a, logs, workload, tokens, temporary)
            name = "%s, %d, %d" % (workload, tokens, len(passes))
            for metric in ("ttft", "tpot"):
                cells = [cell(r, least_most) for r in report["engine"] if r["metric"] == metric]
                figures.append([name, metric.upper()] + [text for text, _ in cells])
                right += sum(fine for _, fine in cells)
                n += len(cells)
            for r in report["engine_step_error"]:
                if r["n"]:
                    steps.append([name, r["iterations_of"], "%d" % r["n"],
                                  short(r["engine_mean"]), short(r["mean"]),
                                  "%.1f" % r["mape"], "%.1f" % r["p50"], "%.1f" % r["p95"],
                                  "%+.1f" % r["bias_percent"],
                                  "%.1f to %.1f" % (r["mape_min"], r["mape_max"])])
    print_table(["trace, tokens a step, passes", "figure", "p50", "p90", "p99"], figures)
    print("%d of %d figures are within 5 %% at p50 and 10 %% at p90 and p99, or within the range "
          "of the passes.\n" % (right, n))
    print_table(["trace, tokens a step, passes", "iterations of", "n", "vLLM, ms", "ms", "MAPE, %",
                 "p50", "p95", "bias", "MAPE of a draw"], steps)


if __name__ == "__main__":
    main()

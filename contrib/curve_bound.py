#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compare methods with their upper bound, the oracle, in the CSV of 'attnreplay select'.

usage: curve_bound.py CURVE.csv

Prints a line for each point of a method, in one layer of one capture: the executed density, the
recall, and the distance of the recall below the oracle's recall at the same density.

The oracle has the highest recall of all selections of blocks of its size.  Its recall is a concave
function of the density, from 0 at 0 to 1 at 1.  Between two of its points, its recall is at least
on the line through them; "below" is the distance from this line.  It is at most on the lines
through the neighbouring points.  A method above these lines does not select such blocks, or one of
the two results is wrong: exit status 1.  Selections of single tokens have no bound and are left
out.
"""
import argparse
import csv
import json
import sys

SLACK = 1e-4  # recall is a mean of ratios of sums in single precision


def is_oracle(row):
    p = json.loads(row["parameters"])
    return (p["select"], p["union"], p["exec"]) == ("oracle", "none", "blocksparse")


def place_of(row):
    return tuple(row[c] for c in ("capture", "layer", "context", "chunk", "backend",
                                  "block_tokens"))


def is_blocks(row):
    return json.loads(row["parameters"])["exec"] not in ("columns", "gather")


def line(a, b, x):
    return a[1] + (b[1] - a[1]) / (b[0] - a[0]) * (x - a[0])


def bounds(points, density):
    """Lower and upper limit of the oracle's recall at the density; points: {density: recall}."""
    p = sorted({0: 0, 1: 1, **points}.items())
    i = max(k for k in range(len(p) - 1) if p[k][0] <= density)
    least, most = line(p[i], p[i + 1], density), p[i + 1][1]
    if i > 0:
        most = min(most, line(p[i - 1], p[i], density))
    if i + 2 < len(p):
        most = min(most, line(p[i + 1], p[i + 2], density))
    return least, max(least, most)


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("csv", metavar="CURVE.csv", help="what attnreplay select --csv wrote")
    with open(p.parse_args().csv, newline="") as f:
        rows = [r for r in csv.DictReader(f) if is_blocks(r)]
    oracle = {}
    for r in filter(is_oracle, rows):
        oracle.setdefault(place_of(r), {})[float(r["density_executed"])] = float(r["recall_mean"])
    n = above = 0
    print(f"{'capture':24} {'layer':>5} {'density':>8} {'recall':>8} {'below':>8}  method")
    for r in rows:
        if is_oracle(r) or place_of(r) not in oracle:
            continue
        density, recall = float(r["density_executed"]), float(r["recall_mean"])
        least, most = bounds(oracle[place_of(r)], density)
        wrong = recall > most + SLACK
        n += 1
        above += wrong
        print(f"{r['capture']:24} {r['layer']:>5} {density:8.4f} {recall:8.4f} "
              f"{least - recall:8.4f}  {r['method']}{' ABOVE' if wrong else ''}")
    print(f"{n} points, {above} above the oracle")
    sys.exit(above > 0)


if __name__ == "__main__":
    main()

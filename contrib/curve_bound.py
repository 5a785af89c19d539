#!/usr/bin/env python3
"""Compare methods with the upper bound, in the CSV of 'attnreplay select'.

usage: curve_bound.py CURVE.csv

A line for each point of a method, in one layer of one capture: the density that is executed, the
recall, and how much that is below the oracle's at the same density.  Among selections of blocks of
its size the oracle has the most recall, which as a function of the density is concave, from 0 at 0
to 1 at 1.  So between two of its points it is at least on the line through them ("below" is the
distance from there) and at most where the lines through its neighbours meet that density.  A method
above that is no selection of such blocks, or one of the two is wrong: exit status 1.  Selections of
single tokens are not bounded, and left out.
"""
import csv
import json
import sys

from curve_plot import is_oracle

SLACK = 1e-4  # recall is a mean of ratios of sums in single precision


def place_of(row):
    return tuple(row[c] for c in ("capture", "layer", "context", "chunk", "backend",
                                  "block_tokens"))


def is_blocks(row):
    return json.loads(row["parameters"])["exec"] not in ("columns", "gather")


def line(a, b, x):
    return a[1] + (b[1] - a[1]) / (b[0] - a[0]) * (x - a[0])


def bounds(points, density):
    """The least and the most recall of the oracle at the density; points: {density: recall}."""
    p = sorted({0: 0, 1: 1, **points}.items())
    i = max(k for k in range(len(p) - 1) if p[k][0] <= density)
    least, most = line(p[i], p[i + 1], density), p[i + 1][1]
    if i > 0:
        most = min(most, line(p[i - 1], p[i], density))
    if i + 2 < len(p):
        most = min(most, line(p[i + 1], p[i + 2], density))
    return least, max(least, most)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__.strip())
    with open(sys.argv[1], newline="") as f:
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

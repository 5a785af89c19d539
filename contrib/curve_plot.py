#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draw accuracy-density curves from the CSV of 'attnreplay select'.

usage: curve_plot.py CURVE.csv CURVE.svg [POINTS.csv]

A point is a method with its parameters, averaged over captures and layers.  A line joins the points
of one method, or of one composition.  The left panel shows the relative L2 error, the right panel
the recall of the true attention mass, both over the executed density.  The dashed line is the
oracle.  In each layer of each capture it bounds the recall of selections of blocks of its size
(curve_bound.py).  POINTS.csv gets the points of the drawing.
"""
import csv
import json
import math
import sys
from xml.sax.saxutils import escape

WIDTH, HEIGHT, LEFT, TOP, GAP = 460, 320, 70, 40, 110
COLOURS = ["#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#8c564b", "#17becf", "#e377c2",
           "#7f7f7f", "#bcbd22", "#393b79", "#637939"]
LEAST_ERROR = 1e-4  # smaller values are drawn here, because a logarithmic axis has no 0
LEAST_DENSITY = 1e-3  # as above
LEGEND_COLUMNS = 4


def is_oracle(row):
    p = json.loads(row["parameters"])
    return (p["select"], p["union"], p["exec"]) == ("oracle", "none", "blocksparse")


def series_of(row):
    if is_oracle(row):
        return f"oracle, blocks of {row['block_tokens']}"
    if row["method"].startswith("select="):
        p = json.loads(row["parameters"])
        return "/".join(p[k] for k in ("select", "union", "exec"))
    return row["method"].split(":")[0]


def read(path):
    """{series: [(density, relative L2, recall, method)] by density}"""
    points = {}
    with open(path, newline="") as f:
        for row in csv.DictReader(f):
            key = series_of(row), row["method"]
            points.setdefault(key, []).append(
                [float(row[c]) for c in ("density_executed", "rel_l2_mean", "recall_mean")])
    series = {}
    for (name, method), rows in points.items():
        mean = (sum(c) / len(rows) for c in zip(*rows))
        series.setdefault(name, []).append((*mean, method))
    return {name: sorted(p) for name, p in series.items()}


def decades(values):
    """The powers of ten that enclose the values."""
    lo = math.floor(math.log10(min(values)))
    hi = math.ceil(math.log10(max(values)))
    return range(lo, max(hi, lo + 1) + 1)


def densities(values):
    """1, 2 and 5 times each power of ten, from below the smallest value to 1."""
    ticks = [m * 10.0**p for p in range(-3, 0) for m in (1, 2, 5)] + [1.0]
    below = [i for i, t in enumerate(ticks) if t <= min(values)]
    return ticks[min(below[-1], len(ticks) - 2):]


class Panel:
    def __init__(self, left, title, densities, ticks, place):
        self.left, self.title, self.densities = left, title, densities
        self.ticks, self.place = ticks, place

    def x(self, density):
        return self.left + (1 - math.log(density) / math.log(self.densities[0])) * WIDTH

    def y(self, value):
        return TOP + (1 - self.place(value)) * HEIGHT

    def frame(self):
        yield (f'<rect x="{self.left}" y="{TOP}" width="{WIDTH}" height="{HEIGHT}" fill="none" '
               'stroke="#999"/>')
        yield f'<text x="{self.left}" y="{TOP - 12}" font-size="14">{escape(self.title)}</text>'
        for t in self.densities:
            x = self.x(t)
            yield (f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{TOP + HEIGHT}" '
                   'stroke="#eee"/>')
            yield f'<text x="{x:.1f}" y="{TOP + HEIGHT + 16}" text-anchor="middle">{t:g}</text>'
        for t in self.ticks:
            y = self.y(t)
            yield (f'<line x1="{self.left}" y1="{y:.1f}" x2="{self.left + WIDTH}" y2="{y:.1f}" '
                   'stroke="#ddd"/>')
            yield f'<text x="{self.left - 6}" y="{y + 4:.1f}" text-anchor="end">{t:g}</text>'
        yield (f'<text x="{self.left + WIDTH / 2}" y="{TOP + HEIGHT + 34}" text-anchor="middle">'
               'executed density</text>')

    def line(self, points, colour, dash):
        at = [(self.x(d), self.y(v)) for d, v in points]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in at)
        yield (f'<polyline points="{path}" fill="none" stroke="{colour}" '
               f'stroke-dasharray="{dash}" stroke-width="1.5"/>')
        for x, y in at:
            yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="none" stroke="{colour}"/>'


def styles(names):
    """Line styles: the oracle is dashed black, others have colours; repeated colours are dashed."""
    others = [n for n in names if not n.startswith("oracle")]
    for name in names:
        i = others.index(name) if name in others else -1
        colour = COLOURS[i % len(COLOURS)] if i >= 0 else "#000"
        dash = "6 3" if i < 0 else "2 2" if i >= len(COLOURS) else "none"
        yield colour, dash


def legend(names):
    step = (2 * WIDTH + GAP) // LEGEND_COLUMNS
    for i, (name, (colour, dash)) in enumerate(zip(names, styles(names))):
        x, y = LEFT + i % LEGEND_COLUMNS * step, TOP + HEIGHT + 64 + i // LEGEND_COLUMNS * 18
        yield (f'<line x1="{x}" y1="{y - 4}" x2="{x + 24}" y2="{y - 4}" stroke="{colour}" '
               f'stroke-dasharray="{dash}" stroke-width="3"/>')
        yield f'<text x="{x + 32}" y="{y}">{escape(name)}</text>'


def draw(series):
    points = [p for s in series.values() for p in s]
    across = densities([max(p[0], LEAST_DENSITY) for p in points])
    powers = decades([max(p[1], LEAST_ERROR) for p in points])
    span = powers[-1] - powers[0]
    error = Panel(LEFT, "relative L2 error against dense, mean", across,
                  [10.0 ** p for p in powers], lambda v: (math.log10(v) - powers[0]) / span)
    recall = Panel(LEFT + WIDTH + GAP, "recall of the true attention mass, mean", across,
                   [i / 10 for i in range(0, 11, 2)], lambda v: v)
    out = [*error.frame(), *recall.frame()]
    for p, style in zip(series.values(), styles(series)):
        at = [max(x[0], LEAST_DENSITY) for x in p]
        out += error.line(zip(at, (max(x[1], LEAST_ERROR) for x in p)), *style)
        out += recall.line(zip(at, (x[2] for x in p)), *style)
    out += legend(series)
    width = LEFT + 2 * WIDTH + GAP + 30
    height = TOP + HEIGHT + 64 + 18 * -(-len(series) // LEGEND_COLUMNS)
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
            'font-family="sans-serif" font-size="12">\n<rect width="100%" height="100%" '
            'fill="#fff"/>\n' + "\n".join(out) + "\n</svg>\n")


def write_points(series, path):
    with open(path, "w", newline="") as f:
        out = csv.writer(f, lineterminator="\n")
        out.writerow(("method", "density_executed", "rel_l2_mean", "recall_mean"))
        for points in series.values():
            out.writerows((x[3], *(f"{v:.5g}" for v in x[:3])) for x in points)


def main():
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__.strip())
    series = read(sys.argv[1])
    if not series:
        sys.exit(f"curve_plot.py: {sys.argv[1]}: no rows")
    with open(sys.argv[2], "w") as f:
        f.write(draw(series))
    if len(sys.argv) == 4:
        write_points(series, sys.argv[3])


if __name__ == "__main__":
    main()

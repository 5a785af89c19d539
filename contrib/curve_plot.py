#!/usr/bin/env python3
"""Draw accuracy-density curves from the CSV of 'attnreplay select'.

usage: curve_plot.py CURVE.csv CURVE.svg

A point is a method with its parameters, averaged over captures and layers; a line joins the points
of one method, or of one composition.  Left the relative L2 error, right the recall of the true
attention mass, both over the density that is executed.
"""
import csv
import json
import math
import sys
from xml.sax.saxutils import escape

WIDTH, HEIGHT, LEFT, TOP, GAP = 460, 320, 70, 40, 110
COLOURS = ["#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#8c564b", "#17becf", "#e377c2",
           "#7f7f7f", "#bcbd22", "#393b79", "#637939", "#000000"]
LEAST_ERROR = 1e-4  # what is below is drawn here: 0 has no place on the axis


def series_of(row):
    if row["method"].startswith("select="):
        p = json.loads(row["parameters"])
        return "/".join(p[k] for k in ("select", "union", "exec"))
    return row["method"].split(":")[0]


def read(path):
    """{series: [(density, relative L2, recall)] by density}"""
    points = {}
    with open(path, newline="") as f:
        for row in csv.DictReader(f):
            key = series_of(row), row["method"]
            points.setdefault(key, []).append(
                [float(row[c]) for c in ("density_executed", "rel_l2_mean", "recall_mean")])
    series = {}
    for (name, _), rows in points.items():
        series.setdefault(name, []).append(tuple(sum(c) / len(rows) for c in zip(*rows)))
    return {name: sorted(p) for name, p in series.items()}


def decades(values):
    """The powers of ten around the values."""
    lo = math.floor(math.log10(min(values)))
    hi = math.ceil(math.log10(max(values)))
    return range(lo, max(hi, lo + 1) + 1)


class Panel:
    def __init__(self, left, title, ticks, place):
        self.left, self.title, self.ticks, self.place = left, title, ticks, place

    def x(self, density):
        return self.left + density * WIDTH

    def y(self, value):
        return TOP + (1 - self.place(value)) * HEIGHT

    def frame(self):
        yield (f'<rect x="{self.left}" y="{TOP}" width="{WIDTH}" height="{HEIGHT}" fill="none" '
               'stroke="#999"/>')
        yield f'<text x="{self.left}" y="{TOP - 12}" font-size="14">{escape(self.title)}</text>'
        for i in range(0, 11, 2):
            x = self.x(i / 10)
            yield f'<text x="{x:.1f}" y="{TOP + HEIGHT + 16}" text-anchor="middle">{i / 10:g}</text>'
        for t in self.ticks:
            y = self.y(t)
            yield (f'<line x1="{self.left}" y1="{y:.1f}" x2="{self.left + WIDTH}" y2="{y:.1f}" '
                   'stroke="#ddd"/>')
            yield f'<text x="{self.left - 6}" y="{y + 4:.1f}" text-anchor="end">{t:g}</text>'
        yield (f'<text x="{self.left + WIDTH / 2}" y="{TOP + HEIGHT + 34}" text-anchor="middle">'
               'executed density</text>')

    def line(self, points, colour):
        at = [(self.x(d), self.y(v)) for d, v in points]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in at)
        yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.5"/>'
        for x, y in at:
            yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>'


def draw(series):
    errors = [max(p[1], LEAST_ERROR) for points in series.values() for p in points]
    powers = decades(errors)
    span = powers[-1] - powers[0]
    error = Panel(LEFT, "relative L2 error against dense, mean", [10.0 ** p for p in powers],
                  lambda v: (math.log10(v) - powers[0]) / span)
    recall = Panel(LEFT + WIDTH + GAP, "recall of the true attention mass, mean",
                   [i / 10 for i in range(0, 11, 2)], lambda v: v)
    out = [*error.frame(), *recall.frame()]
    for i, (name, points) in enumerate(series.items()):
        colour = COLOURS[i % len(COLOURS)]
        out += error.line([(p[0], max(p[1], LEAST_ERROR)) for p in points], colour)
        out += recall.line([(p[0], p[2]) for p in points], colour)
        y = TOP + HEIGHT + 60 + 16 * i
        out.append(f'<line x1="{LEFT}" y1="{y - 4}" x2="{LEFT + 24}" y2="{y - 4}" '
                   f'stroke="{colour}" stroke-width="3"/>')
        out.append(f'<text x="{LEFT + 32}" y="{y}">{escape(name)}</text>')
    width, height = LEFT + 2 * WIDTH + GAP + 30, TOP + HEIGHT + 60 + 16 * len(series)
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
            'font-family="sans-serif" font-size="12">\n<rect width="100%" height="100%" '
            'fill="#fff"/>\n' + "\n".join(out) + "\n</svg>\n")


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__.strip())
    series = read(sys.argv[1])
    if not series:
        sys.exit(f"curve_plot.py: {sys.argv[1]}: no rows")
    with open(sys.argv[2], "w") as f:
        f.write(draw(series))


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Compare attnreplay bench with other programs' rows, and with its targets.

Takes the JSON lines of 'attnreplay bench attention --json FILE' and of bench_torch.py.  Prints for
each shape our speed over theirs, both by CUDA events, then medians, then the targets, those
within our own rows by kernel times.  The exit status is 1 when a target is missed.
"""
import argparse
import json
import statistics
import sys

KEY = ("what", "batch", "chunk", "context", "density")
FIGURES = ("impl", "us", "event_us", "flops", "bytes", "tflops", "tbs")


def die(message):
    print("bench_compare: " + message, file=sys.stderr)
    sys.exit(3)


def read_rows(path):
    rows = []
    try:
        with open(path, encoding="utf-8") as f:
            for number, line in enumerate(f, 1):
                try:
                    row = json.loads(line)
                    row["key"] = tuple(row[k] for k in KEY)
                    missing = [k for k in FIGURES if k not in row]
                    if missing:
                        raise KeyError(missing[0])
                except (ValueError, KeyError, TypeError) as e:
                    die(f"{path}:{number}: not a row of a benchmark ({e!r})")
                rows.append(row)
    except OSError as e:
        die(f"{path}: {e.strerror}")
    return rows


def speed(row):
    """By CUDA events: TB/s where the work is given in bytes, else TFLOP/s; None: not measured."""
    work = row["bytes"] if row["bytes"] else row["flops"]
    return work / row["event_us"] * 1e-6 if work and row["event_us"] else None


def shape_text(row):
    if row["batch"] is None:
        return row["what"]
    density = "" if row["density"] is None else f" at {row['density']:g}"
    return f"{row['what']} {row['batch']} x {row['chunk']} of {row['context']}{density}"


# ---- against other programs ----

def ratios(ours, theirs):
    """(our row, their row, our speed over theirs or None), in our order."""
    found = {}
    for row in theirs:
        found.setdefault(row["key"], []).append(row)
    out = []
    for row in ours:
        for other in found.get(row["key"], []):
            a, b = speed(row), speed(other)
            out.append((row, other, a / b if a and b else None))
    return out


def number(x, digits=3):
    return "-" if x is None else f"{x:.{digits}f}"


def print_ratios(pairs):
    print(f"{'shape':<36} {'ours':>8} {'theirs':>8} {'':7} {'impl':<8} {'ours/theirs':>11}")
    for row, other, ratio in pairs:
        unit = "TB/s" if row["bytes"] else "TFLOP/s"
        digits = 3 if row["bytes"] else 1
        note = other.get("error") or ("expanded heads" if other.get("gqa") == "expanded" else "")
        print(f"{shape_text(row):<36} {number(speed(row), digits):>8} "
              f"{number(speed(other), digits):>8} {unit:<7} {other['impl']:<8} "
              f"{number(ratio):>11} {note}".rstrip())
    print()
    for what, impl in dict.fromkeys((r["what"], o["impl"]) for r, o, _ in pairs):
        some = [x for r, o, x in pairs if (r["what"], o["impl"]) == (what, impl) and x is not None]
        if some:
            print(f"median of {what} over {impl}: {statistics.median(some):.3f} ({len(some)} rows)")


# ---- targets ----

def find(ours, what, batch=None, chunk=None, context=None, density=None):
    """Our measured rows of this kind; None: any."""
    want = {"what": what, "batch": batch, "chunk": chunk, "context": context, "density": density}
    return [r for r in ours if r["us"] is not None and
            all(v is None or r[k] == v for k, v in want.items())]


def same_shape(row, ours, what):
    rows = find(ours, what, row["batch"], row["chunk"], row["context"])
    return rows[0] if rows else None


def over_cudnn(pairs, batch=None, chunk=None):
    return [(x, shape_text(r)) for r, o, x in pairs
            if o["impl"] == "cudnn" and r["what"] == "dense" and x is not None and
            (batch is None or r["batch"] == batch) and (chunk is None or r["chunk"] == chunk)]


def of_copy(ours):
    copies = find(ours, "copy")
    return [(r["tbs"] / copies[0]["tbs"], shape_text(r)) for r in find(ours, "decode", batch=8)
            if copies]


def of_dense(ours, rows, value):
    out = []
    for row in rows:
        dense = same_shape(row, ours, "dense")
        if dense:
            out.append((value(row, dense), shape_text(row)))
    return out


def selection_share(ours):
    out = []
    for row in find(ours, "select", 8, 1024, 131072):
        metadata, dense = same_shape(row, ours, "metadata"), same_shape(row, ours, "dense")
        if metadata and dense:
            out.append(((row["us"] + metadata["us"]) / dense["us"], shape_text(row)))
    return out


def targets(ours, pairs):
    """(text, [(figure, shape)], bound, 'least' | 'median' | 'most')"""
    dense = over_cudnn(pairs)
    return [
        ("dense over cuDNN, every row", dense, 0.95, "least"),
        ("dense over cuDNN, median", dense, 1.00, "median"),
        ("dense over cuDNN, batch 1, chunk 512", over_cudnn(pairs, 1, 512), 1.3, "least"),
        ("decode over copy bandwidth, batch 8", of_copy(ours), 0.90, "least"),
        ("table 30 % over dense, TFLOP/s, 8 x 1024 of 128K",
         of_dense(ours, find(ours, "table", 8, 1024, 131072, 0.3),
                  lambda row, d: row["tflops"] / d["tflops"]), 0.90, "least"),
        ("block-sparse 10 % over dense, time, 1024 of 64K",
         of_dense(ours, find(ours, "blocksparse", None, 1024, 65536, 0.1),
                  lambda row, d: d["us"] / row["us"]), 7.5, "least"),
        ("selection and metadata of dense, time, 8 x 1024 of 128K",
         selection_share(ours), 0.05, "most"),
    ]


def judge(figures, bound, how):
    """(verdict, figure, shape)"""
    if not figures:
        return "no data", None, ""
    if how == "median":
        figure, shape = statistics.median(x for x, _ in figures), ""
    else:
        figure, shape = (max if how == "most" else min)(figures)
    good = figure <= bound if how == "most" else figure >= bound
    return "met" if good else "missed", figure, shape


def print_targets(rows):
    """Whether none is missed."""
    good = True
    print(f"\n{'target':<56} {'bound':>7} {'figure':>7}  verdict")
    for text, figures, bound, how in rows:
        verdict, figure, shape = judge(figures, bound, how)
        good = good and verdict != "missed"
        sign = "<=" if how == "most" else ">="
        bound_text = f"{sign} {bound:g}"
        print(f"{text:<56} {bound_text:>7} {number(figure):>7}  {verdict:<8} {shape}".rstrip())
    return good


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("ours", metavar="OURS.jsonl")
    p.add_argument("theirs", metavar="THEIRS.jsonl", nargs="?")
    args = p.parse_args()
    ours = read_rows(args.ours)
    pairs = ratios(ours, read_rows(args.theirs) if args.theirs else [])
    if pairs:
        print_ratios(pairs)
    sys.exit(0 if print_targets(targets(ours, pairs)) else 1)


if __name__ == "__main__":
    main()

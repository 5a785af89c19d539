#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compare attnreplay bench with the rows of other programs, and with its targets.

Reads the JSON lines of 'attnreplay bench attention --json FILE' and of bench_torch.py.  For each
shape it prints our speed divided by theirs, both from CUDA events, then medians, then who is ahead
on which shape, then the targets.  Targets within our own rows use kernel times.  The exit status is
1 when a target is missed.  Who computes more than others is not compared as ahead or behind.

Rows with a round are compared only with rows of the same round, because these ran at the same GPU
clock.  A figure is the median over the rounds.
"""
import argparse
import json
import statistics
import sys

KEY = ("what", "batch", "chunk", "context", "density", "lists")
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
                    row.setdefault("lists", None)
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


def by_case(rows):
    """{(impl, key): {round: row}}, in order.  The round of a single measurement is None."""
    cases = {}
    for row in rows:
        cases.setdefault((row["impl"], row["key"]), {})[row.get("round")] = row
    return cases


def first(case):
    return next(iter(case.values()))


def same_round(case, other):
    """Pairs of rows of the same round; a single measurement is paired with every round."""
    return [(row, other[r if r in other else None]) for r, row in case.items()
            if r in other or None in other]


def speed(row):
    """Speed from CUDA events: TB/s if the work is in bytes, else TFLOP/s; None: not measured."""
    work = row["bytes"] if row["bytes"] else row["flops"]
    return work / row["event_us"] * 1e-6 if work and row["event_us"] else None


def shape_text(row):
    if row["batch"] is None:
        return row["what"]
    density = "" if row["density"] is None else f" at {row['density']:g}"
    return f"{row['what']} {row['batch']} x {row['chunk']} of {row['context']}{density}"


# ---- against other programs ----

def ratios(ours, theirs):
    """(our case, their case, our speed / theirs for each common round), in our order."""
    found = {}
    for (_, key), case in theirs.items():
        found.setdefault(key, []).append(case)
    out = []
    for (_, key), case in ours.items():
        for other in found.get(key, []):
            speeds = [(speed(a), speed(b)) for a, b in same_round(case, other)]
            out.append((case, other, [a / b for a, b in speeds if a and b]))
    return out


def number(x, digits=3):
    return "-" if x is None else f"{x:.{digits}f}"


def median(some):
    known = [x for x in some if x is not None]
    return statistics.median(known) if known else None


def note_of(row, rounds):
    if len(rounds) > 1:
        spread = f"{min(rounds):.3f}-{max(rounds):.3f}"
    else:
        spread = ""
    more = row.get("error") or ("expanded heads" if row.get("gqa") == "expanded" else "")
    return f"{spread:<11} {more}"


def print_ratios(pairs):
    print(f"{'shape':<36} {'ours':>8} {'theirs':>8} {'':7} {'impl':<8} {'ours/theirs':>11} rounds")
    for case, other, rounds in pairs:
        row = first(case)
        unit = "TB/s" if row["bytes"] else "TFLOP/s"
        digits = 3 if row["bytes"] else 1
        a, b = (number(median(map(speed, x.values())), digits) for x in (case, other))
        print(f"{shape_text(row):<36} {a:>8} {b:>8} {unit:<7} {first(other)['impl']:<8} "
              f"{number(median(rounds)):>11} {note_of(first(other), rounds)}".rstrip())
    print()
    groups = {}
    for case, other, rounds in pairs:
        if rounds:
            key = first(case)["what"], first(other)["impl"]
            groups.setdefault(key, []).append(median(rounds))
    for (what, impl), some in groups.items():
        print(f"median of {what} over {impl}: {median(some):.3f}, "
              f"{min(some):.3f} to {max(some):.3f} ({len(some)} rows)")


# ---- who is ahead ----

def same_work(case, other):
    return all(first(case)[k] == first(other)[k] for k in ("flops", "bytes"))


def print_ahead(pairs):
    """The fastest of each shape: how much faster it is than the next or, if not ours, than ours."""
    best = {}
    for case, other, rounds in pairs:
        row, impl = first(case), first(other)["impl"]
        if rounds and impl != "before" and same_work(case, other) and row["batch"] is not None:
            best.setdefault(shape_text(row), {})[impl] = median(rounds)
    print(f"\n{'shape':<36} ahead")
    for shape, beside in best.items():
        impl, ratio = min(beside.items(), key=lambda x: x[1])
        ahead = (f"ours, {ratio:.3f} times {impl}" if ratio >= 1 else
                 f"{impl}, {1 / ratio:.3f} times ours")
        print(f"{shape:<36} {ahead}")


NAMES = {"cudnn": "cuDNN of PyTorch", "flash": "FlashAttention 2 of PyTorch",
         "flex": "flex_attention of PyTorch", "fa3": "FlashAttention 3", "fa4": "FlashAttention 4",
         "flashinfer": "FlashInfer", "before": "attnreplay before"}


def kernel_of(row):
    """The line of the table that a row is part of."""
    if is_small(row):
        return "prefill, 128 to 512 rows of at most 8K"
    name = {"dense": "prefill, causal", "past": "prefill, all keys", "decode": "decode",
            "table": "table", "blocksparse": "block-sparse"}.get(row["what"])
    return f"{name}, blocks of a real selection" if name and row["lists"] else name


def table(pairs):
    """The lines of a Markdown table of the ratios."""
    lines = {}
    for case, other, rounds in pairs:
        kernel, theirs = kernel_of(first(case)), first(other)
        if kernel and rounds and same_work(case, other):
            name = " ".join(filter(None, (NAMES[theirs["impl"]], theirs.get("version"))))
            lines.setdefault((kernel, name), []).append(median(rounds))
    yield "| kernel | beside | shapes | ahead on | least | median | most |"
    yield "|---|---|---|---|---|---|---|"
    for (kernel, name), some in sorted(lines.items()):
        yield (f"| {kernel} | {name} | {len(some)} | {sum(x >= 1 for x in some)} | "
               f"{min(some):.2f} | {median(some):.2f} | {max(some):.2f} |")


def write_table(path, pairs):
    try:
        with open(path, "w", encoding="utf-8") as f:
            f.writelines(line + "\n" for line in table(pairs))
    except OSError as e:
        die(f"{path}: {e.strerror}")


# ---- targets ----

def find(ours, what, batch=None, chunk=None, context=None, density=None):
    """Our measured cases of this kind; None: of any kind."""
    want = {"what": what, "batch": batch, "chunk": chunk, "context": context, "density": density}
    return [c for c in ours.values() if first(c)["us"] is not None and
            all(v is None or first(c)[k] == v for k, v in want.items())]


def same_shape(case, ours, what):
    """The case of this kind and shape, in a list."""
    row = first(case)
    return find(ours, what, row["batch"], row["chunk"], row["context"])[:1]


def is_same(row):
    """Whether cuDNN computes the same; it is causal only over whole contexts."""
    return row["what"] == "past" or row["what"] == "dense" and row["chunk"] == row["context"]


def is_small(row):
    return row["what"] == "dense" and row["chunk"] <= 512 and row["context"] <= 8192


def is_dense(row):
    return row["what"] == "dense" and not is_small(row)


def over(impl, pairs, batch=None, chunk=None, wanted=is_same):
    out = []
    for case, other, rounds in pairs:
        row = first(case)
        if (first(other)["impl"] == impl and wanted(row) and rounds and
                batch in (None, row["batch"]) and chunk in (None, row["chunk"])):
            out.append((median(rounds), shape_text(row)))
    return out


def is_triangle(row):
    return row["what"] == "dense" and not is_same(row)


def over_rounds(cases, others, value):
    """Medians over the rounds of value(row, row of the other case)."""
    return [(median(value(a, b) for a, b in same_round(case, other)), shape_text(first(case)))
            for case in cases for other in others(case) if same_round(case, other)]


def of_copy(ours):
    return over_rounds(find(ours, "decode", batch=8), lambda case: find(ours, "copy")[:1],
                       lambda row, copy: row["tbs"] / copy["tbs"])


def of_dense(ours, cases, value):
    return over_rounds(cases, lambda case: same_shape(case, ours, "dense"), value)


def selection_share(ours):
    """Share of selection and metadata; both are rows of one case, so they have the same rounds."""
    selects = find(ours, "select", 8, 1024, 131072)
    both = [{r: {**row, "us": row["us"] + metadata[r]["us"]} for r, row in case.items()}
            for case in selects for metadata in same_shape(case, ours, "metadata")]
    return of_dense(ours, both, lambda row, d: row["us"] / d["us"])


def mixed(ours):
    """Time of a chunk and decodes, over that of the chunk alone and of the decodes' bytes at the
    rate of a copy.  A bf16 has two bytes, and a key has a value."""
    copy = next(iter(find(ours, "copy")), None)
    out = []
    for case in find(ours, "mixed") if copy else []:
        row = first(case)
        size = 4 * row["batch"] * row["context"] * row["kv_heads"] * row["head_dim"]
        for chunk in find(ours, "dense", 1, row["chunk"], 2 * row["chunk"]):
            us, alone = (median(r["us"] for r in x.values()) for x in (case, chunk))
            out.append((us / (alone + size / first(copy)["tbs"] * 1e-6), shape_text(row)))
    return out


def targets(ours, pairs):
    """(text, [(figure, shape)], bound or None, 'least' | 'median' | 'most')"""
    same = over("cudnn", pairs)
    return [
        ("prefill over cuDNN, every row", same, 0.95, "least"),
        ("prefill over cuDNN, median", same, 1.00, "median"),
        ("prefill over cuDNN, batch 1, chunk 512", over("cudnn", pairs, 1, 512), 1.3, "least"),
        ("causal chunk over cuDNN without a mask, every row",
         over("cudnn", pairs, wanted=is_triangle), None, "least"),
        ("causal chunk over FlashAttention 3, every row",
         over("fa3", pairs, wanted=is_dense), 1.05, "least"),
        ("small batches over FlashAttention 3, every row",
         over("fa3", pairs, wanted=is_small), 1.00, "least"),
        ("decode over copy bandwidth, batch 8", of_copy(ours), 0.90, "least"),
        ("mixed batches over bytes of decodes, time", mixed(ours), 1.05, "most"),
        ("table 30 % over dense, TFLOP/s, 8 x 1024 of 128K",
         of_dense(ours, find(ours, "table", 8, 1024, 131072, 0.3),
                  lambda row, d: row["tflops"] / d["tflops"]), 0.90, "least"),
        ("block-sparse 10 % over dense, TFLOP/s, 1024 of 64K",
         of_dense(ours, find(ours, "blocksparse", None, 1024, 65536, 0.1),
                  lambda row, d: row["tflops"] / d["tflops"]), 0.95, "least"),
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
    if bound is None:
        return "", figure, shape
    good = figure <= bound if how == "most" else figure >= bound
    return "met" if good else "missed", figure, shape


def print_targets(rows):
    """Print the targets and return whether all are met."""
    good = True
    print(f"\n{'target':<56} {'bound':>7} {'figure':>7}  verdict")
    for text, figures, bound, how in rows:
        verdict, figure, shape = judge(figures, bound, how)
        good = good and verdict != "missed"
        sign = "<=" if how == "most" else ">="
        bound_text = "" if bound is None else f"{sign} {bound:g}"
        print(f"{text:<56} {bound_text:>7} {number(figure):>7}  {verdict:<8} {shape}".rstrip())
    return good


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("ours", metavar="OURS.jsonl")
    p.add_argument("theirs", metavar="THEIRS.jsonl", nargs="?")
    p.add_argument("--table", metavar="FILE", help="write a Markdown table of the ratios to FILE")
    args = p.parse_args()
    ours = by_case(read_rows(args.ours))
    pairs = ratios(ours, by_case(read_rows(args.theirs) if args.theirs else []))
    if args.table:
        write_table(args.table, pairs)
    if pairs:
        print_ratios(pairs)
        print_ahead(pairs)
    sys.exit(0 if print_targets(targets(ours, pairs)) else 1)


if __name__ == "__main__":
    main()

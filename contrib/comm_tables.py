#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Collectives that AIConfigurator measured, for --comm and for the files of GPUs.

Install the wheel first, which `graphs` does not need: pip install aiconfigurator-core==0.12.0

  comm_tables.py table GPU >FILE   print a table for --comm
  comm_tables.py preset GPU LIBRARY >FILE
                                   ... of kernels' times alone, as presets have it
  comm_tables.py ring GPU          print the members "ring" of the file of a GPU, and their errors
  comm_tables.py graphs TABLE NS >FILE
                                   ... of TABLE, with NS more for each collective in a graph: what
                                   it takes longer between the kernels of a whole model

GPU is one of a100, h100, h200 and l40s, LIBRARY nccl or vllm.  In a table all-reduces are those of vLLM, which take its
own kernels, torch's or NCCL's by size; all others are NCCL's.  In-line times of all-reduces are
those of vLLM outside of a graph, with the time that the host takes to launch them.  A preset leaves
them out.

A ring is fitted to all-reduces of 2, 4 and 8 ranks and 4 KiB to 128 MiB in a graph: it has the
least mean of |log(modelled / measured)|.  The first is of NCCL, the second of vLLM.  Rings of the
L40S are fitted to two ranks: on the host of the tables, four and eight have no path of their own.
"""
import argparse
import importlib.util
import pathlib
import sys

from later import Later

np, pd, optimize = Later("numpy"), Later("pandas"), Later("scipy.optimize")

# Folder of the tables, versions of vLLM and NCCL, GB/s of the link one way, ranks to fit
GPUS = {"a100": ("a100_sxm", "0.14.0", "2.27.3", 300, (2, 4, 8)),
        "h100": ("h100_sxm", "0.24.0", "2.29.2", 450, (2, 4, 8)),
        "h200": ("h200_sxm", "0.24.0", "2.29.2", 450, (2, 4, 8)),
        "l40s": ("l40s", "0.22.0", "2.27.3", 32, (2,))}
BF16 = 2                                        # sizes in the tables are of elements
FIT_BYTES = (4096, 128 << 20)


def parse_args():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    sub = p.add_subparsers(dest="command", required=True)
    for name, text in (("table", "print a table for --comm"),
                       ("ring", "print the rings of the file of a GPU")):
        sub.add_parser(name, help=text).add_argument("gpu", choices=sorted(GPUS), metavar="GPU")
    preset = sub.add_parser("preset", help="print a table of kernels' times")
    preset.add_argument("gpu", choices=sorted(GPUS), metavar="GPU")
    preset.add_argument("library", choices=("nccl", "vllm"), metavar="LIBRARY")
    graphs = sub.add_parser("graphs", help="print a table with longer collectives in graphs")
    graphs.add_argument("table", metavar="TABLE")
    graphs.add_argument("ns", type=int, metavar="NS")
    return p.parse_args()


def rows(gpu, library, version, op, **of):
    """Ranks, bytes and ns of a collective."""
    wheel = pathlib.Path(importlib.util.find_spec("aiconfigurator_core").origin).parent
    table = "nccl_perf" if library == "nccl" else "custom_allreduce_perf"
    d = pd.read_parquet(wheel / "systems" / "data" / GPUS[gpu][0] / "comm" / library / version /
                        f"{table}.parquet")
    for column, value in {"op_name": op, **of}.items():
        d = d[d[column] == value]
    d = d.sort_values(["num_gpus", "message_size"])
    return (d.num_gpus.to_numpy(float), BF16 * d.message_size.to_numpy(float),
            1e6 * d.latency.to_numpy())


def kernel_of(library, ranks, size):
    """vLLM's own kernels send less than 8 MiB of two ranks; of more ranks it takes one by size."""
    if library == "nccl" or ranks == 2 and size >= 8 << 20:
        return "NCCL"
    return "vllm-custom" if ranks == 2 else "vLLM"


def print_table(gpu, library="vllm", inline=True):
    _, vllm, nccl, *_ = GPUS[gpu]
    print("# attnreplay collectives 1")
    print(f"# gpu {gpu}  vllm {vllm}  nccl {nccl}  from aiconfigurator-core 0.12.0")
    print("collective type ranks hosts mode bytes n p10_ns p50_ns p90_ns kernel")
    others = [(op, "inline", "nccl", rows(gpu, "nccl", nccl, name, nccl_dtype="half"))
              for op, name in (("allgather", "all_gather"), ("reducescatter", "reduce_scatter"),
                               ("alltoall", "alltoall"))]
    if library == "nccl":
        sums = [("inline", rows(gpu, "nccl", nccl, "all_reduce", nccl_dtype="half"))]
    else:
        sums = [(mode, rows(gpu, "vllm", vllm, "all_reduce", kernel_source=source))
                for mode, source in (("inline", "vLLM_custom_eager"), ("graph", "vLLM_custom_graph"))
                if inline or mode == "graph"]
    for op, mode, source, (ranks, size, ns) in (
            *(("allreduce", mode, library, x) for mode, x in sums),
            *others):
        for n, b, t in zip(ranks, size, ns):
            print(f"{op} bf16 {n:.0f} 1 {mode} {b:.0f} 1 {t:.0f} {t:.0f} {t:.0f} "
                  f"{kernel_of(source, n, b)}")


def ring_ns(x, ranks, size):
    fixed, hop, rate = x
    return fixed + 2 * (ranks - 1) * (hop + size / ranks / rate)


def print_ring(gpu):
    _, vllm, nccl, gbps, fitted = GPUS[gpu]
    for name, (ranks, size, ns) in (
            ("NCCL", rows(gpu, "nccl", nccl, "all_reduce", nccl_dtype="half")),
            ("vLLM", rows(gpu, "vllm", vllm, "all_reduce", kernel_source="vLLM_custom_graph"))):
        inside = (size >= FIT_BYTES[0]) & (size <= FIT_BYTES[1])
        use = inside & np.isin(ranks, fitted)

        def errors(x):
            return np.abs(np.log(ring_ns(np.exp(x), ranks, size) / ns))

        best = min((optimize.minimize(lambda x: errors(x)[use].mean(), np.log([4000, hop, rate]),
                                      method="Nelder-Mead", options={"maxiter": 4000})
                    for hop in (30, 300, 900) for rate in (20, 150, 300)), key=lambda r: r.fun)
        fixed, hop, rate = np.exp(best.x)
        print(f'"ring": {{"share": {rate / gbps:.3g}, "fixed_ns": {fixed:.0f}, '
              f'"hop_ns": {hop:.0f}}}')
        print(f"{gpu} {name}: mean error of", ", ".join(
            f"{n} ranks {100 * errors(best.x)[inside & (ranks == n)].mean():.0f} %"
            for n in (2, 4, 8)), file=sys.stderr)


def print_longer(path, ns):
    with open(path, encoding="utf-8") as f:
        for line in f:
            column = line.split()
            if line.startswith("collective "):
                print(f"# in graphs {ns} ns more than that, as between the kernels of a model")
            if column[4:5] == ["graph"] and not line.startswith("#"):
                column[7:10] = [str(int(x) + ns) for x in column[7:10]]
                line = " ".join(column) + "\n"
            print(line, end="")


def main():
    args = parse_args()
    if args.command == "graphs":
        print_longer(args.table, args.ns)
        return
    if args.command == "preset":
        print_table(args.gpu, args.library, inline=False)
    else:
        (print_table if args.command == "table" else print_ring)(args.gpu)


if __name__ == "__main__":
    main()

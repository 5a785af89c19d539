#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Replay a trace in several engines with Dynamo's mocker and with attnreplay, as a table.

The mocker is in the packages ai-dynamo and ai-dynamo-runtime.  TRACE is a file in Mooncake's format.
Its outputs are cut to one token: the mocker adds the times of chunks and of decodes in an iteration
of both, so only iterations of prompts cost the same.  Each takes --cost ms.  Engines have the rules
of vLLM, 8192 tokens an iteration, a prefix cache and --blocks KV blocks of 16 tokens.

Each line has a router: TTFT in ms, the share of prompt tokens that the prefix caches had, and the
seconds that the replay took.  For round-robin, requests with the same engine and the same TTFT are
counted; the mocker's kv_router and our prefix have different rules.

  contrib/compare_mocker.py --requests 2000 --speed 60 conversation_trace.jsonl
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from later import Later  # noqa: E402

core = Later("dynamo._core")

PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "program")
ROUTERS = [("round_robin", "round-robin"), ("kv_router", None), (None, "least"), (None, "vllm"),
           (None, "prefix")]


def parse_args():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("trace", metavar="TRACE")
    p.add_argument("--requests", type=int, default=2000, help="the first of the trace (%(default)s)")
    p.add_argument("--engines", type=int, default=4, help="(%(default)s)")
    p.add_argument("--speed", type=float, default=20, help="times as fast as the trace (%(default)s)")
    p.add_argument("--cost", type=int, default=10, help="ms of an iteration (%(default)s)")
    p.add_argument("--blocks", type=int, default=20000, help="(%(default)s)")
    return p.parse_args()


def by_mocker(a, trace, router, folder):
    """Requests as (arrival ms, prompt, TTFT ms, cached tokens, engine)."""
    out = os.path.join(folder, "mocker.jsonl")
    engine = dict(num_gpu_blocks=a.blocks, block_size=16, max_num_seqs=256, max_model_len=1000000,
                  max_num_batched_tokens=8192, enable_prefix_caching=True,
                  enable_chunked_prefill=True, backend="vllm", worker_type="aggregated",
                  timing_model=dict(type="fixed", prefill_ms=a.cost, decode_ms=a.cost))
    core.run_mocker_trace_replay(
        [trace], extra_engine_args=dict(engine=engine), num_workers=a.engines, router_mode=router,
        arrival_speedup_ratio=a.speed, trace_block_size=512, trace_format="mooncake",
        report_jsonl_path=out, capture_per_request=True)
    with open(out) as f:
        return [(q["arrival_time_ms"], q["input_length"], q["ttft_ms"], q["reused_input_tokens"],
                 q["decode_worker_idx"]) for q in map(json.loads, f)]


def by_attnreplay(a, trace, router, folder):
    db = os.path.join(folder, router + ".db")
    subprocess.run([PROGRAM, "-q", "run", "--engine-defaults", "none", "--policy", "vllm-0.33",
                    "--backend", "cost", "--cost-fixed", "%dms" % a.cost, "--cost-per-token", "0",
                    "--trace", trace, "--format", "mooncake", "--time-scale", repr(1 / a.speed),
                    "--replicas", str(a.engines), "--router", router, "--enable-prefix-caching",
                    "--num-gpu-blocks", str(a.blocks), "--no-async-scheduling", "--intervals", "off",
                    "--keep-tables", "requests", "--db", db], stdout=subprocess.DEVNULL, check=True)
    rows = subprocess.run([PROGRAM, "sql", "--format", "csv", db, "SELECT arrival_ns / 1e6, "
                           "prompt_tokens, ttft_ns / 1e6, cached_tokens, replica "
                           "FROM request_outcome"], stdout=subprocess.PIPE, check=True, text=True)
    return [tuple(float(x) for x in row.split(",")) for row in rows.stdout.splitlines()[1:]]


def timed(make, *args):
    began = time.monotonic()
    rows = make(*args)
    return sorted((round(q[0], 1),) + tuple(q[1:]) for q in rows), time.monotonic() - began


def show(name, rows, seconds):
    ttft = sorted(q[2] for q in rows)
    print("%-24s%10.1f%10.1f%10.1f%9.2f%9.2f" % (
        name, sum(ttft) / len(ttft), ttft[len(ttft) // 2], ttft[len(ttft) * 99 // 100],
        100 * sum(q[3] for q in rows) / sum(q[1] for q in rows), seconds))


def main():
    a = parse_args()
    print("%-24s%10s%10s%10s%9s%9s" % ("", "TTFT", "p50", "p99", "cached %", "s"))
    with tempfile.TemporaryDirectory() as folder:
        trace = os.path.join(folder, "trace.jsonl")
        with open(a.trace) as f, open(trace, "w") as out:
            for line in list(f)[:a.requests]:
                out.write(json.dumps(dict(json.loads(line), output_length=1)) + "\n")
        for theirs, ours in ROUTERS:
            if theirs:
                x, seconds = timed(by_mocker, a, trace, theirs, folder)
                show("mocker, " + theirs, x, seconds)
            if ours:
                y, seconds = timed(by_attnreplay, a, trace, ours, folder)
                show("attnreplay, " + ours, y, seconds)
            if theirs and ours:
                same = [p[4] == q[4] and abs(p[2] - q[2]) < 0.01 for p, q in zip(x, y)]
                print("  the same engine and TTFT: %d of %d requests" % (sum(same), len(x)))


if __name__ == "__main__":
    main()

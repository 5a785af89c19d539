#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Say which files with rules of a policy changed between two versions of an engine.

OLD and NEW are wheels of vLLM or of SGLang, as 'pip download --no-deps' gets them.  A line for each
file: same, changed with its lines, new or gone.  --diff shows the changes.  The status is 1 if
something changed.
"""
import argparse
import difflib
import fnmatch
import sys
import zipfile

# Files whose rules the policies follow, and those that set the engine's defaults.
RULES = {
    "vllm": ["vllm/v1/core/*.py", "vllm/v1/core/sched/*.py", "vllm/v1/engine/core.py",
             "vllm/v1/kv_cache_interface.py", "vllm/v1/request.py",
             "vllm/config/scheduler.py", "vllm/config/cache.py", "vllm/engine/arg_utils.py"],
    "sglang": ["sglang/srt/managers/scheduler.py", "sglang/srt/managers/schedule_policy.py",
               "sglang/srt/managers/schedule_batch.py",
               "sglang/srt/managers/scheduler_components/batch_result_processor.py",
               "sglang/srt/managers/scheduler_components/new_token_ratio_tracker.py",
               "sglang/srt/mem_cache/allocation.py", "sglang/srt/mem_cache/common.py",
               "sglang/srt/mem_cache/prefill_budget.py", "sglang/srt/mem_cache/evict_policy.py",
               "sglang/srt/mem_cache/unified_radix_cache.py",
               "sglang/srt/mem_cache/allocator/base.py",
               "sglang/srt/mem_cache/allocator/paged.py",
               "sglang/srt/mem_cache/allocator/token.py",
               "sglang/srt/mem_cache/unified_cache/unified_tree_core.py",
               "sglang/srt/mem_cache/unified_cache/components/full.py",
               "sglang/srt/arg_groups/memory_hook.py",
               "sglang/srt/arg_groups/fields/schedule.py"],
}


def read_rules(path):
    """The engine of a wheel, and {name: lines} of its files with rules."""
    try:
        with zipfile.ZipFile(path) as wheel:
            names = wheel.namelist()
            for engine, patterns in RULES.items():
                if f"{engine}/__init__.py" in names:
                    return engine, {n: wheel.read(n).decode().splitlines() for n in names
                                    if any(fnmatch.fnmatchcase(n, p) and
                                           n.count("/") == p.count("/") for p in patterns)}
    except (OSError, zipfile.BadZipFile) as e:
        raise SystemExit(f"watch_engines: {path}: {e}; name a wheel") from e
    raise SystemExit(f"watch_engines: {path}: neither vLLM nor SGLang; name one of their wheels")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--diff", action="store_true", help="show the changes")
    parser.add_argument("old", metavar="OLD")
    parser.add_argument("new", metavar="NEW")
    args = parser.parse_args()
    (engine, old), (other, new) = read_rules(args.old), read_rules(args.new)
    if engine != other:
        raise SystemExit(f"watch_engines: {args.old} is {engine}, {args.new} is {other}; "
                         "name two wheels of one engine")
    changed = False
    for name in sorted(old | new):
        lines = list(difflib.unified_diff(old.get(name, []), new.get(name, []), name, name,
                                          lineterm=""))
        more = sum(x.startswith("+") for x in lines[2:])
        less = sum(x.startswith("-") for x in lines[2:])
        what = ("new" if name not in old else "gone" if name not in new else
                "changed" if lines else "same")
        print(f"{what:8}{f'+{more} -{less}' if lines else '':12}{name}")
        changed = changed or what != "same"
        if args.diff:
            print(*lines, sep="\n", end="\n" if lines else "")
    sys.exit(changed)


if __name__ == "__main__":
    main()

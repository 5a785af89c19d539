# SPDX-License-Identifier: Apache-2.0
# Traces and captures.
libattnreplay_a_SOURCES += \
  traces/block_runs.c traces/intern.c traces/intern.h traces/known_files.c \
    traces/known_files.h traces/prompts.c traces/prompts.h traces/read.c traces/token_blocks.c \
    traces/token_blocks.h traces/trace.c \
    traces/trace.h traces/trace_writers.c traces/trace_writers.h traces/turns.c \
    traces/turns.h \
  traces/algebra/id_ranges.c traces/algebra/id_ranges.h \
    traces/algebra/merge.c traces/algebra/merge.h traces/algebra/renumber.c \
    traces/algebra/renumber.h traces/algebra/repeat.c traces/algebra/repeat.h \
    traces/algebra/resample.c traces/algebra/resample.h traces/algebra/sessions.c \
    traces/algebra/sessions.h \
    traces/algebra/shape.c traces/algebra/shape.h traces/algebra/summary.c \
    traces/algebra/summary.h traces/algebra/synth.c traces/algebra/synth.h \
    traces/algebra/synth_sessions.c traces/algebra/synth_sessions.h \
  traces/capture/arc.c traces/capture/arc.h traces/capture/capture.c traces/capture/capture.h \
    traces/capture/origin.c traces/capture/random.c traces/capture/random.h \
  traces/engine/engine_log.c traces/engine/engine_log.h traces/engine/engine_outcomes.c \
    traces/engine/engine_read.h \
  traces/importers/prefix_blocks.c traces/importers/date.c traces/importers/date.h \
    traces/importers/import.c traces/importers/import.h traces/importers/import_aiperf.c \
    traces/importers/import_azure.c traces/importers/import_bailian.c \
    traces/importers/import_burstgpt.c traces/importers/import_canonical.c \
    traces/importers/import_columns.c \
    traces/importers/import_llmservingsim.c traces/importers/import_mooncake.c \
    traces/importers/import_otel.c \
    traces/importers/import_prompts.c traces/importers/import_ragpulse.c \
    traces/importers/import_rollout.c traces/importers/import_splitwise.c \
    traces/importers/import_tracelab.c \
    traces/importers/import_vidur.c traces/importers/import_vllm.c \
    traces/importers/import_weka.c \
    traces/importers/importer_list.h traces/importers/importers.c traces/importers/reader.c \
    traces/importers/reader.h traces/importers/rounds.c traces/importers/trace_record.c \
    traces/importers/trace_record.h
nobase_dist_pkgdata_DATA += \
  traces/samples/README.md traces/samples/azure-2023-code-200.csv traces/samples/niah-2k.arc \
  traces/samples/niah-32k-lists.json
EXTRA_DIST += \
  tests/data/LICENSE-Apache-2.0.txt tests/data/README.md tests/data/burstgpt-1-30.csv \
    tests/data/burstgpt-3-40.csv tests/data/corpus tests/data/mooncake-14.jsonl \
    tests/data/ragpulse-10.jsonl tests/data/ragpulse-components.jsonl \
    tests/data/vidur-code-200.csv tests/data/vllm-steps-40.json tests/data/weka-2.jsonl

check_PROGRAMS += \
  tests/fuzz-capture \
  tests/fuzz-trace \
  tests/t-arc \
  tests/t-capture \
  tests/t-prompts \
  tests/t-coverage \
  tests/t-resample \
  tests/t-token-blocks \
  tests/t-engine-log \
  tests/t-shape \
  tests/t-synth \
  tests/t-trace \
  tests/t-trace-agents \
  tests/t-trace-faults \
  tests/t-trace-formats \
  tests/t-trace-writers
dist_check_SCRIPTS += \
  tests/t-cmd-capture.sh tests/t-trace-cli.sh

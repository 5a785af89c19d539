libattnreplay_a_SOURCES += traces/trace.h traces/model.h traces/capture.h

libattnreplay_a_SOURCES += \
  traces/blocks.c traces/date.c traces/import.c traces/import.h traces/import_aiperf.c \
  traces/import_azure.c traces/import_bailian.c traces/import_burstgpt.c \
  traces/import_canonical.c traces/import_llmservingsim.c traces/import_mooncake.c \
  traces/import_ragpulse.c traces/import_splitwise.c traces/import_vidur.c traces/import_vllm.c \
  traces/importers.c traces/intern.c traces/intern.h traces/merge.c traces/reader.c \
  traces/reader.h traces/record.c traces/shape.c traces/shape.h traces/summary.c \
  traces/summary.h traces/synth.c traces/synth.h traces/trace.c

nobase_dist_pkgdata_DATA += traces/samples/README.md traces/samples/azure-2023-code-200.csv

check_PROGRAMS += tests/t-trace
tests_t_trace_SOURCES = tests/t-trace.c tests/trace_text.h
tests_t_trace_LDADD   = $(TEST_LIBS)
tests_t_trace_LDFLAGS = $(FAULT_LINK) -Wl,--wrap=ZSTD_createDStream
EXTRA_DIST += tests/data/README.md tests/data/LICENSE-Apache-2.0.txt \
  tests/data/mooncake-14.jsonl tests/data/vidur-code-200.csv

check_PROGRAMS += tests/t-trace-faults
tests_t_trace_faults_SOURCES = tests/t-trace-faults.c tests/trace_text.h
tests_t_trace_faults_LDADD   = $(TEST_LIBS)

check_PROGRAMS += tests/t-trace-formats
tests_t_trace_formats_SOURCES = tests/t-trace-formats.c tests/trace_text.h
tests_t_trace_formats_LDADD   = $(TEST_LIBS)
tests_t_trace_formats_LDFLAGS = $(FAULT_LINK)
EXTRA_DIST += tests/data/burstgpt-1-30.csv tests/data/burstgpt-3-40.csv \
  tests/data/ragpulse-10.jsonl tests/data/ragpulse-components.jsonl
check_PROGRAMS += tests/t-shape
tests_t_shape_SOURCES = tests/t-shape.c tests/trace_text.h
tests_t_shape_LDADD   = $(TEST_LIBS)
tests_t_shape_LDFLAGS = $(FAULT_LINK)

check_PROGRAMS += tests/t-synth
tests_t_synth_SOURCES = tests/t-synth.c tests/trace_text.h
tests_t_synth_LDADD   = $(TEST_LIBS)
tests_t_synth_LDFLAGS = $(FAULT_LINK)

check_PROGRAMS += tests/fuzz-trace
tests_fuzz_trace_SOURCES = tests/fuzz-trace.c $(FUZZ_MAIN)
tests_fuzz_trace_LDADD   = $(TEST_LIBS)
EXTRA_DIST += tests/data/corpus

dist_check_SCRIPTS += tests/t-trace-cli.sh
# Models and captures.
libattnreplay_a_SOURCES += \
  traces/arc.c traces/arc.h traces/capture.c traces/model.c traces/rope.c traces/rope.h
nobase_dist_pkgdata_DATA += \
  models/llama-3.1-8b.json models/niah-llama-14m.json models/qwen3-30b-a3b.json \
  traces/samples/niah-2k.arc

check_PROGRAMS += tests/t-capture tests/t-model tests/t-safetensors tests/t-arc
tests_t_capture_SOURCES = tests/t-capture.c
tests_t_capture_LDADD   = $(TEST_LIBS)
tests_t_capture_LDFLAGS = $(FAULT_LINK)
tests_t_model_SOURCES = tests/t-model.c
tests_t_model_LDADD   = $(TEST_LIBS)
tests_t_model_LDFLAGS = $(FAULT_LINK)
tests_t_safetensors_SOURCES = tests/t-safetensors.c
tests_t_safetensors_LDADD   = $(TEST_LIBS)
tests_t_arc_SOURCES = tests/t-arc.c
tests_t_arc_LDADD   = $(TEST_LIBS)

check_PROGRAMS += tests/fuzz-capture
tests_fuzz_capture_SOURCES = tests/fuzz-capture.c $(FUZZ_MAIN)
tests_fuzz_capture_LDADD   = $(TEST_LIBS)

dist_check_SCRIPTS += tests/t-cmd-capture.sh tests/t-capture-hf.sh
EXTRA_DIST += contrib/capture_hf.py

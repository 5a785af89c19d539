libattnreplay_a_SOURCES += traces/trace.h traces/capture/capture.h

libattnreplay_a_SOURCES += \
  traces/importers/blocks.c traces/importers/date.c traces/importers/date.h traces/importers/import.c traces/importers/import.h traces/importers/import_aiperf.c \
  traces/importers/import_azure.c traces/importers/import_bailian.c traces/importers/import_burstgpt.c \
  traces/importers/import_canonical.c traces/importers/import_llmservingsim.c traces/importers/import_mooncake.c \
  traces/importers/import_ragpulse.c traces/importers/import_splitwise.c traces/importers/import_vidur.c traces/importers/import_vllm.c \
  traces/importers/importer_list.h traces/importers/importers.c traces/intern.c traces/intern.h traces/algebra/merge.c traces/algebra/merge.h traces/importers/reader.c \
  traces/importers/reader.h traces/importers/record.c traces/importers/record.h traces/read.c traces/algebra/renumber.c traces/algebra/renumber.h \
  traces/algebra/repeat.c traces/algebra/repeat.h traces/algebra/shape.c traces/algebra/shape.h traces/algebra/summary.c \
  traces/algebra/summary.h traces/algebra/synth.c traces/algebra/synth.h traces/trace.c

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
# Captures.
libattnreplay_a_SOURCES += \
  traces/capture/arc.c traces/capture/arc.h traces/capture/capture.c
nobase_dist_pkgdata_DATA += traces/samples/niah-2k.arc

check_PROGRAMS += tests/t-capture tests/t-arc
tests_t_capture_SOURCES = tests/t-capture.c
tests_t_capture_LDADD   = $(TEST_LIBS)
tests_t_capture_LDFLAGS = $(FAULT_LINK)
tests_t_arc_SOURCES = tests/t-arc.c
tests_t_arc_LDADD   = $(TEST_LIBS)

check_PROGRAMS += tests/fuzz-capture
tests_fuzz_capture_SOURCES = tests/fuzz-capture.c $(FUZZ_MAIN)
tests_fuzz_capture_LDADD   = $(TEST_LIBS)

dist_check_SCRIPTS += tests/t-cmd-capture.sh tests/t-capture-hf.sh
EXTRA_DIST += contrib/capture_hf.py

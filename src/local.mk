bin_PROGRAMS += attnreplay
attnreplay_SOURCES = src/main.c src/bench.h src/bench_device.h src/bench_load.h src/bench_method.c src/bench_paper.c \
                     src/bench_prefill.h src/bench_session.c src/bench_session.h src/bench_table.c src/bench_table.h src/cmd.h src/cmd_bench.c src/cmd_calibrate.c src/cmd_capture.c src/cmd_list.h src/cmd_methods.c \
                     src/cmd_report.c src/cmd_run.c src/cmd_sql.c src/cmd_trace.c \
                     src/run_options.c src/run_options.h src/slo.c src/slo.h
attnreplay_SOURCES += src/cmd_select.c
attnreplay_LDADD   = $(AR_LIBS)
if HAVE_CUDA
attnreplay_SOURCES += src/bench_check.c src/bench_device.c src/bench_prefill.c
else
attnreplay_SOURCES += src/bench_none.c
endif
dist_check_SCRIPTS += tests/t-cmd-bench-method.sh tests/t-cmd-bench.sh tests/t-cmd-calibrate.sh

libattnreplay_a_SOURCES += \
  src/base/bf16.h src/base/binfile.c src/base/binfile.h src/base/both.h src/base/data.c src/base/data.h \
  src/base/dynlib.c src/base/dynlib.h src/base/jsonval.h src/base/log.c src/base/log.h \
  src/base/number.c src/base/number.h src/base/opt.c src/base/opt.h src/base/phase.h src/base/rng.h \
  src/base/safetensors.c src/base/safetensors.h src/base/selection_count.h \
  src/base/stats.c src/base/stats.h src/base/status.c src/base/status.h \
  src/base/text.c src/base/text.h

# Calibrations: one file for each selector that has one.
libattnreplay_a_SOURCES += src/calibrate.c src/calibrate.h
libattnreplay_a_SOURCES += src/calibrate_minference.c
libattnreplay_a_SOURCES += src/calibrate_seer.c src/seer_fit.c src/seer_fit.h
libattnreplay_a_SOURCES += src/calibrate_xattention.c

check_PROGRAMS += tests/t-calibrate tests/t-calibrate-minference
tests_t_calibrate_minference_SOURCES = tests/t-calibrate-minference.c
tests_t_calibrate_minference_LDADD   = $(TEST_LIBS)
tests_t_calibrate_minference_LDFLAGS = $(FAULT_LINK) -Wl,--wrap=pthread_create
tests_t_calibrate_SOURCES = tests/t-calibrate.c
tests_t_calibrate_LDADD   = $(TEST_LIBS)
tests_t_calibrate_LDFLAGS = $(FAULT_LINK) -Wl,--wrap=pthread_create

# What 'attnreplay select' shows.
libattnreplay_a_SOURCES += src/select.c src/select.h src/select_json.c src/select_svg.c \
                           src/select_text.c
dist_check_SCRIPTS += tests/t-cmd-select.sh
check_PROGRAMS += tests/t-select-show
tests_t_select_show_SOURCES = tests/t-select-show.c
tests_t_select_show_LDADD   = $(TEST_LIBS)
tests_t_select_show_LDFLAGS = $(FAULT_LINK)
check_PROGRAMS += tests/t-seer-fit
tests_t_seer_fit_SOURCES = tests/t-seer-fit.c
tests_t_seer_fit_LDADD   = $(TEST_LIBS)
tests_t_seer_fit_LDFLAGS = $(FAULT_LINK)
# What bench method and bench paper measure.
libattnreplay_a_SOURCES += src/bench_match.c src/bench_match.h src/bench_papers.c src/bench_papers.h src/bench_plan.c src/bench_plan.h \
                           src/bench_source.c src/bench_source.h

check_PROGRAMS += tests/t-bench-match tests/t-bench-paper
tests_t_bench_match_SOURCES = tests/t-bench-match.c
tests_t_bench_match_LDADD   = $(TEST_LIBS)
tests_t_bench_match_LDFLAGS = $(FAULT_LINK)
tests_t_bench_paper_SOURCES = tests/t-bench-paper.c
tests_t_bench_paper_LDADD   = $(TEST_LIBS)
tests_t_bench_paper_LDFLAGS = $(FAULT_LINK)

# The version as of this build, not as of the last autoreconf.  The file is
# rewritten only when the text changes, so an unchanged tree rebuilds nothing.
nodist_attnreplay_SOURCES = src/revision.h
src/main.$(OBJEXT) src/bench_table.$(OBJEXT) src/cmd_run.$(OBJEXT): src/revision.h
CLEANFILES    += src/revision.h
src/revision.h: FORCE
	$(AM_V_at)$(MKDIR_P) $(@D); \
	v=`cd $(srcdir) && build-aux/git-version-gen .tarball-version`; \
	printf '#define AR_REVISION "%s"\n' "$$v" >$@.tmp; \
	if cmp -s $@.tmp $@; then rm -f $@.tmp; else mv -f $@.tmp $@; fi
FORCE:
.PHONY: FORCE

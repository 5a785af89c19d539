bin_PROGRAMS += attnreplay
attnreplay_SOURCES = src/main.c src/bench/bench.h src/bench/bench_device.h src/bench/bench_load.h src/bench/bench_method.c src/bench/bench_paper.c \
                     src/bench/bench_prefill.h src/bench/bench_session.c src/bench/bench_session.h src/bench/bench_table.c src/bench/bench_table.h src/cmd.h src/cmd_bench.c src/cmd_calibrate.c src/cmd_capture.c src/cmd_list.h src/cmd_methods.c \
                     src/cmd_report.c src/cmd_run.c src/cmd_sql.c src/cmd_trace.c \
                     src/run/child.c src/run/load.c src/run/method.c src/run/options.c src/run/options.h \
                     src/run/print.c src/run/run.h src/run/scope.c src/run/setup.c src/report/slo.c src/report/slo.h
attnreplay_SOURCES += src/cmd_select.c
attnreplay_LDADD   = $(AR_LIBS)
if HAVE_CUDA
attnreplay_SOURCES += src/bench/bench_check.c src/bench/bench_device.c src/bench/bench_prefill.c
else
attnreplay_SOURCES += src/bench/bench_none.c
endif
dist_check_SCRIPTS += tests/t-cmd-bench-method.sh tests/t-cmd-bench.sh tests/t-cmd-calibrate.sh

# Calibrations: one file for each selector that has one.
libattnreplay_a_SOURCES += src/calibrate/calibrate.c src/calibrate/calibrate.h
libattnreplay_a_SOURCES += src/calibrate/calibrate_minference.c
libattnreplay_a_SOURCES += src/calibrate/calibrate_seer.c src/calibrate/seer_fit.c src/calibrate/seer_fit.h
libattnreplay_a_SOURCES += src/calibrate/calibrate_xattention.c

check_PROGRAMS += tests/t-calibrate tests/t-calibrate-minference
tests_t_calibrate_minference_SOURCES = tests/t-calibrate-minference.c
tests_t_calibrate_minference_LDADD   = $(TEST_LIBS)
tests_t_calibrate_minference_LDFLAGS = $(FAULT_LINK) -Wl,--wrap=pthread_create
tests_t_calibrate_SOURCES = tests/t-calibrate.c
tests_t_calibrate_LDADD   = $(TEST_LIBS)
tests_t_calibrate_LDFLAGS = $(FAULT_LINK) -Wl,--wrap=pthread_create

# What 'attnreplay select' shows.
libattnreplay_a_SOURCES += src/select/select.c src/select/select.h src/select/select_json.c src/select/select_svg.c \
                           src/select/select_text.c
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
libattnreplay_a_SOURCES += src/bench/bench_match.c src/bench/bench_match.h src/bench/bench_papers.c src/bench/bench_papers.h src/bench/bench_plan.c src/bench/bench_plan.h \
                           src/bench/bench_source.c src/bench/bench_source.h

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
src/main.$(OBJEXT) src/bench/bench_table.$(OBJEXT) src/run/method.$(OBJEXT): src/revision.h
CLEANFILES    += src/revision.h
src/revision.h: FORCE
	$(AM_V_at)$(MKDIR_P) $(@D); \
	v=`cd $(srcdir) && build-aux/git-version-gen .tarball-version`; \
	printf '#define AR_REVISION "%s"\n' "$$v" >$@.tmp; \
	if cmp -s $@.tmp $@; then rm -f $@.tmp; else mv -f $@.tmp $@; fi
FORCE:
.PHONY: FORCE

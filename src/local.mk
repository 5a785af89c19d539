# SPDX-License-Identifier: Apache-2.0
bin_PROGRAMS += attnreplay
attnreplay_SOURCES = \
  src/cmd.h src/model_opt.h src/cmd_bench.c src/cmd_calibrate.c src/cmd_capture.c \
    src/cmd_curve.c src/cmd_diff.c src/cmd_eval.c src/cmd_import_engine.c src/cmd_list.h \
    src/cmd_merge.c src/cmd_methods.c src/cmd_report.c src/cmd_run.c src/cmd_search.c \
    src/cmd_select.c src/cmd_sql.c src/cmd_sweep.c src/cmd_trace.c src/cmd_tune.c src/main.c \
  src/bench/bench.h src/bench/bench_attention.c src/bench/bench_collective.c \
    src/bench/bench_decode.c src/bench/collective_host.c \
    src/bench/bench_decode.h src/bench/bench_mixer.c \
    src/bench/bench_mixer.h src/bench/bench_device.h src/bench/bench_host.c src/bench/bench_load.h \
    src/bench/bench_method.c src/bench/bench_paper.c src/bench/bench_paper.h \
    src/bench/bench_paper_measure.c src/bench/bench_prefill.h \
    src/bench/bench_prefill_state.h \
    src/bench/bench_session.c src/bench/bench_session.h src/bench/bench_table.c \
    src/bench/bench_table.h src/bench/bench_values.c src/bench/bench_values.h \
    src/bench/bench_whole.c src/bench/bench_whole.h \
  src/search/search_print.c src/search/search.c src/search/search.h src/search/search_chunk.c \
    src/search/search_gpus.c src/search/search_interval.c src/search/search_rate.c \
  $(DEVICE_CODE)
attnreplay_LDADD   = $(AR_LIBS) $(CUDA_LIBS)
attnreplay_LDFLAGS = $(SAN_LDFLAGS) $(PLUGIN_EXPORTS)
EXTRA_attnreplay_DEPENDENCIES = kernels/select/plugin.list
if HAVE_CUDA
attnreplay_SOURCES += \
  src/bench/bench_check.c src/bench/bench_decode_device.c src/bench/bench_mixer_device.c \
    src/bench/bench_device.c src/bench/collective_device.c \
    src/bench/bench_load.c src/bench/bench_prefill.c src/bench/bench_prefill_memory.c \
    src/bench/bench_run.c
else
attnreplay_SOURCES += src/bench/bench_none.c
endif

# What tests look at as well.
libattnreplay_a_SOURCES += \
  src/capture_json.c src/capture_json.h src/capture_make.c src/capture_make.h src/cmdline.c \
    src/json_file.c src/json_file.h src/methods_json.c src/methods_json.h \
    src/methods_support.c src/methods_support.h src/trace_json.c src/trace_json.h \
  src/bench/bench_case.c src/bench/bench_case.h src/bench/bench_engine.c \
    src/bench/bench_engine.h src/bench/bench_input.c src/bench/bench_input.h \
    src/bench/bench_lists.c src/bench/bench_lists.h \
    src/bench/bench_match.c src/bench/bench_match.h src/bench/bench_papers.c \
    src/bench/bench_papers.h src/bench/bench_plan.c src/bench/bench_plan.h \
    src/bench/bench_sample.c src/bench/bench_sample.h src/bench/collective.c \
    src/bench/collective.h \
  src/calibrate/calibrate.c src/calibrate/calibrate.h src/calibrate/calibrate_duo.c \
    src/calibrate/calibrate_host.c src/calibrate/calibrate_minference.c \
    src/calibrate/calibrate_plan.c \
    src/calibrate/calibrate_roofline.c src/calibrate/calibrate_seer.c \
    src/calibrate/calibrate_skip.c \
    src/calibrate/calibrate_xattention.c src/calibrate/host_fit.c src/calibrate/host_fit.h \
    src/calibrate/plan_measure.c src/calibrate/plan_measure.h src/calibrate/plan_search.c \
    src/calibrate/plan_search.h src/calibrate/roofline_fit.c src/calibrate/roofline_fit.h \
    src/calibrate/roofline_runs.c src/calibrate/roofline_runs.h src/calibrate/seer_fit.c \
    src/calibrate/seer_fit.h \
  src/chart/chart.c src/chart/chart.h src/chart/chart_axis.c src/chart/chart_heat.c \
    src/chart/chart_item.h src/chart/chart_marks.c src/chart/chart_page.c \
    src/chart/chart_panel.c src/chart/chart_style.c src/chart/chart_thin.c \
  src/diff/diff.h src/diff/diff_latency.c src/diff/diff_limit.c src/diff/diff_write.c \
  src/engine/engine_join.c src/engine/engine_join.h src/engine/engine_run.c \
    src/engine/engine_run.h \
  src/eval/eval.c src/eval/eval.h src/eval/eval_json.c src/eval/eval_options.c \
    src/eval/eval_print.c \
    src/eval/results.c src/eval/results.h src/eval/score.c src/eval/score.h src/eval/watch.c \
  src/export/export.c src/export/export.h src/export/export_list.h src/export/html.c \
    src/export/lanes.c src/export/lanes.h src/export/export_names.c src/export/export_names.h \
    src/export/nsys.c src/export/perfetto.c src/export/script.c src/export/script.h \
  src/report/chart_list.h src/report/chart_query.c src/report/chart_query.h \
    src/report/interval.c src/report/interval.h src/report/page.c src/report/page.h \
    src/report/page_first.c src/report/page_first.h \
    src/report/page_items.c src/report/phrase.c src/report/phrase.h \
    src/report/report.c src/report/report.h \
    src/report/report_html.c src/report/report_query.h src/report/result_rows.c \
    src/report/result_rows.h \
    src/report/section_list.h src/report/sections.c src/report/slo.c src/report/slo.h \
    src/report/source.c src/report/source.h src/report/sums.c src/report/sums.h \
    src/report/write_csv.c src/report/write_html.c \
    src/report/write_html.h src/report/write_json.c src/report/write_markdown.c \
    src/report/write_table.c src/report/writer.h src/report/writer_list.h src/report/writers.c \
  src/run/all.c src/run/child.c src/run/densities.c src/run/engine_args.c \
    src/run/engine_args.h src/run/run_comm.c src/run/run_draws.c \
    src/run/run_experts.c \
    src/run/engine_defaults.c src/run/engine_defaults.h \
    src/run/run_energy.c src/run/facts.c src/run/figures.c \
    src/run/run_apart.c \
    src/run/run_groups.c src/run/run_turns.c src/run/run_json.c src/run/key.c src/run/key.h \
    src/run/key_inputs.c src/run/key_inputs.h src/run/run_formats.c \
    src/run/run_layers.c src/run/run_memory.c src/run/load.c src/run/run_method.c \
    src/run/options.c src/run/options.h src/run/rank_env.c \
    src/run/rank_group.c src/run/rank_group.h \
    src/run/replicates.c src/run/replicates.h \
    src/run/run_print.c src/run/run_ranks.c src/run/run_stages.c src/run/resume.c src/run/resume.h \
    src/run/resume_check.c src/run/run.h src/run/scope.c src/run/setup.c src/run/run_weights.c \
    src/run/workers.c src/run/workers.h \
  src/search/rates.c src/search/rates.h src/search/search_json.c \
  src/select/curve.c src/select/curve.h src/select/select.c src/select/select.h \
    src/select/select_args.h src/select/select_chunk.c src/select/select_chunk.h \
    src/select/select_files.c src/select/select_files.h src/select/select_json.c \
    src/select/select_run.c src/select/select_run.h src/select/select_svg.c \
    src/select/select_text.c \
  src/sweep/publish.c src/sweep/publish.h src/sweep/sweep_file.c src/sweep/sweep_file.h \
    src/sweep/sweep_json.c src/sweep/sweep_json.h \
    src/sweep/sweep_list.c src/sweep/sweep_list.h src/sweep/sweep_point.c \
    src/sweep/sweep_point.h src/sweep/sweep_run.c src/sweep/sweep_run.h src/sweep/scratch.c \
    src/sweep/scratch.h \
  src/tune/match.c src/tune/match.h src/tune/match_sample.c \
    src/tune/match_sample.h src/tune/tune_prompts.c src/tune/tune_prompts.h \
    src/tune/target.c \
    src/tune/threshold.c src/tune/threshold.h src/tune/tune.c src/tune/tune.h \
    src/tune/tune_captures.c src/tune/tune_print.c

# The SQL of all sections and of all charts, one string NAME_sql each.
SECTION_SQL = $(wildcard $(srcdir)/src/report/sections/*.sql)
SECTION_INC = $(SECTION_SQL:$(srcdir)/%.sql=%.inc)
CHART_SQL = $(wildcard $(srcdir)/src/report/charts/*.sql)
CHART_INC = $(CHART_SQL:$(srcdir)/%.sql=%.inc)
EXTRA_DIST += $(SECTION_SQL) $(CHART_SQL) src/report/page.css src/report/page.js
CLEANFILES += $(SECTION_INC) $(CHART_INC) src/report/sections.inc src/report/charts.inc \
  src/report/page.css.inc src/report/page.js.inc
SQL_STRINGS = for inc in $^; do \
    echo "static const char `basename $$inc .inc`_sql[] =" && cat $$inc && echo ';' || exit 1; \
  done >$@.tmp && mv -f $@.tmp $@
src/report/sections.$(OBJEXT): src/report/sections.inc
src/report/sections.inc: $(SECTION_INC)
	$(AM_V_GEN)$(SQL_STRINGS)
src/report/page_items.$(OBJEXT): src/report/charts.inc
src/report/charts.inc: $(CHART_INC)
	$(AM_V_GEN)$(SQL_STRINGS)

# Style and script of the HTML report, as C strings.
src/report/page.$(OBJEXT): src/report/page.css.inc src/report/page.js.inc
src/report/page.css.inc src/report/page.js.inc: src/report/%.inc: $(srcdir)/src/report/%
	$(AM_V_GEN)$(MKDIR_P) $(@D) && $(TEXT_STRING) $< >$@.tmp && mv -f $@.tmp $@

# The SQL of the exporters, a string each.
EXTRA_DIST += src/export/nsys.sql src/export/nsys_tables.sql src/export/perfetto.sql \
  src/export/views.sql
CLEANFILES += src/export/nsys.inc src/export/nsys_tables.inc src/export/perfetto.inc \
  src/export/views.inc
src/export/export.$(OBJEXT): src/export/views.inc
src/export/nsys.$(OBJEXT): src/export/nsys.inc src/export/nsys_tables.inc
src/export/perfetto.$(OBJEXT): src/export/perfetto.inc

check_PROGRAMS += \
  tests/make-tasks \
  tests/t-bench \
  tests/t-bench-engine \
  tests/t-bench-match \
  tests/t-bench-paper \
  tests/t-calibrate \
  tests/t-calibrate-minference \
  tests/t-calibrate-plan \
  tests/t-chart \
  tests/t-diff \
  tests/t-engine-run \
  tests/t-eval \
  tests/t-eval-results \
  tests/t-eval-score \
  tests/t-export \
  tests/t-host-fit \
  tests/t-json \
  tests/t-rates \
  tests/t-resumed \
  tests/t-roofline-fit \
  tests/t-run-key tests/t-run-tokens \
  tests/t-run-match \
  tests/t-run-memory \
  tests/t-sections \
  tests/t-seer-fit \
  tests/t-select-show \
  tests/t-sweep tests/t-tables \
  tests/t-tune \
  tests/t-tune-prompts
dist_check_SCRIPTS += \
  tests/t-assumptions.sh tests/t-engine-args.sh tests/t-engine-defaults.sh \
  tests/t-bench-collective.sh \
  tests/t-cmd-bench.sh tests/t-cmd-bench-mixer.sh tests/t-cmd-bench-method.sh \
    tests/t-cmd-calibrate.sh \
    tests/t-cmd-diff.sh tests/t-cmd-eval.sh tests/t-cmd-export.sh tests/t-cmd-json.sh \
    tests/t-edges.sh \
    tests/t-cmd-select.sh tests/t-cmd-tune.sh tests/t-foreign.sh tests/t-html.sh \
    tests/t-import-engine.sh tests/t-match.sh tests/t-outputs.sh \
    tests/t-repeats.sh tests/t-report.sh tests/t-resume.sh tests/t-run-capture.sh \
    tests/t-run-latent.sh tests/t-run-models.sh tests/t-run-replicas.sh tests/t-run-weights.sh \
    tests/t-search.sh tests/t-search-gpus.sh \
    tests/t-slurm.sh tests/t-sql.sh tests/t-stored-views.sh \
    tests/t-sweep-cmd.sh tests/t-truth.sh

# Rewritten only when the text changes, so an unchanged tree rebuilds nothing.
nodist_attnreplay_SOURCES = src/revision.h
src/cmd_import_engine.$(OBJEXT) src/cmd_sweep.$(OBJEXT) src/main.$(OBJEXT) \
  src/bench/bench_table.$(OBJEXT) src/report/phrase.$(OBJEXT) src/run/run_method.$(OBJEXT) \
  src/run/resume_check.$(OBJEXT): src/revision.h
CLEANFILES    += src/revision.h
src/revision.h: FORCE
	$(AM_V_at)$(MKDIR_P) $(@D); \
	printf '#define AR_REVISION "%s"\n' "$(REVISION)" >$@.tmp; \
	if cmp -s $@.tmp $@; then rm -f $@.tmp; else mv -f $@.tmp $@; fi
FORCE:
.PHONY: FORCE

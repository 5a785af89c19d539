# SPDX-License-Identifier: Apache-2.0
bashcompletiondir = $(datadir)/bash-completion/completions
dist_bashcompletion_DATA = contrib/attnreplay.bash
fishcompletiondir = $(datadir)/fish/vendor_completions.d
dist_fishcompletion_DATA = contrib/attnreplay.fish
# zsh finds the completion of a command by the name of the file.
zshcompletiondir = $(datadir)/zsh/site-functions
nodist_zshcompletion_DATA = contrib/_attnreplay
CLEANFILES += $(nodist_zshcompletion_DATA)
contrib/_attnreplay: contrib/attnreplay.zsh
	$(AM_V_GEN)$(MKDIR_P) $(@D) && cp -f $(srcdir)/contrib/attnreplay.zsh $@

nobase_dist_pkgdata_SCRIPTS += \
  contrib/agents.sh \
    contrib/bench.sh contrib/bench_compare.py contrib/bench_replay.sh contrib/bench_torch.py \
    contrib/capture_hf.py contrib/check_configs.sh contrib/check_costs.sh \
    contrib/check_engine_rates.sh contrib/check_intervals.py contrib/check_roofline.sh \
    contrib/check_search_interval.sh \
    contrib/comm_share.sh contrib/comm_tables.py contrib/compare_hf.py contrib/compare_mocker.py \
    contrib/curve.sh \
    contrib/curve_bound.py \
    contrib/dense_as_engine.py contrib/engine_rates.py contrib/eval_methods.sh \
    contrib/gguf_to_safetensors.py contrib/llmservingsim_rates.py contrib/make_tasks.py \
    contrib/page_png.sh contrib/program contrib/random_weights.py \
    contrib/rank_ends.sh \
    contrib/schedule_digests.sh \
    contrib/seer_gate_to_safetensors.py contrib/served_table.py contrib/vllm_serve_steps.py \
    contrib/vllm_collectives.py contrib/vllm_steps.py contrib/vllm_tp_steps.py \
    contrib/watch_engines.py
nobase_dist_pkgdata_DATA += \
  contrib/bench.cases contrib/common.sh contrib/later.py contrib/safetensors_file.py \
    contrib/selector/Makefile contrib/selector/pagebound.c contrib/selector/pagebound.h \
    contrib/selector/pagebound_device.cu contrib/slurm/sweep.sbatch
EXTRA_DIST += \
  contrib/attnreplay.zsh \
  doc/accuracy-density-32k.csv doc/accuracy-density-32k.svg doc/accuracy-density.csv \
    doc/accuracy-density.svg doc/architecture.md doc/architecture.svg doc/engine.md \
    doc/intervals.md doc/kernels.md doc/pictures.md doc/plugin.md doc/report-chunks.db.gz \
    doc/report-chunks.png doc/report-demo.db.gz doc/report-demo.png doc/report-h200.db.gz \
    doc/report-h200.png
dist_check_SCRIPTS += \
  tests/t-bench-contrib.sh tests/t-capture-hf.sh tests/t-compare-hf.sh tests/t-contrib.sh \
    tests/t-curve.sh \
    tests/t-dense-as-engine.sh tests/t-gguf.sh tests/t-make-tasks.sh tests/t-random-weights.sh \
    tests/t-seer-gate.sh tests/t-vllm-serve-steps.sh tests/t-vllm-steps.sh \
    tests/t-vllm-tp-steps.sh tests/t-watch-engines.sh

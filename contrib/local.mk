bashcompletiondir = $(datadir)/bash-completion/completions
dist_bashcompletion_DATA = contrib/attnreplay.bash

EXTRA_DIST += contrib/bench.cases contrib/bench.sh contrib/bench_compare.py
EXTRA_DIST += contrib/bench_replay.sh contrib/bench_torch.py contrib/check_costs.sh
dist_check_SCRIPTS += tests/t-bench-contrib.sh
EXTRA_DIST += contrib/curve.sh contrib/curve_bound.py contrib/curve_plot.py
EXTRA_DIST += doc/accuracy-density.csv doc/accuracy-density.svg
EXTRA_DIST += doc/accuracy-density-32k.csv doc/accuracy-density-32k.svg
dist_check_SCRIPTS += tests/t-curve.sh
EXTRA_DIST += contrib/seer_gate_to_safetensors.py
dist_check_SCRIPTS += tests/t-seer-gate.sh

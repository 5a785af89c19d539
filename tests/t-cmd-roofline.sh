#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# attnreplay run --backend roofline, from the options to the report.
. "$srcdir/tests/tap.sh"
cd "$tmp" || exit 99

trace=$ATTNREPLAY_DATA/traces/samples/azure-2023-code-200.csv
arc=$ATTNREPLAY_DATA/traces/samples/niah-2k.arc
roofline() { # roofline OPTION...
	"$ATTNREPLAY" run $plain --backend roofline --trace "$trace" --requests 4 \
		--max-prompt-tokens 2000 --max-output-tokens 8 "$@"
}
value() { "$ATTNREPLAY" sql --format csv "$1" "$2" | tail -n 1; }

# ---- refusals ----

ok 'an unknown GPU names those there are' fails 3 'give one of a100, a100-40gb, h100, h200, l40s, rtx-4090, rtx-pro-6000' \
	roofline --model llama-3.1-8b --gpu gtx
ok 'a sparse method needs a density' fails 2 'give it with --density bfla=SHARE' \
	roofline --model llama-3.1-8b --method dense,bfla
ok 'a density needs a method' fails 2 'no sparse method has this name' \
	roofline --model llama-3.1-8b --density bfla=0.1
ok '... each item of a list' fails 2 "density 'bfla=0.1' has no effect: no sparse method has" \
	roofline --model llama-3.1-8b --method flashprefill --density flashprefill=0.3,bfla=0.1
for bad in bfla=0.1, bfla=0.1,, bfla= bfla 0.1 bfla=0.1,flashprefill bfla=2 bfla=-1 bfla=nan bfla=0.1x; do
	ok "a density is no '$bad'" fails 2 "^attnreplay: density '[^ ]*': want " \
		roofline --model llama-3.1-8b --method bfla,flashprefill --density "$bad"
done
ok 'a capture tells the density' fails 2 'density has no effect with --capture' \
	roofline --model niah-llama-14m --capture "$arc" --method bfla --density bfla=0.1
ok 'options of captures need one' fails 2 'sample-layers has no effect without --capture' \
	roofline --model llama-3.1-8b --sample-layers 2
ok 'there is nothing to compare with' \
	fails 2 'accuracy has no effect with a backend that computes no reference' \
	roofline --model llama-3.1-8b --accuracy 0.5
ok 'other backends have no densities' fails 2 'density has no effect with backend cost' \
	"$ATTNREPLAY" run --backend cost --trace "$trace" --density bfla=0.1
ok '... and no GPU to model' fails 2 'gpu has no effect with backend cost' \
	"$ATTNREPLAY" run --backend cost --trace "$trace" --gpu h100
ok 'a model is needed' fails 2 'no model given' roofline
is 'the help lists the GPUs' "$("$ATTNREPLAY" run --help | tr -s '\n ' ' ' |
	sed -n 's/.*--gpu [^[]*\(\[one of [^;]*\);.*/\1/p')" '[one of a100, a100-40gb, h100, h200, l40s, rtx-4090, rtx-pro-6000'

# ---- runs ----

ok 'two methods without a GPU' roofline --model qwen3-30b-a3b --method dense,flashprefill \
	--density flashprefill=0.3 --max-num-batched-tokens 512 --db x.db
roofline --model qwen3-30b-a3b --method dense,flashprefill --density flashprefill=0.3 \
	--max-num-batched-tokens 512 >out 2>err
is 'the clock is modelled' "$(grep ^clock out)" \
	'clock     modelled, not measured: the roofline of h200'
is '... and so are all costs' "$(value x.db "SELECT group_concat(DISTINCT clock) || ' '
	|| group_concat(DISTINCT cost_source) FROM run JOIN iteration USING(run_id)")" \
	'modelled modelled'
is '... which are those of the phases and launches' "$(value x.db "SELECT count(*) FROM (
	SELECT end_ns - start_ns - host_ns - sum(gpu_ns) - sum(kernels) * iif(prefill_tokens,
		1413, 169) AS rest FROM iteration JOIN iteration_phase USING(run_id, iter_no)
	GROUP BY run_id, iter_no) WHERE rest")" 0
"$ATTNREPLAY" report x.db >report
is 'the report says so' "$(grep -c ' modelled  *1, 2  *times are modelled, not measured: the roofline of h200' \
	report)" 1
is '... at the clock' "$(grep -c 'modelled + host' report)" 2
ok '... beside times by phase' grep -q ' 2  flashprefill  select ' report
ok '... and figures against dense' grep -q '^  2  flashprefill *1  ttft' report
is 'the same again is the same' "$(roofline --model qwen3-30b-a3b --method dense \
	--max-num-batched-tokens 512 | grep TTFT)" "$(grep -m 1 TTFT out)"
is 'a slower GPU is slower' "$(roofline --model llama-3.1-8b --gpu l40s --db g.db >/dev/null 2>&1
	roofline --model llama-3.1-8b --gpu h100 --db g.db >/dev/null 2>&1
	value g.db 'SELECT (SELECT sum(gpu_ns) FROM iteration_phase WHERE run_id = 1) >
		2 * (SELECT sum(gpu_ns) FROM iteration_phase WHERE run_id = 2) AS slower')" 1

ok 'layers may differ' roofline --model gemma-3-12b --method dense,flashprefill \
	--density flashprefill=0.3 --tp 2 --db m.db
phases() { # phases COLUMN RUN: of all layers
	value m.db "SELECT $1 FROM iteration_phase JOIN phase USING(phase_id) WHERE run_id = $2"
}
is '... of which the full ones select' \
	"$(phases "max(kernels) FILTER (WHERE name = 'select')" 2)" \
	"$((8 * $(value x.db "SELECT max(kernels) FROM iteration_phase JOIN phase USING(phase_id)
		WHERE run_id = 2 AND name = 'select'") / 48))"
ok 'layers need no attention' roofline --model qwen3-next-80b-a3b --tp 8 --db m.db
is '... 36 of 48 mix in four kernels, and in one for decodes' \
	"$(phases "max(kernels) FILTER (WHERE name = 'mix')" 3)" $((36 * 5))
ok 'nor all positions' roofline --model mistral-7b-v0.1 --db m.db
ok 'sinks are no matter' roofline --model gpt-oss-20b --db m.db

ok 'a capture gives the densities' roofline --model niah-llama-14m --capture "$arc" \
	--extend tile --sample-layers 1 --method flashprefill:alpha=0.2,sink=1,window=2 \
	--max-num-batched-tokens 256 --db c.db
roofline --model niah-llama-14m --method flashprefill --density flashprefill=1 \
	--max-num-batched-tokens 256 --db c.db >/dev/null 2>&1
attend() { # attend RUN: ns of a layer
	value c.db "SELECT sum(gpu_ns) / layers_run AS ns FROM run JOIN iteration_phase USING(run_id)
		JOIN phase p USING(phase_id) WHERE run_id = $1 AND p.name = 'attend'"
}
is '... which are below 1' "$(($(attend 1) < $(attend 2)))" 1
ok 'modelled costs are no measured ones' fails 2 'x.db: run 1 is modelled; costs need a finished run' \
	"$ATTNREPLAY" run --backend cost --trace "$trace" --costs x.db:1
ok '... nor the only finished run' fails 2 'no run is done; costs need a finished run' \
	"$ATTNREPLAY" run --backend cost --trace "$trace" --costs x.db
roofline --model llama-3.1-8b --clock formula --db f.db >/dev/null 2>&1
is 'the formula may be the clock' "$(value f.db 'SELECT clock FROM run')" cost

# ---- densities of several methods ----

two='bfla,flashprefill:alpha=0.2,sink=1'
stored() { "$ATTNREPLAY" sql --format csv d.db "SELECT value FROM run_param WHERE run_id = $1 AND
	key = 'density'" | tail -n 1; }
roofline --model llama-3.1-8b --method $two --density bfla=0.2 \
	--density flashprefill:alpha=0.2,sink=1=0.3 --db d.db >/dev/null
roofline --model llama-3.1-8b --method $two --density bfla=0.2,flashprefill:alpha=0.2,sink=1=0.3 \
	--db d.db >/dev/null
is 'a list of densities is as options of one each, with commas in its methods' "$(stored 3)" "$(stored 1)"
is '... also for the key of a run' "$(value d.db 'SELECT count(DISTINCT run_key) FROM run')" 2
limit='search rate --slo ttft:p50:300ms --precision 0.1 --lowest 2 --highest 3'
roofline_search() { # METHODS DENSITIES
	"$ATTNREPLAY" $limit $plain --backend roofline --trace "$trace" --model llama-3.1-8b \
		--method "$1" --density "$2"
}
curve() { awk '/(yes|no)$/' "$1"; }
roofline_search dense,bfla,flashprefill bfla=0.2,flashprefill=0.3 >all
for m in bfla=0.2 flashprefill=0.3; do roofline_search ${m%=*} $m; done >each
is 'in a search each method takes its own' "$(curve all | tail -n "$(curve each | wc -l)")" \
	"$(curve each)"
"$ATTNREPLAY" $limit $plain --backend roofline --trace "$trace" --model llama-3.1-8b --db s.db \
	--method dense,bfla,flashprefill --density bfla=0.2,flashprefill=0.3 >/dev/null
is '... which its points store' "$("$ATTNREPLAY" sql --format csv s.db "SELECT DISTINCT m.value || ' ' ||
	d.value AS x FROM run_param m LEFT JOIN run_param d ON d.run_id = m.run_id AND d.key = 'density'
	WHERE m.key = 'method'" | tail -n +2)" '
"bfla [""bfla=0.2""]"
"flashprefill [""flashprefill=0.3""]"'
ok 'a search refuses one of no method' fails 2 "density 'bfla=0.2' has no effect: no sparse method has" \
	roofline_search dense,flashprefill bfla=0.2,flashprefill=0.3
cat >d.sweep <<EOT
trace = $trace
requests = 2
backend = roofline
model = llama-3.1-8b
method = [dense, flashprefill, "flashprefill,bfla"]
density = flashprefill=0.3,bfla=0.2
EOT
sweep() { "$ATTNREPLAY" sweep "$@"; }
is 'a point of a sweep has those of its own methods' \
	"$(sweep d.sweep --plan | sed 's/.*--method //')" 'dense
flashprefill --density flashprefill=0.3
flashprefill,bfla --density flashprefill=0.3 --density bfla=0.2'
is '... with which it runs' "$(sweep d.sweep --out d --all | tail -n 1)" \
	'3 points: 3 done, 0 there already, 0 failed, 0 to do'
is '... and is there then' "$(sweep d.sweep --out d --plan | cut -f 3 | sort -u)" 'done'
sed 's/bfla=/bfl=/' d.sweep >bad.sweep
ok 'a sweep refuses one of no method' says 2 \
	"bad.sweep: density 'bfl=0.2' has no effect: no method of the file has this name; leave it out" \
	"$ATTNREPLAY" sweep bad.sweep --count

# ---- calibration ----

ok 'calibration needs a run' fails 2 'no measured run to calibrate on; name one' \
	"$ATTNREPLAY" calibrate roofline -o x.json
ok '... a measured one' fails 2 'x.db: run 1 is modelled' \
	"$ATTNREPLAY" calibrate roofline x.db:1 -o x.json
ok '... and no capture' fails 2 'capture has no effect with measured runs' \
	"$ATTNREPLAY" calibrate roofline x.db:1 --capture "$arc" -o x.json
if command -v sqlite3 >/dev/null; then
	cp x.db cupti.db
	sqlite3 cupti.db "UPDATE run SET clock = 'cupti'; UPDATE iteration SET span_ns = end_ns - start_ns"
	"$ATTNREPLAY" calibrate roofline cupti.db:1 --gpu h200 -o y.json >fit
	is 'decodes beside chunks are no points of decodes' "$(awk '$1 == "decode" { print $2 }' fit)" \
		"$(sqlite3 cupti.db "SELECT sum(NOT prefill_tokens AND decode_tokens > 0) FROM iteration
		WHERE run_id = 1")"
	ok '... and some come with them' [ "$(sqlite3 cupti.db "SELECT sum(prefill_tokens AND decode_tokens > 0)
		FROM iteration WHERE run_id = 1")" -gt 0 ]
else
	skip 'decodes beside chunks are no points of decodes' 'no sqlite3'
	skip '... and some come with them' 'no sqlite3'
fi
ok 'the comparison says how it is used' fails 2 '^usage: contrib/check_roofline.sh DB MEASURED' \
	sh "$srcdir/contrib/check_roofline.sh" x.db
is 'a run is off by nothing from itself' "$(sh "$srcdir/contrib/check_roofline.sh" same.db x.db \
	2>err | tail -n 1)" "worst: 0.0 % of the GPU's time (limit 20)"
is '... which the comparison says of both methods' "$(LIMIT=1 sh \
	"$srcdir/contrib/check_roofline.sh" other.db x.db --gpu l40s --density flashprefill=0.9 \
	>other 2>err; echo $? && grep -c 'dense\|flashprefill' other)" '1
2'
finish

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: contrib/agents.sh FOLDER --trace FILE [OPTION]...
#
# What sparse decodes and prefills do to agents: replay sessions with each method and compare.
# Each session ends before its first request of more than 131072 tokens.  Of what is left it
# begins in the last fifth, where one request fills the prefix cache and is not counted.  Eight
# users take the sessions in turn.  A think time of more than 2 s counts as 2 s.  OPTION... are
# options of 'attnreplay run', and override these.  Writes to FOLDER:
#
#   agents.db    all runs
#   agents.txt   the output of run
#   agents.md    a table, also printed: medians of TTFT, TPOT and of whole turns in ms, sessions an
#                hour, and, where --accuracy asks for it, error and recall of prefill and decode
#
#   ATTNREPLAY  the program (default: see contrib/program)
#   METHODS     the list of methods (default: those below)
set -eu
. "$(dirname "$0")/common.sh"
[ $# -gt 1 ] || wrong_usage
out=$1
shift

all=dense
for prefill in dense compact-fp:alpha=0.06; do
	[ $prefill = dense ] || all=$all,$prefill
	for part in decode=streaming,sink=64,recent=4096 evict=snapkv,budget=4096 \
		decode=quest,budget=4096,share=sum evict=snapkv,budget=4096/decode=rocket,budget=512 \
		skip=softmax,prefill=1000,decode=500
	do
		all=$all,$prefill/$part
	done
done
keep='--evict-cache keep'
[ -z "${METHODS:-}" ] || keep=

mkdir -p "$out"
# shellcheck disable=SC2086
attnreplay run --longest-request 131072 --session-starts zero --start-within 0.8:1 \
	--loop users --users 8 --think-cap 2s $keep --intervals off \
	--method "${METHODS:-$all}" --db "$out/agents.db" "$@" >>"$out/agents.txt"
attnreplay sql --format markdown "$out/agents.db" - <<'SQL' | tee "$out/agents.md"
WITH half AS (
    SELECT run_id, half, sum(n * rel_l2_mean) / sum(n) AS error,
      sum(n * recall_mean) / sum(n) AS recall
    FROM v_accuracy GROUP BY run_id, half)
SELECT method, ttft.p50 AS "TTFT", tpot.p50 AS "TPOT", turn.p50 AS "turn",
  (SELECT 3600e3 * sum(finished) / (max(end_ms) - min(start_ms)) FROM v_session s
    WHERE s.run_id = r.run_id) AS "sessions an hour",
  prefill.error AS "prefill: error", prefill.recall AS "recall",
  decode.error AS "decode: error", decode.recall AS "recall"
FROM v_run r
  JOIN v_latency ttft USING (run_id, method) JOIN v_latency tpot USING (run_id, method)
  JOIN v_latency turn USING (run_id, method)
  LEFT JOIN half prefill ON prefill.run_id = r.run_id AND prefill.half = 'prefill'
  LEFT JOIN half decode ON decode.run_id = r.run_id AND decode.half = 'decode'
WHERE ttft.metric = 'ttft' AND tpot.metric = 'tpot' AND turn.metric = 'e2e'
ORDER BY r.run_id
SQL

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# attnreplay trace on real files.
. "$srcdir/tests/tap.sh"

azure=$srcdir/traces/samples/azure-2023-code-200.csv
vidur=$srcdir/tests/data/vidur-code-200.csv
mooncake=$srcdir/tests/data/mooncake-14.jsonl
trace() { "$ATTNREPLAY" trace "$@"; }
figure() { # figure NAME FILE...: the value of a line of info
	name=$1
	shift
	trace info "$@" 2>/dev/null | sed -n "s/^$name  *//p"
}

# info
is 'info names the format'         "$(figure format "$azure")" azure
is 'info names the file'           "$(figure file "$azure")" azure-2023-code-200.csv
is 'info gives the hash of the file' "$(figure sha256 "$azure")" \
	"$(sha256sum <"$azure" | cut -d' ' -f1)"
is 'info counts requests'          "$(figure requests "$azure")" 200
is 'info dates the first arrival' \
	"$(figure 'first arrival' "$azure")" 2023-11-16T18:17:03.979960000Z
is 'info measures the span'        "$(figure span "$azure")" '199.089585000 s'
is 'info divides by it'            "$(figure rate "$azure")" '1.005 /s'
sum=$(tr -d '\r' <"$azure" | awk -F, 'NR > 1 { p += $2; o += $3 } END { print p, o }')
is 'info sums tokens' "$(figure 'prompt tokens' "$azure" | sed 's/^sum //; s/,.*//') $(
	figure 'output tokens' "$azure" | sed 's/^sum //; s/,.*//')" "$sum"
rank() { # rank COLUMN K: the K-th smallest value of the 200
	tr -d '\r' <"$azure" | tail -n +2 | cut -d, -f"$1" | sort -n | sed -n "$2p"
}
is 'info ranks prompts' "$(figure 'prompt tokens' "$azure" | sed 's/.*, min/min/')" \
	"min $(rank 2 1), p50 $(rank 2 100), p90 $(rank 2 180), p99 $(rank 2 198), max $(
		rank 2 200)"
is 'info counts arrival times'     "$(figure 'distinct arrivals' "$azure")" 200
is 'info gives the mean' "$(figure 'prompt tokens' "$azure" | sed 's/.*mean //; s/,.*//')" \
	"$(tr -d '\r' <"$azure" | awk -F, 'NR > 1 { s += $2 } END { printf "%.1f", s / (NR - 1) }')"
second() { trace head -n 999 "$azure" |
	awk 'NR > 1 && $2 < 199 { n[int($2)]++ } END { for (s = 0; s < 199; s++)
	{ if (n[s] > most) most = n[s]; idle += !n[s] }
	printf "at most %d requests, idle %.1f %%", most, idle / 1.99 }'; }
is 'info looks at every second'    "$(figure seconds "$azure")" "$(second)"
is 'info draws nothing into a file' "$(trace info "$azure" | grep -c '#')" 0
is 'info draws every request three times' "$(trace info --histogram "$azure" |
	awk '/#/ { n += $NF } END { print n }')" 600
if command -v script >/dev/null; then
	is 'and a terminal gets the same' \
		"$(script -qec "'$ATTNREPLAY' trace info '$azure'" /dev/null </dev/null |
		tr -d '\r')" "$(trace info --histogram "$azure")"
else
	skip 'and a terminal gets the same' 'no script(1)'
fi
is 'info counts what stands apart' "$(trace info "$mooncake" 2>/dev/null |
	sed -n 's/^distinct blocks  *\([0-9]*\),.*/\1/p')" \
	"$(sed 's/.*\[//; s/\].*//; s/, /\n/g' "$mooncake" | sort -u | wc -l)"
is 'info says that there are no prefixes' "$(figure 'prefix blocks' "$azure")" 'none in this trace'
is 'info counts blocks'            "$(figure 'prefix blocks' "$mooncake")" \
	"$(tr -cd ',\n' <"$mooncake" | awk '{ n += length($0) - 2 } END { print n }') of 512 tokens"
# line 1586 repeats three full blocks after the common block, line 1901 repeats five blocks
is 'info measures prefix reuse' "$(figure 'ideal prefix reuse' "$mooncake" | sed 's/ %.*//')" \
	"$(awk '{ sub(/.*\[/, ""); sub(/\].*/, ""); n = split($0, id, ", "); all += n; run = 1
		for (i = 1; i <= n; i++) { if (run && id[i] in seen) hit++; else run = 0 }
		for (i = 1; i <= n; i++) seen[id[i]] = 1 }
		END { printf "%.2f", 100 * hit / all }' "$mooncake")"

# other formats
data=$srcdir/tests/data
is 'BurstGPT drops what failed at the source' "$(figure requests "$data/burstgpt-1-30.csv")" \
	"$(awk -F, 'NR > 1 && $3' "$data/burstgpt-1-30.csv" | wc -l)"
is 'BurstGPT has sessions' "$(figure sessions "$data/burstgpt-3-40.csv" | sed 's/,.*//')" \
	"$(tail -n +2 "$data/burstgpt-3-40.csv" | cut -d, -f2 | sort -u | grep -c .)"
# the think time of a second turn, from the end of the first turn of the same session
trace convert "$data/burstgpt-3-40.csv" >"$tmp/b.jsonl"
is 'BurstGPT has think times' \
	"$(sed -n 's/.*"turn":1,"think_ns":\([0-9]*\)000000000,.*/\1/p' "$tmp/b.jsonl")" \
	"$(awk -F, 'NR > 1 && $2 { if (n[$2]++ == 1) print $1 - end[$2]; end[$2] = $1 + $3 }' \
		"$data/burstgpt-3-40.csv")"
rag=$data/ragpulse-10.jsonl
ok 'a file of two recordings is bad data' \
	fails 3 'ragpulse-10.jsonl:7: the clock goes back by 604453 s' \
	trace info "$rag"
is 'recordings are appended by their period' \
	"$(figure span --restart append --restart-period 168h "$rag")" '604784.000000000 s'
is 'or laid over each other' "$(figure span --restart sort "$rag")" '604453.000000000 s'
# with blocks of one token, whole leading components are reused
is 'RAGPulse prompts share leading components' "$(figure 'ideal prefix reuse' --restart append \
	--hash-block 1 --components "$data/ragpulse-components.jsonl" "$rag" | sed 's/ %.*//')" \
	"$(cat "$data/ragpulse-components.jsonl" "$rag" | awk '
	/token_length/ { gsub(/[^0-9 ]/, ""); tok[$1] = $2; next }
	{ len = $0; sub(/.*"input_length": /, "", len); all += len + 0
	  sub(/.*"hash_ids"/, ""); sub(/"session_id".*/, ""); gsub(/[^0-9]+/, " ")
	  n = split($0, id, " "); key = ""; run = 1
	  for (i = 1; i <= n; i++) { key = key " " id[i]; if (run && key in seen) hit += tok[id[i]]
	                             else run = 0; now[key] }
	  for (k in now) { seen[k]; delete now[k] } }
	END { printf "%.2f", 100 * hit / all }')"
ok 'an option that the format has no use for' \
	fails 2 'image-tokens has no effect on a trace in format azure$' \
	trace info --image-tokens 5 "$azure"
printf '{"timestamp":0,"input_length":9,"output_length":1}\n' >"$tmp/two.jsonl"
ok 'a format is not guessed' \
	fails 3 ':1: formats mooncake and vllm both fit; say which with --format' \
	trace info "$tmp/two.jsonl"
is 'but taken from the user' "$(figure format --format vllm "$tmp/two.jsonl")" vllm
rm "$tmp/b.jsonl" "$tmp/two.jsonl"

# convert
trace convert "$azure" >"$tmp/a.jsonl"
trace convert "$vidur" >"$tmp/v.jsonl"
tail -n +2 "$tmp/a.jsonl" >"$tmp/a.requests"
tail -n +2 "$tmp/v.jsonl" >"$tmp/v.requests"
is 'convert writes every request and a header' "$(wc -l <"$tmp/a.jsonl")" 201
ok 'the Azure and the Vidur text of the same rows are the same requests' \
	cmp "$tmp/a.requests" "$tmp/v.requests"
for f in "$azure" "$vidur" "$mooncake" "$srcdir"/tests/data/burstgpt-3-40.csv \
	"$srcdir"/tests/data/corpus/trace/bailian.jsonl \
	"$srcdir"/tests/data/corpus/trace/aiperf.jsonl; do
	trace convert "$f" -o "$tmp/1.jsonl"
	trace convert --format canonical "$tmp/1.jsonl" >"$tmp/2.jsonl"
	ok "canonical to canonical changes no byte of ${f##*/}" cmp "$tmp/1.jsonl" "$tmp/2.jsonl"
done
trace convert "$mooncake" --requests 5 --skip-requests=8 --max-prompt-tokens 5000 -o "$tmp/1.jsonl"
trace convert "$tmp/1.jsonl" -o "$tmp/2.jsonl"
ok 'nor of a part of a trace' cmp "$tmp/1.jsonl" "$tmp/2.jsonl"
is 'a part has as many requests as asked' "$(figure requests "$tmp/1.jsonl")" 5
ok 'the header lists what was done' grep -q \
	'"transforms":\["skip-requests=8","requests=5","max-prompt-tokens=5000"\]}$' "$tmp/1.jsonl"
trace convert "$tmp/1.jsonl" --time-scale 2 -o "$tmp/1.jsonl"
ok 'a file can be converted in place' grep -q '=5000","time-scale=2"' "$tmp/1.jsonl"
is 'convert leaves no other file behind' "$(ls "$tmp")" \
	"$(printf '%s\n' 1.jsonl 2.jsonl a.jsonl a.requests v.jsonl v.requests)"
umask 027
trace convert "$azure" -o "$tmp/mode"
is 'the file has the mode of a new file' "$(stat -c %a "$tmp/mode")" 640

# one trace of several, and the same options for a run
trace convert "$azure" --merge "$mooncake:time-scale=0.5" -o "$tmp/both"
is 'merged traces have all requests' "$(figure requests "$tmp/both")" 214
ok 'and say where they are from' grep -q \
	'"name":"azure-2023-code-200.csv".*"name":"mooncake-14.jsonl".*"merge=mooncake-14.jsonl"' \
	"$tmp/both"
merge_self() { cat "$azure" | trace convert - --merge "$azure" | tail -n +2 | wc -l; }
is 'standard input merges'         "$(merge_self)" 400
ok 'a file that is not there'      fails 3 'none:keep: No such file' \
	trace convert "$azure" --merge "$tmp/none:keep"
shape="--keep 0.8 --prompt-scale 0.5 --repeat 2 --rate 3 --trace-seed 5"
replay() { "$ATTNREPLAY" run --backend cost --enable-prefix-caching --trace "$@" | tail -n +5; }
trace convert $shape "$mooncake" -o "$tmp/shaped"
is 'a run shapes a trace as convert does' "$(replay "$mooncake" $shape)" "$(replay "$tmp/shaped")"
rm "$tmp/both" "$tmp/shaped"

# types
cat >"$tmp/types" <<'EOF'
{"format":"reqtrace","version":1,"block_size":0,"requests":3}
{"id":0,"arrival_ns":5,"prompt_tokens":4,"output_tokens":3,"label":"GPT-4"}
{"id":1,"arrival_ns":6,"prompt_tokens":5,"output_tokens":2}
{"id":2,"arrival_ns":9,"prompt_tokens":6,"output_tokens":1,"session":"a","turn":0,"label":"GPT-4"}
EOF
is 'info counts types'             "$(figure type "$tmp/types")" '2 of GPT-4'
weka=$srcdir/tests/data/weka-2.jsonl
is 'info counts sub-agents' "$(figure 'started by others' "$weka")" '1, of 2 requests'
is 'info ranks think times' "$(figure 'think time' "$weka")" \
	'min 942 ms, p50 3.00 s, p99 145 s, max 145 s'
is 'info counts what later turns bring' "$(figure 'new in later turns' "$weka")" \
	'sum 9686, mean 2421.5, min 1203, p50 1644, p90 4105, p99 4105, max 4105'
is 'info counts sessions' \
	"$(figure sessions "$tmp/types")" '1, requests p50 1, p90 1, max 1'
is 'requests of a type can be kept' "$(figure requests --type GPT-4 "$tmp/types")" 2
rm "$tmp/types"

ok 'a start in the middle needs one at 0' fails 2 "start-within needs --session-starts zero, as sessions" \
	trace info --start-within 0:1 "$weka"
for within in 0.5 1:0 0:2 -1:1 x:1 0.33333333333333333333333333333333:1; do
	ok "... and not $within" fails 2 "start-within '$within': want A:B, shares of a session with" \
		trace info --session-starts zero "--start-within=$within" "$weka"
done

# synth
trace synth --count 30 --arrivals constant:rate=2 --lengths lognormal:prompt=700,output=9 \
	-o "$tmp/synth"
is 'a trace can be made of nothing' \
	"$(figure 'prompt tokens' "$tmp/synth") $(figure span "$tmp/synth")" \
	'sum 21000, mean 700.0, min 700, p50 700, p90 700, p99 700, max 700 14.500000000 s'
trace synth --trace-seed 4 "$mooncake" --requests 12 | trace info - >"$tmp/synth"
is 'or be like another, of which a part can be taken' \
	"$(grep -e '^requests' -e reuse "$tmp/synth")" \
	"$(trace info --requests 12 "$mooncake" 2>/dev/null | grep -e '^requests' -e reuse)"
ok 'a kind that is not known' \
	fails 2 "arrivals 'x': there is no such kind" trace synth --arrivals x
for o in --format=mooncake --columns=arrival=t --keep=0.5 --requests=3 --rate=2; do
	name=${o#--}
	ok "$o needs a file" says 2 "${name%%=*} has no effect without a FILE; leave it out" trace synth $o
done
rm "$tmp/synth"

# the worked example of the manual
page=$srcdir/man/attnreplay-trace.5.in
mkdir "$tmp/example"
grep '^{"timestamp"' "$page" >"$tmp/example/chat.jsonl"
grep -e '^{"format"' -e '^{"id"' "$page" >"$tmp/example/want"
trace convert "$tmp/example/chat.jsonl" >"$tmp/example/out"
ok 'the example of the manual is true' cmp "$tmp/example/want" "$tmp/example/out"

# window: the rows of seconds 10 to 60
trace convert "$azure" --from 10s --to 1min >"$tmp/w.jsonl"
is 'a window keeps what arrives in it' "$(sed -n 2,999p "$tmp/w.jsonl" | wc -l)" "$(
	awk -F'[:,]' 'NR > 1 && $4 >= 10e9 && $4 < 60e9' "$tmp/a.jsonl" | wc -l)"
is 'and counts from its first request' \
	"$(sed -n 's/^{"id":0,"arrival_ns":\([0-9]*\),.*/\1/p' "$tmp/w.jsonl")" 0

# head
is 'head prints as many requests as asked' "$(trace head -n 3 "$azure" | wc -l)" 4
is 'head prints a request' \
	"$(trace head --lines=2 "$azure" | tail -1 | tr -s ' ')" ' 1 0.052000000 3180 8 0 0 3'

# containers
stdin_same() { trace convert - <"$azure" | tail -n +2 | cmp - "$tmp/a.requests"; }
pipe_same() {
	(head -c 3 "$azure"; sleep 0.1; tail -c +4 "$azure") | trace convert - | tail -n +2 |
		cmp - "$tmp/a.requests"
}
ok 'standard input'                stdin_same
ok 'a slow pipe'                   pipe_same
is 'standard input has a name'     "$(trace info - <"$azure" | sed -n 's/^file *//p')" '<stdin>'
if command -v zstd >/dev/null; then
	zstd -q --check "$mooncake" -o "$tmp/m.zst"
	trace convert "$mooncake" | tail -n +2 >"$tmp/m.requests"
	zst_same() { trace convert "$tmp/m.zst" | tail -n +2 | cmp - "$tmp/m.requests"; }
	zst_pipe() {
		zstd -qc "$mooncake" | trace convert - | tail -n +2 | cmp - "$tmp/m.requests"
	}
	head -c 700 "$tmp/m.zst" >"$tmp/cut.zst"
	ok 'zstd is found by content'      zst_same
	ok 'in a pipe as well'             zst_pipe
	ok 'truncated zstd is bad data' fails 3 'cut.zst:[0-9]*: the zstd data end inside a frame' \
		trace info "$tmp/cut.zst"
	head -c 200000000 /dev/zero | zstd -q --long=27 >"$tmp/window.zst"
	little() { (ulimit -v 100000 && fails 1 'out of memory' "$ATTNREPLAY" "$@"); }
	if (ulimit -v 100000 && "$ATTNREPLAY" --version) >/dev/null 2>&1; then
		ok 'too little memory for a zstd window is no bad data' \
			little trace info "$tmp/window.zst"
	else
		skip 'too little memory for a zstd window is no bad data' 'a build of more memory'
	fi
	awk 'BEGIN { print "TIMESTAMP,ContextTokens,GeneratedTokens"
		for (i = 0; i < 200000; i++) print "2023-11-16 18:15:46.6805900,1,1" }' |
		zstd -q >"$tmp/bomb.zst"
	ok 'a trace that unpacks to more than --max-memory is refused' fails 3 \
		'bomb.zst:65538: the trace takes more than 8 MiB; raise --max-memory' \
		"$ATTNREPLAY" trace info --max-memory 8M "$tmp/bomb.zst"
	ok '... and read with more' trace info --max-memory 64M "$tmp/bomb.zst"
else
	skip 'zstd is found by content' 'no zstd'
	skip 'in a pipe as well' 'no zstd'
	skip 'truncated zstd is bad data' 'no zstd'
fi
gzip -c "$azure" >"$tmp/x.gz"
gzip_same() { trace convert "$tmp/x.gz" | tail -n +2 | cmp - "$tmp/a.requests"; }
ok 'gzip is found by content'      gzip_same

# malformed input
ok 'a missing file'                fails 3 'none.csv: No such file' trace info "$tmp/none.csv"
ok 'a folder'                      fails 3 "$tmp: Is a directory" trace info "$tmp"
cp "$azure" "$tmp/secret"
chmod 0 "$tmp/secret"
if [ "$(id -u)" = 0 ]; then
	skip 'an unreadable file' 'root reads everything'
else
	ok 'an unreadable file'    fails 3 'secret: Permission denied' trace info "$tmp/secret"
fi
ok 'an empty file'                 fails 3 '/dev/null: no requests' trace info /dev/null
ok 'nothing left'                  fails 3 'none of its 200 requests is left' \
	trace info --from 1h "$azure"
ok 'an unknown format'             fails 2 "unknown trace format 'x'" trace info --format x "$azure"
ok 'a format that does not fit'    fails 3 ':1: the header lacks "arrived_at"' \
	trace info --format=vidur "$azure"
ok 'a window that ends too early'  fails 2 '^attnreplay: --to must be later than --from$' \
	trace info --from 2s --to 1s "$azure"
ok 'no file'                       fails 2 'trace info needs a FILE' trace info
ok 'no action'                     fails 2 'no action given; want info, convert' trace
ok 'an unknown action'             fails 2 "unknown action 'show'" trace show "$azure"
ok 'an option of another action'   fails 2 "output has no effect in 'trace info'" \
	trace info -o x "$azure"
ok 'an option of synthesis'        fails 2 "count has no effect in 'trace convert'" \
	trace convert --count 5 "$azure"
ok 'a bad option value'            fails 2 'time-scale' trace info --time-scale 0 "$azure"
ok 'an output that cannot be'      fails 1 'none/x: cannot create: No such file' \
	trace convert "$azure" -o "$tmp/none/x"
mkdir "$tmp/folder"
ok 'an output that is a folder'    fails 1 'folder: cannot write: Is a directory' \
	trace convert "$azure" -o "$tmp/folder"
ok 'a device that is full'         fails 1 'full: cannot write the trace: No space' \
	trace convert "$azure" -o /dev/full
ok 'a device stays a device'       test -c /dev/full
dash_same() { trace convert "$azure" -o - | cmp - "$tmp/a.jsonl"; }
ok 'an output named - is standard output' dash_same
full_disk() { trace convert "$azure" >/dev/full; [ $? = 1 ]; }
ok 'a full disk'                   full_disk

# warnings: one line for each kind, on standard error
cat >"$tmp/odd.csv" <<'EOF'
arrived_at,num_prefill_tokens,Num_Decode_Tokens,note
1,10.0,1,

1,11.0,1,
0.5,12,1,
3,0,1,
3,1,0,
1,5,5,
EOF
trace info "$tmp/odd.csv" 2>"$tmp/warnings" >"$tmp/out"
f=$tmp/odd.csv
cat >"$tmp/want" <<EOF
attnreplay: warning: $f:3: blank line between records, skipped (1 in all, this is the first)
attnreplay: warning: $f:1: column name differs in case from the format's, accepted (1 in all, this is the first)
attnreplay: warning: $f:1: column that the format does not have, ignored (1 in all, this is the first)
attnreplay: warning: $f:2: token count with a zero fraction, read as an integer (2 in all, this is the first)
attnreplay: warning: $f:5: arrival before that of the line before it, sorted (1 in all, this is the first)
attnreplay: warning: $f:6: request without prompt tokens, dropped (1 in all, this is the first)
attnreplay: warning: $f:7: request without output tokens (failed or cancelled at the source), dropped (1 in all, this is the first)
EOF
ok 'faults that pass are counted by kind' diff "$tmp/want" "$tmp/warnings"
warns() { # warns FILE PATTERN OPTION...: among the warnings about the file
	warned=$1 pattern=$2
	shift 2
	trace info "$@" "$warned" 2>&1 >/dev/null | grep -q "warning: $warned:$pattern"
}
corpus=$srcdir/tests/data/corpus/trace
ok 'a restarted clock is mentioned' warns "$rag" '7: .* another recording appended here (1 in' \
	--restart append
ok 'prompts made from a session are' warns "$corpus/aiperf.jsonl" '2: .* see --context (1 in all'
ok 'unless the user says so' test -z "$(trace info --context delta "$corpus/aiperf.jsonl" 2>&1 |
	grep -e --context)"
ok 'a turn without an arrival is'  warns "$corpus/aiperf.jsonl" '2: turn without a recorded arr'
is 'and the header of the canonical form says so' \
	"$(trace convert "$corpus/aiperf.jsonl" 2>/dev/null | sed -n '1s/.*"transforms"://p')" \
	'["earliest=1","delta=1","sort"]}'
printf '{"timestamp":%s,"input_length":9,"output_length":9}\n' 0 0.5 >"$tmp/s.jsonl"
ok 'times that can only be seconds are' test "$(trace info --format mooncake "$tmp/s.jsonl" 2>&1 |
	grep -c -e 'read as seconds; --time-unit' -e '^span  *0.500000000 s')" = 2
ok 'standard input is not read twice' fails 3 'say so with --time-unit s, as standard' \
	trace info --format mooncake - <"$tmp/s.jsonl"
is 'convert writes for other programs' "$(trace convert -q --to-format vidur "$tmp/s.jsonl" --format mooncake | tail -n 1)" \
	0.5,9,9
is 'lengths are where vllm bench reads them, of a model that it does not skip' \
	"$(trace convert -q --to-format burstgpt "$corpus/aiperf.jsonl" | sed -n '1,2p')" \
	'Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type,Session ID
0,"GPT-4",1100,335,1435,Conversation log,"sess-c1ff91a76156"'
ok 'and names what is lost' test "$(trace convert --to-format burstgpt "$corpus/aiperf.jsonl" 2>&1 |
	grep -c 'format burstgpt has no prefix blocks; those of')" = 1
ok 'an unknown format is refused' fails 2 "to-format 'x': want canonical, mooncake, aiperf" \
	trace convert --to-format x "$tmp/s.jsonl"
ok 'a chat without its parent is'  warns "$corpus/bailian.jsonl" '3: turn whose parent is not in'
sed 's/"turn": 2/"turn": 5/' "$corpus/bailian.jsonl" >"$tmp/odd.jsonl"
ok 'a turn out of turn is'         warns "$tmp/odd.jsonl" '2: turn number that does not follow'
sed 's/,490,/,491,/' "$data/burstgpt-1-30.csv" >"$tmp/odd.txt"
ok 'a wrong total is'              warns "$tmp/odd.txt" '2: total that is not the sum'
cat "$corpus/llmservingsim.jsonl" - >"$tmp/odd.jsonl" <<'EOF'
{"session_id": "empty", "arrival_time_ns": 5, "sub_requests": []}
EOF
ok 'an empty session is'           warns "$tmp/odd.jsonl" '3: session without requests, skipped'
cat >"$tmp/odd.jsonl" <<'EOF'
{"timestamp": 0, "input_length": 512, "output_length": 1, "hash_ids": [1, 2]}
{"timestamp": 1, "input_length": 513, "output_length": 1, "hash_ids": [1, 3]}
{"timestamp": 2, "input_length": 512, "output_length": 1}
{"timestamp": 3, "input_length": 512, "output_length": 1, "hash_ids": [1], "request_id": "a", "wait_for": []}
EOF
ok 'a block too many is' \
	warns "$tmp/odd.jsonl" '1: one more prefix block than the prompt has, cut off (1 in'
ok 'a prompt without blocks is' \
	warns "$tmp/odd.jsonl" '3: request without prefix blocks, shares nothing (1 in'
ok 'keys without a use are' \
	warns "$tmp/odd.jsonl" '4: record with keys that are not used (1 in'
"$ATTNREPLAY" -q trace info "$f" 2>"$tmp/warnings" >"$tmp/out"
is '-q silences warnings'          "$(cat "$tmp/warnings")" ''
printf 'arrived_at,num_prefill_tokens,num_decode_tokens\n0,1,1\n0,1,1\n0,1,1\n' >"$f"
trace info "$f" 2>&1 >/dev/null | grep -q 'only 1 distinct arrival times in 3 requests' && burst=1
is 'coarse times are mentioned'    "$burst" 1
printf 'arrived_at,num_prefill_tokens,num_decode_tokens\n0,1,1\n9000,1,1\n' >"$f"
trace info "$f" 2>&1 >/dev/null | grep -q 'requests per second on average, for .* days; check the unit' && slow=1
is 'an odd rate is mentioned'      "$slow" 1
printf 'arrived_at,num_prefill_tokens,num_decode_tokens\n0,0,1\n' >"$f"
trace info "$f" 2>"$tmp/warnings"
is 'a trace of dropped requests is bad data' "$?" 3
is 'and says why nothing is left' "$(sed "s|$f||" "$tmp/warnings")" \
	"attnreplay: warning: :2: request without prompt tokens, dropped (1 in all, this is the first)
attnreplay: : no requests in the file"

# A file of another origin: its columns are named, and its times have a unit.
cat >"$tmp/own.csv" <<END
id,Arrival Time,in,out
a,0,10,3
b,1500,20,4
END
cat >"$tmp/own.jsonl" <<END
{"when": "2023-11-16 18:15:46.5", "in": 10, "out": 3}
{"when": "2023-11-16 18:15:48", "in": 20, "out": 4}
END
own='prompt=in,output=out'
rows() { trace head "$@" 2>&1 | awk 'NR > 1 { print $2, $3, $4 }'; }
want='0.000000000 10 3
1.500000000 20 4'
is 'columns can be named'   "$(rows --columns "arrival=Arrival Time,$own" --time-unit ms "$tmp/own.csv")" \
	"$want"
is '... and keys, with dates' "$(rows --columns "arrival=when,$own" "$tmp/own.jsonl")" "$want"
is '... which stay dates' "$(figure 'first arrival' --columns "arrival=when,$own" "$tmp/own.jsonl")" \
	2023-11-16T18:15:46.500000000Z
is '... of a merged trace, too' "$(rows --columns "arrival=when,$own" \
	--merge "$tmp/own.jsonl" "$tmp/own.jsonl" | wc -l)" 4
tr , ';' <"$tmp/own.csv" >"$tmp/semicolon.csv"
tr , '\t' <"$tmp/own.csv" >"$tmp/tab.csv"
for f in semicolon tab; do
	is "... separated by a $f" "$(rows --columns "arrival=Arrival Time,$own" --time-unit ms "$tmp/$f.csv")" \
		"$want"
done
cat >"$tmp/deep.jsonl" <<END
{"a.b": 9, "a": {"t": 0, "x": [5, {"in": 10}], "b": 3}, "out": 3, "s": "u", "p": -2, "r": 3, "ids": [7, 8]}
{"a.b": 9, "a": {"t": 1.5, "x": [6, {"in": 20}], "b": 4}, "out": 4, "s": "u", "p": null, "r": null, "ids": [7, 9, 9]}
END
deep='arrival=a.t,prompt=a.x.1.in,output=out,session=s,priority=p,replica=r,prefix=ids'
is '... and paths of keys, sessions, priorities, replicas and prefixes' \
	"$(trace convert --columns "$deep" --hash-block 8 "$tmp/deep.jsonl" | tail -n +2)" \
	'{"id":0,"arrival_ns":0,"prompt_tokens":10,"output_tokens":3,"session":"u","turn":0,"blocks":[0,1],"priority":-2,"replica":3}
{"id":1,"arrival_ns":1500000000,"prompt_tokens":20,"output_tokens":4,"session":"u","turn":1,"blocks":[0,2,3]}'
trace convert --columns "$deep" --hash-block 8 "$tmp/deep.jsonl" >"$tmp/deep.canonical"
ok 'priorities and replicas stay in the canonical form' test "$(trace convert "$tmp/deep.canonical" |
	grep -c '"priority":-2,"replica":3')" = 1
ok 'a path that leads nowhere is named' fails 3 'deep.jsonl:1: the record lacks "a.x.2.in", which' \
	trace info --columns arrival=a.t,prompt=a.x.2.in,output=out "$tmp/deep.jsonl"
ok 'a priority is an integer' fails 3 'deep.jsonl:1: s is ".u.", want an integer from -2^31' \
	trace info --columns arrival=a.t,prompt=a.b,output=out,priority=s "$tmp/deep.jsonl"
ok '... and so is the number of a replica' fails 3 'deep.jsonl:1: p is "-2", want an integer from 0' \
	trace info --columns arrival=a.t,prompt=a.b,output=out,replica=p "$tmp/deep.jsonl"
printf '%s\n' t,in,out,group,shared 0,20,1,x,16 1,20,1,x,16 2,20,1,y,16 3,20,1,,9 >"$tmp/group.csv"
group=arrival=t,prompt=in,output=out,prefix=group,prefix-tokens=shared
is 'prefixes may have a name and a length' "$(trace convert --columns $group --hash-block 8 \
	"$tmp/group.csv" | sed -n 's/.*"blocks"://p' | tr '\n' ' ')" \
	'[0,1,2]} [0,1,3]} [4,5,6]} [7,8,9]} '
ok 'a name needs a length' fails 3 'group.csv:2: group is no array of ids; name the column' \
	trace info --columns arrival=t,prompt=in,output=out,prefix=group "$tmp/group.csv"
ok 'a prefix is at most the prompt' fails 3 'group.csv:2: the prefix has 20 tokens, the prompt 16' \
	trace info --columns arrival=t,prompt=shared,output=out,prefix=group,prefix-tokens=in "$tmp/group.csv"
ok 'a column that is not there is named' fails 3 'own.csv:2: the header lacks "x", which --columns names' \
	trace info --columns "arrival=x,$own" "$tmp/own.csv"
ok '... and a key' fails 3 'own.jsonl:1: the record lacks "x", which --columns names' \
	trace info --columns "arrival=x,$own" "$tmp/own.jsonl"
sed 's/2023-11-16 18:15:48/1700158548/' "$tmp/own.jsonl" >"$tmp/mixed.jsonl"
ok 'dates and numbers are not mixed' \
	fails 3 'mixed.jsonl:2: when is "1700158548", unlike those before no date' \
	trace info --columns "arrival=when,$own" "$tmp/mixed.jsonl"
ok 'another key is refused' fails 2 "columns: unknown option 'tokens'" \
	trace info --columns tokens=in "$tmp/own.jsonl"
ok 'all three are wanted' fails 2 'columns: want arrival=NAME,prompt=NAME,output=NAME' \
	trace info --columns arrival=when,prompt=in "$tmp/own.jsonl"
ok 'names stand in the place of a format' fails 2 '--columns and --format .* give one of them' \
	trace info --columns "arrival=when,$own" --format vidur "$tmp/own.jsonl"
ok 'a unit is of numbers, not of dates' \
	fails 2 'time-unit has no effect on a trace in format azure' trace info --time-unit ms "$azure"
second_of() { trace head --time-unit "$1" "$tmp/unit.csv" 2>/dev/null | awk 'NR == 3 { print $2 }'; }
printf 'arrived_at,num_prefill_tokens,num_decode_tokens\n0,1,1\n2500,1,1\n' >"$tmp/unit.csv"
is 'every unit of times is read' "$(second_of s) $(second_of ms) $(second_of us) $(second_of ns)" \
	'2500.000000000 2.500000000 0.002500000 0.000002500'

# Times since 1970 show their unit by their size.
epoch() { # epoch TIME TIME: the second arrival of a Vidur trace, and its warnings
	printf 'arrived_at,num_prefill_tokens,num_decode_tokens\n%s,1,1\n%s,1,1\n' "$@" >"$tmp/epoch.csv"
	trace head "$tmp/epoch.csv" 2>"$tmp/warned" | awk 'NR == 3 { print $2 }'
}
is 'milliseconds since 1970 are recognised' "$(epoch 1700000000000 1700000002500)" 2.500000000
ok '... with a warning' grep -q 'epoch.csv:2: time too large for the unit of the format, read as' \
	"$tmp/warned"
is '... microseconds'         "$(epoch 1700000000000000 1700000002500000)" 2.500000000
is '... and nanoseconds'      "$(epoch 1700000000000000000 1700000002500000000)" 2.500000000
is 'seconds since 1970 are seconds' "$(epoch 1700000000 1700000002.5) $(cat "$tmp/warned")" \
	'2.500000000 '
seq 0 400 40000000 | awk 'BEGIN { print "arrived_at,num_prefill_tokens,num_decode_tokens" }
	{ print $1 ",1,1" }' >"$tmp/span.csv"
warned() { trace info "$@" 2>&1 >/dev/null | grep -q 'check the unit of its times, which --time-unit sets'; }
ok 'a span of more than a year is told'       warned "$tmp/span.csv"
ok '... and not under the unit that was meant' \
	sh -c '! "$ATTNREPLAY" trace info --time-unit ms "$1" 2>&1 | grep -q "the unit"' sh "$tmp/span.csv"

# A header that nearly fits.
misses() { # misses HEADER MESSAGE
	echo "$1" >"$tmp/near.csv"
	fails 3 "near.csv:1: no format fits: $2" trace info "$tmp/near.csv"
}
ok 'the nearest format is named, with the column that is missing' \
	misses TIMESTAMP,ContextTokens,Output 'azure needs "GeneratedTokens" (have: TIMESTAMP, '
ok '... with all columns that are missing' misses arrived_at,in,out \
	'vidur needs "num_prefill_tokens", "num_decode_tokens" (have: arrived_at, in, out); see --columns'
awk 'BEGIN { print "TIMESTAMP,ContextTokens,GeneratedTokens"
	printf "2023-11-16 18:17:03.9799600,"; for (i = 0; i < 300000; i++) printf "4444444444"; print ",10" }' \
	>"$tmp/long.csv"
ok 'a longer line of a trace than --max-memory is refused' fails 3 \
	'long.csv:2: line longer than --max-memory; raise it' \
	"$ATTNREPLAY" trace info --max-memory 1M "$tmp/long.csv"
tail -n 1 "$tmp/long.csv" >"$tmp/head.csv"
ok '... a longer header, too' fails 3 'head.csv:1: line longer than --max-memory; raise it' \
	"$ATTNREPLAY" trace info --max-memory 1M "$tmp/head.csv"
finish

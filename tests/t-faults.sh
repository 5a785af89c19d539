#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Messages for bad input: traces, models, captures, job files, options and devices.
. "$srcdir/tests/tap.sh"
cd "$tmp" || exit 99

arc=$ATTNREPLAY_DATA/traces/samples/niah-2k.arc
presets=$ATTNREPLAY_DATA/model/presets
trace() { # trace FILE SECONDS,PROMPT,OUTPUT...: in the Azure form
	file=$1
	shift
	{
		echo TIMESTAMP,ContextTokens,GeneratedTokens
		for row; do echo "2023-11-16 18:00:0$row"; done
	} >"$file"
}
run()  { "$ATTNREPLAY" run "$@"; }
cost() { run --backend cost "$@"; }
cpu()  { run --backend cpu --trace ok.csv --model niah-llama-14m --capture "$arc" \
		--sample-layers 1 "$@"; }
bad()  { message=$1; shift; says 3 "$message" "$@"; }
wrong() { message=$1; shift; says 2 "$message" "$@"; }
is_root() { [ "$(id -u)" = 0 ]; }
unreadable() { # unreadable DESCRIPTION FILE COMMAND...
	chmod 0 "$2"
	if is_root; then
		skip "$1" 'root reads everything'
	else
		what=$1 file=$2
		shift 2
		ok "$what" bad "$file: Permission denied" "$@"
	fi
}

trace ok.csv 0.0,10,3 0.0,5,2 0.0015,3,2

# ---- traces ----

ok 'a trace that is missing is named' bad 'none.csv: No such file or directory' cost --trace \
		none.csv
ok 'a trace that is a folder is named' bad '.: Is a directory' cost --trace .
cp ok.csv secret.csv
unreadable 'a trace that cannot be read is named' secret.csv cost --trace secret.csv
: >empty.csv
ok 'a trace without a byte has no requests' bad 'empty.csv: no requests in the file' \
	cost --trace empty.csv
trace header.csv
ok 'a trace of a header alone has none either' bad 'header.csv: no requests in the file' \
	cost --trace header.csv
echo a,b,c >columns.csv
ok 'columns of no known format are listed' \
	bad 'columns.csv:1: unknown trace format (have: a, b, c); see --columns' \
	cost --trace columns.csv
echo TIMESTAMP,ContextTokens >columns.csv
ok 'a lacking column is named' bad \
	'columns.csv:1: no format fits: azure needs "GeneratedTokens" (have: TIMESTAMP, '\
'ContextTokens); see --columns' \
	cost --trace columns.csv
trace short.csv 0.0,10,3 0.5,10
ok 'a row that is too short is named' bad 'short.csv:3: the row has 2 fields, the header 3' \
	cost --trace short.csv
for v in -1 10.5 2147483648 99999999999999999999 1e3 0x10 inf; do
	trace length.csv 0.0,1,1 0.0,"$v",3
	ok "a prompt of '$v' tokens is no length" bad \
		"length.csv:3: ContextTokens is \"$v\", want an integer from 0 to 2147483647" \
		cost --trace length.csv
	trace length.csv 0.0,3,"$v"
	ok "nor are '$v' output tokens" bad \
		"length.csv:2: GeneratedTokens is \"$v\", want an integer from 0 to 2147483647" \
		cost --trace length.csv
done
trace longest.csv 0.0,2147483647,2147483647
warned() { # warned MESSAGE COMMAND...: it succeeds with this one warning
	message=$1
	shift
	"$@" >out 2>err || { cat err; return 1; }
	[ "$(cat err)" = "attnreplay: warning: $message" ] || { cat err; return 1; }
}
ok 'the longest lengths of all are rejected by the limit, not wrapped around' warned \
	'longest.csv:2: request rejected: prompt of 2147483647 tokens, maximum length 4096' \
	cost --trace longest.csv --max-model-len 4096
trace jitter.csv 5.0,1,1 4.5,1,1
ok 'arrivals out of order are sorted with a warning' warned \
	'jitter.csv:3: arrival before that of the line before it, sorted (1 in all, this is the '\
'first)' \
	cost --trace jitter.csv
trace restart.csv 0.0,1,1 9.0,1,1 1.0,1,1
ok 'a clock that starts again is no jitter' bad \
	'restart.csv:4: the clock goes back by 8.00 s; the file holds several recordings, see '\
'--restart' \
	cost --trace restart.csv
trace time.csv x,1,1
ok 'a time that is none is shown' bad 'time.csv:2: TIMESTAMP is "2023-11-16 18:00:0x", want a '\
'date and time such as 2023-11-16 18:15:46.68' \
	cost --trace time.csv
if command -v zstd >/dev/null; then
	# An incompressible trace, so that compressed frames end inside lines.
	awk 'BEGIN { srand(1); print "TIMESTAMP,ContextTokens,GeneratedTokens"
		for (i = 0; i < 40000; i++) printf "2023-11-16 18:%02d:%02d.%06d,%d,%d\n",
			i / 1000, i % 1000 / 17, rand() * 1e6, 1 + rand() * 1e6,
			1 + rand() * 1e6 }' |
		zstd -q >cut.zst
	size=$(($(wc -c <cut.zst) / 2))
	head -c "$size" cut.zst >half.zst
	ok 'a truncated .zst is bad data, whatever was whole before' fails 3 \
		'^attnreplay: half.zst:[0-9]*: the zstd data end inside a frame; the file is '\
'truncated$' \
		cost --trace half.zst
	cp half.zst worse.zst
	printf XXXXXXXX | dd of=worse.zst bs=1 seek=5 conv=notrunc 2>/dev/null
	ok 'so is a damaged one' fails 3 '^attnreplay: worse.zst:1: damaged zstd data: ' \
		cost --trace worse.zst
else
	skip 'a truncated .zst is bad data, whatever was whole before' 'no zstd'
	skip 'so is a damaged one' 'no zstd'
fi

# ---- models ----

ok 'a model that is missing is named' bad 'nosuch: no such file and no preset of this name; give '\
'a config.json, a folder with one, or a preset such as llama-3.1-8b' \
	cpu --model nosuch
mkdir folder
ok 'a folder without config.json is named' bad 'folder/config.json: No such file or directory' \
	cpu --model folder
cp "$presets/niah-llama-14m.json" secret.json
unreadable 'a model that cannot be read is named' secret.json cpu --model ./secret.json
printf '{\n "hidden_size": 320,\n' >broken.json
ok 'a model that is no JSON is named with its line' bad './broken.json:3: malformed JSON' \
	cpu --model ./broken.json
echo '{}' >broken.json
ok 'a key that is missing is named' \
	bad "./broken.json: want an integer from 1 to 4094 as 'num_hidden_layers'" cpu --model \
		./broken.json
ok 'a split that leaves a rest is refused' wrong \
	"cannot split model 'niah-llama-14m' into 3 parts: query heads 8 is no multiple of it; "\
"change --tp" \
	cpu --tp 3

# ---- captures ----

ok 'a capture that is missing is named' bad 'none.arc: No such file or directory' \
	cpu --capture none.arc
ok 'a capture that is a folder is named' bad 'folder: not a regular file' cpu --capture folder
cp "$arc" secret.arc
unreadable 'a capture that cannot be read is named' secret.arc cpu --capture secret.arc
: >empty.arc
ok 'a capture without a byte is none' \
	bad 'empty.arc: neither an .arc file nor safetensors, or truncated' cpu --capture empty.arc
head -c 100000 "$arc" >cut.arc
ok 'a truncated capture is named' \
	bad 'cut.arc: truncated or damaged: no index at the end; copy or pack the capture again' \
	cpu --capture cut.arc
ok 'a capture of another shape is refused, and the split that has it is named' wrong \
	'niah-2k.arc has 8/2 heads of 128, model llama-3.1-8b has 32/8 of 128; take the model it '\
'was captured from, or --tp 4, whose ranks have such heads, or --capture random:0' \
	cpu --model llama-3.1-8b
ok 'so it is on a rank that has other heads' wrong \
	'niah-2k.arc has 8/2 heads of 128, model llama-3.1-8b has 4/1 of 128 on each rank; take '\
'the model it was captured from, or --tp 4, whose ranks have such heads, or --capture random:0' \
	cpu --model llama-3.1-8b --tp 8
sed 's/"head_dim": *128/"head_dim": 96/' "$presets/niah-llama-14m.json" >d96.json
ok 'so are heads of another size' wrong \
	'niah-2k.arc has 8/2 heads of 128, model d96 has 8/2 of 96; take the model it was '\
'captured from, or --capture random:0' \
	cpu --model ./d96.json
ok 'a run without a capture is told of one that needs no file' wrong \
	'no capture given; name one with --capture FILE, replay random values with --capture '\
'random:0, run a model itself with --weights DIR, or replay without kernels with --backend cost' \
	run --backend cpu --trace ok.csv --model niah-llama-14m
drawn() { run --backend cpu --trace ok.csv --model niah-llama-14m "$@"; }
for seed in '' x -1 1.5 99999999999999999999; do
	ok "random:$seed is refused" wrong "capture 'random:$seed': want random:SEED with a whole "\
'number, such as random:0; put ./ before the name of a file' drawn --capture "random:$seed"
done
ok '... so is one that would be repeated' wrong \
	'extend tile has no effect with random:1, which has any length; leave it out' \
	drawn --capture random:1 --extend tile
ok '... and one beside a file of other layers' wrong \
	'random:1 and niah-2k.arc hold different layers; captures of one run hold the same' \
	drawn --capture random:1 --capture "$arc"
ok '... and layers that the model has not' wrong \
	"layers '8': random:1 does not hold layer 8; 'attnreplay capture info' lists those it holds" \
	drawn --capture random:1 --layers 8
header='{"__metadata__":{"rope_applied":"true"},
"layers.0.q":{"dtype":"BF16","shape":[8,16,96],"data_offsets":[0,24576]},
"layers.0.k":{"dtype":"BF16","shape":[2,16,96],"data_offsets":[24576,30720]},
"layers.0.v":{"dtype":"BF16","shape":[2,16,96],"data_offsets":[30720,36864]}}'
{
	printf "\\$(printf %o $((${#header} % 256)))\\$(printf %o $((${#header} / 256)))"
	printf '\0\0\0\0\0\0'
	printf %s "$header"
	head -c 36864 /dev/zero
} >d96.safetensors
zeros() {
	run --backend cpu --trace ok.csv --model ./d96.json --capture d96.safetensors \
		--sample-layers 1 --accuracy 1 >out 2>err &&
		grep -q '^against dense, 3 samples: relative L2 mean 0 max 0, cosine min '\
'1.000000, recall mean 1.0000$' out
}
ok 'on the cpu heads may have any size, and an output of zeros is like itself' zeros
same_model() { cpu --capture "$arc" --capture "$arc" --max-num-batched-tokens 8; }
ok 'the same capture twice is allowed' same_model
trace long.csv 0.0,10,1 0.0,2000,200
ok 'a request that outruns the captures in its output is refused before anything runs' wrong \
	'long.csv:3: request runs 2199 tokens, the longest capture has 2112; clip it with '\
'--max-prompt-tokens and --max-output-tokens, or repeat captures with --extend tile' \
	cpu --trace long.csv --db long.db
ok '... and no database is made' test ! -e long.db
cp "$arc" bad.arc
chmod u+w bad.arc
printf X | dd of=bad.arc bs=1 seek=3000000 conv=notrunc 2>/dev/null
ok 'a damaged frame is met when the first method reads it' bad \
	"bad.arc: layer 5 k, tokens 0 to 511: damaged frame: Restored data doesn't match "\
"checksum; pack the capture again" \
	cpu --capture bad.arc --method dense,compact-fp --db bad.db
is '... and no run is stored' \
	"$("$ATTNREPLAY" sql --format csv bad.db 'SELECT count(*) AS n FROM run')" 'n
0'

# ---- methods ----

ok 'an unknown method is wrong usage' wrong \
	"method 'nope': unknown name: want one that 'attnreplay methods' lists, or "\
"select=NAME/union=NAME/exec=NAME" \
	cpu --method dense,nope
ok 'an unknown parameter is refused with the known ones' wrong \
	"method 'flashprefill:beta=1': unknown parameter 'beta': selector 'flashprefill' has "\
"alpha, sink, window, last-n, last-n-rule, dense-first" \
	cpu --method flashprefill:beta=1
for v in 2 -0.1 nan x; do
	ok "a threshold of $v is out of range" wrong \
		"method 'flashprefill:alpha=$v': alpha '$v': want a number from 0 to 1" \
		cpu --method "flashprefill:alpha=$v"
done
for v in -1 65537 1.5; do
	ok "a sink of $v blocks is out of range" wrong \
		"method 'compact-fp:sink=$v': sink '$v': want an integer from 0 to 65536" \
		cpu --method "compact-fp:sink=$v"
done
ok 'an impossible composition is refused with what is missing' wrong \
	"method 'select=flashprefill/exec=paged': executor 'paged' takes all blocks, a table per "\
"head group, but select=flashprefill with union=none gives a list per query block and head: use "\
"exec=blocksparse or a union" \
	cpu --method select=flashprefill/exec=paged
ok 'nothing to unite is refused' wrong \
	"method 'select=none/union=group/exec=paged': selector 'none' keeps every block, so "\
"there is nothing to unite: use union=none" \
	cpu --method select=none/union=group/exec=paged
ok 'an empty name in the list is refused' wrong "empty method name in 'dense,'" cpu --method dense,

# ---- job files ----

ok 'a job file that is missing is named' bad 'none.job: No such file or directory' run --job \
		none.job
ok 'a job file that is a folder is named' bad 'folder: Is a directory' run --job folder
cp ok.csv secret.job
unreadable 'a job file that cannot be read is named' secret.job run --job secret.job
job() { # job DESCRIPTION TEXT MESSAGE
	printf "$2" >x.job
	ok "$1" wrong "x.job:$3" run --job x.job
}
job 'an unknown name is an error with its line' '# a comment\nsede = 1\n' "2: unknown option "\
"'sede'; did you mean 'seed'?"
job 'one that is like none, too'    'x = 1\n'        "1: unknown option 'x'"
job 'a name alone lacks its value'  'trace\n'        "1: option 'trace' needs a value"
job 'an empty value is no value'    '\ntrace =\n'    "2: trace '': want a value"
job 'a value without a name'        '= 3\n'          "1: unknown option ''"
job 'a value out of range'          'block-size=0\n' "1: block-size '0': want an integer from 1 "\
"to 1048576"
job 'a job file in a job file'      'job = x.job\n'  "1: a job file cannot name another; write "\
"its lines here"
job 'bytes that are no text'        'seed=1\000\n'   '1: a NUL byte; job files are text'

# ---- options ----

ok 'an unknown option is named'    wrong "unknown option '--bogus=1'; see --help" cost --bogus=1
ok '... with the one that it is like' wrong \
	"unknown option '--max-batched-tokens'; did you mean '--max-num-batched-tokens'?" \
	cost --max-batched-tokens 64
ok '... whatever its value'        wrong "unknown option '--sede=1'; did you mean '--seed'?" \
	cost --sede=1
ok 'an option lacks its value'     wrong "option '--trace' needs a value" cost --trace
for o in trace db job model capture method layers; do
	ok "an empty --$o is refused" wrong "$o '': want a value" run --$o ''
done
ok 'a time needs a unit' wrong \
	"host-overhead '5': want a time with a unit, such as 6ms, of at most 3600 s" \
	cost --trace ok.csv --host-overhead 5
ok 'a time has a limit' wrong \
	"cost-per-token '2s': want a time with a unit, such as 6ms, of at most 1.00 s" \
	cost --trace ok.csv --cost-per-token 2s
for v in 0 1.5 -16 16.0x 99999999999; do
	ok "a block of $v tokens is refused" wrong \
		"block-size '$v': want an integer from 1 to 1048576" cost --trace ok.csv \
		--block-size "$v"
done
ok 'a pool past the last block number is refused' wrong \
	"num-gpu-blocks '4294967296': want auto or an integer from 2 to 4294967295" \
	cost --trace ok.csv --num-gpu-blocks 4294967296
ok 'a share above one is refused'  wrong "accuracy '1.5': want a number from 0 to 1" cpu \
		--accuracy 1.5
ok 'of decodes, too'  wrong "accuracy-decode '1.5': want auto or a number from 0 to 1" cpu \
	--accuracy-decode 1.5
ok 'sizes of hot buffers ascend'   wrong \
	"hot-buffer '4096,1024': want none, or up to 8 ascending numbers from 1 to 1048576" \
	cpu --hot-buffer 4096,1024
ok 'more layers than there are'    wrong 'sample-layers 9: niah-llama-14m has 8 layers' \
	cpu --sample-layers 9
ok 'layers in descending order'    wrong "layers '5-4': want numbers and ranges such as 0,4,8-11" \
	cpu --layers 5-4
ok 'kernels cannot be kept without a database' wrong \
	'keep-kernels has no effect with backend cpu; leave it out' cpu --keep-kernels 2
ok 'the options of another backend have no effect' wrong \
	'cost-per-token has no effect with --clock measured; leave it out' cpu --cost-per-token 1us

# ---- devices ----

with_cuda() { "$ATTNREPLAY" --version | grep -q '^cuda yes$'; }
cuda() {
	run --backend cuda --trace ok.csv --model niah-llama-14m --capture "$arc" \
		--sample-layers 1 "$@"
}
cuda >out 2>err
status=$?
if ! with_cuda; then
	ok 'a program without CUDA says so' says 4 'backend cuda: this program was built without '\
'CUDA; use --backend cpu or cost, or build it with CUDA' cuda
	skip 'no GPU is a missing device' 'built without CUDA'
	skip '... also where kernels are not traced' 'built without CUDA'
	skip '... and is met before a run is stored' 'built without CUDA'
	skip 'without NVML a run has no energy and a warning says so' 'built without CUDA'
	skip '... and with it has' 'built without CUDA'
elif [ $status = 4 ]; then
	skip 'a program without CUDA says so' 'built with CUDA'
	no_gpu='^attnreplay: no usable GPU: .*; use --backend cpu or cost$'
	untraced() { ATTNREPLAY_CUPTI=/nonexistent cuda --db gpu.db; }
	ok 'no GPU is a missing device' fails 4 "$no_gpu" cuda
	ok '... also where kernels are not traced' fails 4 "$no_gpu" untraced
	is '... and is met before a run is stored' "$("$ATTNREPLAY" sql --format csv gpu.db \
		'SELECT count(*) AS n FROM run')" 'n
0'
	skip 'without NVML a run has no energy and a warning says so' 'no usable GPU'
	skip '... and with it has' 'no usable GPU'
	skip 'a run says what it took itself' 'no usable GPU'
else
	skip 'a program without CUDA says so' 'built with CUDA'
	skip 'no GPU is a missing device' 'this machine has one'
	ok 'a GPU that is not there is a missing device' \
		fails 4 '^attnreplay: there is no GPU 1023, only .*; change --device$' cuda \
		--device 1023
	no_cupti() {
		ATTNREPLAY_CUPTI=/nonexistent cuda >out 2>err || return
		grep -q '^clock     events$' out && grep -q '^attnreplay: warning: '\
'.*nonexistent.*; CUDA events are the clock and no kernels are stored$' err
	}
	ok 'without CUPTI, CUDA events are the clock and a warning says so' no_cupti
	as_engine() { ATTNREPLAY_CUPTI=/nonexistent cuda --dense-as-engine 2; }
	ok '... and no kernels have times that could be an engine'"'s" fails 2 \
		'^attnreplay: dense-as-engine has no effect without the times of kernels; leave' \
		as_engine
	no_nvml() {
		ATTNREPLAY_NVML=/nonexistent cuda --db gpu.db >out 2>err || return
		grep -q "^attnreplay: warning: cannot load '/nonexistent', which ATTNREPLAY_NVML "\
'names; no energy is stored$' err
	}
	ok 'without NVML a run has no energy and a warning says so' no_nvml
	energy() {
		cuda --db gpu.db >out 2>err && grep -q '^energy: the GPU took ' out || return
		"$ATTNREPLAY" sql --format csv gpu.db 'SELECT * FROM v_energy'
		[ "$("$ATTNREPLAY" sql --format csv gpu.db 'SELECT count(*), max(energy_mj > 0
			AND energy_ns > 0 AND energy_idle_mw BETWEEN 1000 AND 1000000) FROM run
			WHERE energy_mj IS NOT NULL' | tail -n 1)" = 1,1 ]
	}
	ok '... and with it has' energy
	wall() {
		cuda >out && grep -q '^time: [0-9.]* s to open, [0-9.]* s to replay [0-9.]* s of '\
'the GPU ([0-9.]* times), [0-9.]* s for replicates$' out
	}
	ok 'a run says what it took itself' wall
fi
finish

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The scripts of contrib/: each prints help without what only its work needs, and finds the program.
. "$srcdir/tests/tap.sh"

python=${PYTHON:-python3}
export PYTHONDONTWRITEBYTECODE=1

# Each package that is no part of Python fails to be imported.
mkdir "$tmp/none"
for package in gguf numpy safetensors tokenizers torch transformers vllm; do
	echo 'raise ImportError("imported for help")' >"$tmp/none/$package.py"
done
helps() { # helps COMMAND...: print what the script is for, and how to call it
	PYTHONPATH=$tmp/none "$@" --help >"$tmp/help" 2>&1 && grep -q '^usage: ' "$tmp/help" &&
		[ "$(wc -l <"$tmp/help")" -gt 3 ] || { cat "$tmp/help"; return 1; }
}
for script in "$srcdir"/contrib/*.sh; do
	[ "$(basename "$script")" = common.sh ] || ok "$(basename "$script") --help" helps sh "$script"
done
if "$python" -c 'import argparse' 2>/dev/null; then
	for script in "$srcdir"/contrib/*.py; do
		grep -q '^if __name__' "$script" || continue	# a part of others
		ok "$(basename "$script") --help" helps "$python" "$script"
	done
fi
is 'without arguments a script says how to call it' \
	"$(sh "$srcdir/contrib/curve.sh" 2>&1; echo $?)" \
	"$(printf 'usage: contrib/curve.sh FOLDER --capture FILE [OPTION]...\n2')"
is 'one that needs a build says so' "$(BUILD=$tmp/none sh "$srcdir/contrib/check_configs.sh" a b 2>&1)" \
	"check_configs.sh: no build in '$tmp/none', which knows the sizes; name its folder as BUILD"

# ---- the table of agents ----
ok 'comm_share.sh has the share of collectives' sh -c 'MODELS=llama-3.1-8b sh "$0" --comm model |
	grep -cE "^\| llama-3.1-8b \| [248] (\| [0-9.]+ ms, [0-9]+ % ){3}\| a ring of " | grep -x 3' \
	"$srcdir/contrib/comm_share.sh"
is '... or says what is wrong' "$(MODELS=llama-3.1-8b sh "$srcdir/contrib/comm_share.sh" --comm no/where 2>&1 |
	tail -n 1)" 'attnreplay: no/where: No such file or directory'

agents() { # agents OPTION...: into $tmp/agents
	sh "$srcdir/contrib/agents.sh" "$tmp/agents" --trace "$srcdir/tests/data/weka-2.jsonl" \
		--prompt-scale 0.02 --output-scale 0.02 --model niah-llama-14m --sample-layers 1 \
		--backend cpu --capture "$ATTNREPLAY_DATA/traces/samples/niah-2k.arc" \
		--accuracy 1 --accuracy-decode 1 --clock formula --cost-fixed 10ms "$@" \
		>"$tmp/table" 2>"$tmp/said" || { cat "$tmp/said"; return 1; }
}
ok 'agents.sh runs its methods' agents
ok '... each has a line with a figure in each column' \
	test "$(grep -cE '^\| [a-z0-9].*( \| [0-9.]+){8} \|$' "$tmp/table")" = 12
is '... sparse prefills and decodes, alone and together' \
	"$(grep -c '^| dense/' "$tmp/table") $(grep -c '^| compact-fp.*/' "$tmp/table")" '5 5'
METHODS=quest ok '... or those that are named, without an evictor' agents
ok '... into the same table' eval 'grep "^| quest |" "$tmp/table" && grep "^| dense |" "$tmp/table"'

# ---- the tables of a served engine ----

mkdir "$tmp/logs" "$tmp/costs" "$tmp/traces"
# make_served WORKLOAD OUTPUT: 40 requests of 600 prompt tokens, one after the other, in two passes.  A
# prompt takes 20 or 30 ms, a decode 5 or 6, of which 4 the host.
make_served() {
	awk -v output="$2" -v trace="$tmp/traces/$1.csv" -v logs="$tmp/logs/$1-2048" 'BEGIN {
		print "TIMESTAMP,ContextTokens,GeneratedTokens" >trace
		for (pass = 1; pass <= 2; pass++) {
			log_ = logs "-" pass ".jsonl"
			print "{\"engine\":\"vllm\",\"version\":\"0.24.0\",\"async\":false,\"model\":{\"architectures\":[\"LlamaForCausalLM\"],\"hidden_size\":64,\"intermediate_size\":64,\"num_attention_heads\":1,\"num_key_value_heads\":1,\"num_hidden_layers\":2,\"vocab_size\":64,\"max_position_embeddings\":4096}}" >log_
			for (i = 0; i < 40; i++) {
				if (pass == 1)
					printf "2024-01-01 00:00:%04.1f,600,%d\n", i / 2, output >trace
				t = i / 2
				for (k = 0; k < output; k++) {
					ms = k ? 5 + i % 2 : i % 2 ? 30 : 20
					printf "{\"begin\":%.4f,\"end\":%.4f,\"tokens\":[%d],\"requests\":[%d],\"schedule\":0.0001,\"execute\":%.4f,\"wait\":0,\"update\":0.0001}\n", t, t + ms / 1e3, k ? 1 : 600, i, k ? 0.004 : ms / 1e3 - 0.001 >log_
					t += ms / 1e3
					first = k ? first : t
				}
				printf "{\"request\":%d,\"arrival\":%.4f,\"prompt_tokens\":600,\"output_tokens\":%d,\"first_token\":%.4f,\"last_token\":%.4f}\n", i, i / 2, output, first, t >log_
			}
		}
	}'
	"$ATTNREPLAY" -q run --backend cost --trace "$tmp/traces/$1.csv" --cost-fixed 5ms --cost-per-token 0 \
		--intervals off --db "$tmp/costs/$1-2048.db" >"$tmp/.run"
}
served() { # served OPTION...: into $tmp/table
	"$python" "$srcdir/contrib/served_table.py" --repeats 3 "$@" "$tmp/logs" "$tmp/costs" "$tmp/traces" -- \
		--policy vllm-0.24 --no-async-scheduling >"$tmp/table" 2>"$tmp/said"
}
make_served short 3
if "$python" -c 'import argparse' 2>/dev/null; then
	ok 'a host is fitted on other workloads: one is not enough' eval '! served && grep -q \
		"want logs WORKLOAD-TOKENS-PASS.jsonl of two" "$tmp/said"'
	make_served long 8
	ok 'each workload of a served engine is predicted' served
	ok '... its percentiles beside those of the passes' \
		grep -Eq '^\| short, 2048, 2 \| TTFT \| [0-9.]+ / 25.0 \(25.0 to 25.0\), [-+][0-9]+ %' "$tmp/table"
	is '... all of them' "$(grep -c '^| [ls].* | T[TP][FO]T | .* | .* | .* |$' "$tmp/table")" 4
	ok '... how many are right' grep -Eq '^[0-9]+ of 12 figures are within 5 %' "$tmp/table"
	ok '... and iterations by kind' grep -Eq '^\| long, 2048, 2 \| decodes \| 560 \| 5\.50 \|' "$tmp/table"
	ok '... one of them alone' eval 'served --only long && ! grep -q "^| short" "$tmp/table" && grep -q \
		"of 6 figures" "$tmp/table"'
	ok 'a host that is named is taken for all' served --host vllm-0.24
	ok '... a program that fails ends it' eval '! served --host none && grep -q \
		"served_table: .attnreplay run. failed" "$tmp/said"'
	mv "$tmp/logs" "$tmp/gone"
	ok '... a folder that is missing is named' eval '! served && grep -q "No such file" "$tmp/said"'
else
	skip 'the tables of a served engine' 'no python3'
fi

# ---- the program: named, unpacked, built, installed, or missing ----

mkdir -p "$tmp/share/contrib" "$tmp/bin"
cp "$srcdir/contrib/program" "$tmp/share/contrib/"
says() { # says FILE WORD: make a program that prints WORD and its arguments
	printf '#!/bin/sh\necho %s "$@"\n' "$2" >"$1" && chmod +x "$1"
}
program() { "$tmp/share/contrib/program" 'a b'; }
ATTNREPLAY=	# tests export it
says "$tmp/bin/attnreplay" installed
is 'a program that is missing is named' "$(program 2>&1; echo $?)" \
	"$(printf '%s\n' 'program: no attnreplay is built or installed; name the program as ATTNREPLAY' 127)"
is 'the installed one is found' "$(PATH=$tmp/bin:$PATH program)" 'installed a b'
mkdir "$tmp/share/build"
says "$tmp/share/build/attnreplay" built
is '... after the one that was built' "$(PATH=$tmp/bin:$PATH program)" 'built a b'
says "$tmp/share/run" run
is '... or unpacked' "$(program)" "run $(cd "$tmp/share" && pwd)/attnreplay a b"
ATTNREPLAY=$tmp/bin/attnreplay
is '... and after the one that is named' "$(program)" 'installed a b'
finish

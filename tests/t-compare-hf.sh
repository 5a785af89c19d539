#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The forward pass against Hugging Face transformers, on the small random models that
# contrib/compare_hf.py makes, if Python has the needed packages.
. "$srcdir/tests/tap.sh"

python=${PYTHON:-python3}
export HF_HUB_OFFLINE=1 TRANSFORMERS_VERBOSITY=error PYTHONDONTWRITEBYTECODE=1
if ! "$python" -c 'import torch, transformers, safetensors' 2>/dev/null; then
	echo '1..0 # SKIP no torch, transformers and safetensors'
	exit 0
fi
dump=$(dirname "$ATTNREPLAY")/tests/forward-dump
hf() { "$python" "$srcdir/contrib/compare_hf.py" "$@"; }

pass() { # pass BACKEND MODEL: in chunks, to ours.safetensors
	"$dump" "$1" "$2" "$2/prompts.jsonl" "$2/ours.safetensors" 100
}
refuses() { # refuses PATTERN MODEL
	! hf compare "$2" >"$tmp/.out" 2>&1 && grep -q -e "$1" "$tmp/.out" ||
		{ cat "$tmp/.out"; return 1; }
}

models() { # models DIR ARGS...
	hf models "$@" >"$tmp/.log" 2>&1 || { cat "$tmp/.log" >&2; echo 'Bail out! no models'; exit 1; }
}
models "$tmp/m"
for backend in cpu; do
	for model in "$tmp"/m/*; do
		ok "$backend: a pass of $(basename "$model")" pass $backend "$model"
	done
	ok "$backend: no layer and no logit is farther from fp32 than bf16 makes it" \
		hf compare "$tmp"/m/*
	is '... which names each model' "$(grep -c 'passed: largest ratio' "$tmp/.log")" \
		"$(ls "$tmp/m" | wc -l)"
done

# Kernels have heads of some sizes only.
if "$dump" cuda "$tmp/none" "$tmp/m/llama/prompts.jsonl" "$tmp/x" 2>&1 | grep -q 'no backend' ||
	! nvidia-smi -L >/dev/null 2>&1; then
	skip 'cuda: a pass of each model' 'no usable GPU'
else
	for size in 64 128 256; do
		models "$tmp/m$size" --head-dim $size
		for model in "$tmp/m$size"/*; do
			ok "cuda: a pass of $(basename "$model"), heads of $size" pass cuda "$model"
		done
		ok '... is no farther from fp32 than bf16 makes it' hf compare "$tmp/m$size"/*
		grep 'largest ratio' "$tmp/.log" | sed 's/^/# /'
	done
fi

# A comparison that sees nothing would pass everything.
cp -r "$tmp/m/llama" "$tmp/turned"
sed -i 's/"rope_theta": 10000.0/"rope_theta": 20000.0/' "$tmp/turned/config.json"
ok 'another RoPE is seen' refuses 'FAILED: largest ratio' "$tmp/turned"
cp -r "$tmp/m/llama" "$tmp/short"
echo '[1, 2, 3]' >"$tmp/short/prompts.jsonl"
ok 'so is a pass over another prompt' refuses 'hidden.0 is .333, 64., not .3, 64.' "$tmp/short"
cp "$tmp/m/gemma3-linear/model.safetensors" "$tmp/short/ours.safetensors"
ok 'and a file that is no pass' refuses 'has not hidden.0 to hidden.4 and logits' "$tmp/short"
ok 'and no file' refuses 'compare_hf: .*No such file' "$tmp/none"
finish

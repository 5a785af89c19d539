#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: contrib/eval_methods.sh FOLDER --weights DIR --tasks FILE [OPTION]...
# usage: contrib/eval_methods.sh list
#
# Evaluate twelve methods at three settings each on prompts with known answers.  OPTION... are
# options of 'attnreplay eval', such as --longest-prompt, --type and --backend.  Prompts come one at
# a time, in chunks of at most 2048 tokens, unless OPTION... says otherwise.  Without --backend they
# run on a GPU, and no kernels are stored.  list prints the methods.  Writes to FOLDER:
#
#   eval.db      all runs
#   eval.txt     the output of eval: a table of all methods at its end
#   report.txt   the sections of the report on tasks: accuracy by task and length, paired tests, and
#                the figures of single layers by how well they predict the loss
#   report.html  the report, with the curve of the log-probability over the executed share
#
#   ATTNREPLAY  the program (default: see contrib/program)
#   METHODS     the list of methods (default: those below); a later command adds to FOLDER
#   LAYERS      the two layers after which droppers drop tokens (default: 2+5, of eight)
set -eu
. "$(dirname "$0")/common.sh"
[ $# -gt 1 ] || [ "${1:-}" = list ] || wrong_usage
out=$1
shift

settings() { # settings BEFORE VALUE...: print BEFORE, the value and a comma for each value
	before=$1
	shift
	printf "$before%s\n" "$@"
}
layers=${LAYERS:-2+5}
all=$(settings flashprefill:alpha= 0.02 0.06 0.25
	settings compact-fp:alpha= 0.02 0.06 0.25
	settings xattention:threshold= 0.95 0.9 0.7
	settings flexprefill:min-budget=128,gamma= 0.99 0.95 0.8
	settings minference:vertical=64,slash= 4096 1024 256
	settings ashape:local= 4096 1024 256
	settings trishape:last-dense=0,recent= 4096 1024 256
	settings bfla:local= 4096 1024 256
	settings proxyattn:mass= 0.99 0.95 0.8
	settings quoka:kv-ratio= 0.5 0.25 0.1
	settings "dense+uniprefill:layers=$layers,mode=append,p=" 0.99 0.98 0.9
	settings "dense+lazyllm:layers=" "${layers%+*}:0.1+${layers#*+}:0.1" \
		"${layers%+*}:0.3+${layers#*+}:0.3" "${layers%+*}:0.6+${layers#*+}:0.6")

if [ "$out" = list ]; then
	echo "$all"
	exit
fi
kernels='--keep-kernels 0'
for option; do
	case $option in --backend*) kernels= ;; esac
done
mkdir -p "$out"
# shellcheck disable=SC2086
attnreplay eval --method "dense,${METHODS:-$(echo "$all" | paste -sd , -)}" --db "$out/eval.db" \
	--max-num-batched-tokens 2048 --loop users --keep-entries no $kernels "$@" >>"$out/eval.txt"
attnreplay report --html "$out/report.html" "$out/eval.db"
attnreplay report "$out/eval.db" | awk '
	/^$/ { shown = 0 }
	/^(Accuracy on tasks|Against dense, prompt|Dense attention|Rank correlation|Notes)/ {
		shown = 1
	}
	shown { print; blank = 1 }
	!shown && blank { print ""; blank = 0 }' >"$out/report.txt"

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Conventions of the command line: streams and exit statuses.
. "$srcdir/tests/tap.sh"

help_on_stdout() { "$ATTNREPLAY" --help 2>/dev/null | grep -q '^usage:'; }
same_help()      { "$ATTNREPLAY" "$@" --help >"$tmp/long" && "$ATTNREPLAY" "$@" -h |
	cmp "$tmp/long" -; }
narrow()         { # the help of all commands; a word alone may be longer than a line
	commands=$("$ATTNREPLAY" --help | sed -n '/^commands:/,/^$/s/^  \([a-z-]*\) .*/\1/p')
	for c in $commands; do "$ATTNREPLAY" "$c" --help; done >"$tmp/all"
	[ -n "$commands" ] &&
		awk 'length > 80 && NF > 1 { print; bad = 1 } END { exit bad }' "$tmp/all"
}
version_first()  { "$ATTNREPLAY" --version | head -1 | grep -q '^attnreplay '; }
full_disk()      { "$ATTNREPLAY" --version >/dev/full; [ $? = 1 ]; }

ok '--help goes to standard output' help_on_stdout
ok '-h is --help'                   same_help
ok '... of a command, too'          same_help run
ok 'help fits a terminal'           narrow
ok '--version prints the version'   version_first
ok 'no command is wrong usage'      fails 2 'no command given' "$ATTNREPLAY"
ok 'an unknown command is named'    fails 2 "unknown command 'nope'" "$ATTNREPLAY" nope
ok 'an unknown option is named'     fails 2 "unknown option '--nope'" "$ATTNREPLAY" --nope
ok 'a full disk is an error'        full_disk

# Help and version under the names that people try.
"$ATTNREPLAY" --version >"$tmp/version"
"$ATTNREPLAY" run --help >"$tmp/run-help"
"$ATTNREPLAY" --help >"$tmp/help"
same() { # same FILE ARG...: the program prints the file
	file=$1
	shift
	"$ATTNREPLAY" "$@" | cmp "$file" -
}
ok '-V is --version'                 same "$tmp/version" -V
ok '... after a command, too'        same "$tmp/version" run -V
ok 'help is --help'                  same "$tmp/help" help
ok 'help COMMAND is COMMAND --help'  same "$tmp/run-help" help run
ok 'help names an unknown command'   fails 2 "unknown command 'nope'" "$ATTNREPLAY" help nope

# -q and -v stand before or after the command.
blank=$tmp/blank.jsonl
printf '%s\n\n%s\n' '{"timestamp": 0, "input_length": 8, "output_length": 2, "hash_ids": [1]}' \
	'{"timestamp": 9, "input_length": 8, "output_length": 2, "hash_ids": [1]}' >"$blank"
warns()  { "$ATTNREPLAY" "$@" 2>&1 >/dev/null | grep -q 'blank line'; }
quiet()  { "$ATTNREPLAY" "$@" >/dev/null 2>"$tmp/.err" && cat "$tmp/.err" && [ ! -s "$tmp/.err" ]; }
ok 'a warning is printed'           warns trace info --format mooncake "$blank"
ok '-q before the command hides it' quiet -q trace info --format mooncake "$blank"
ok '-q after the command, too'      quiet trace info --format mooncake "$blank" -q
hints()  { "$ATTNREPLAY" run "$@" --nope 2>&1 | grep -q "try 'attnreplay run --help'"; }
ok '-v after the command shows more' hints -v

# An option under the name that another engine or an older version has for it.
means() { # means NAME OURS
	fails 2 "^attnreplay: unknown option '--$1'; did you mean '--$2'?$" \
		"$ATTNREPLAY" run "--$1" 5
}
ok 'the chunk size is the token budget'  means chunk-size max-num-batched-tokens
ok '... also of SGLang'                  means chunked-prefill-size max-num-batched-tokens
ok 'another spelling is close enough'    means max_num_seqs max-num-seqs
ok '... also of another name'            means chunked_prefill_size max-num-batched-tokens
ok 'ranks under the name of vLLM'        means tensor-parallel-size tp
ok 'the pool under the name of vLLM'     means num-gpu-blocks-override num-gpu-blocks
ok 'the load under the name of vLLM'     means request-rate rate
ok 'the number of requests'              means num-prompts requests
ok 'the limits of the goodput'           means goodput slo
finish

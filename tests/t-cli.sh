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
finish

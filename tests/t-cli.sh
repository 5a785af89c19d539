#!/bin/sh
# Manners of the command line: streams and exit statuses.
. "$srcdir/tests/tap.sh"

help_on_stdout() { "$ATTNREPLAY" --help 2>/dev/null | grep -q '^usage:'; }
version_first()  { "$ATTNREPLAY" --version | head -1 | grep -q '^attnreplay '; }
full_disk()      { "$ATTNREPLAY" --version >/dev/full; [ $? = 1 ]; }

ok '--help goes to standard output' help_on_stdout
ok '--version prints the version'   version_first
ok 'no command is wrong usage'      fails 2 'no command given' "$ATTNREPLAY"
ok 'an unknown command is named'    fails 2 "unknown command 'nope'" "$ATTNREPLAY" nope
ok 'an unknown option is named'     fails 2 "unknown option '--nope'" "$ATTNREPLAY" --nope
ok 'a full disk is an error'        full_disk
finish

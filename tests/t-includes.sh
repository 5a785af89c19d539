#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Includes run one way, and check-includes names the file and line of a violation.
. "$srcdir/tests/tap.sh"
check=$srcdir/build-aux/check-includes

folders() { mkdir -p "$tmp/tree"; (cd "$tmp/tree" && mkdir -p src replay profiler kernels/prim traces model base); }
names() { # names FILE LINE TEXT: an include that the check must name
	folders
	printf '\n#include "%s"\n' "$3" >"$tmp/tree/$1"
	"$check" "$tmp/tree" >"$tmp/found"
	got=$?
	rm "$tmp/tree/$1"
	[ $got != 0 ] && grep -q "^$1:$2: .*\"$3\"" "$tmp/found"
}

found() { # found FROM TO...: what the check says where src/FROM includes src/TO
	rm -rf "$tmp/tree"
	folders
	while [ $# -gt 0 ]; do
		mkdir -p "$tmp/tree/src/$1"
		printf '#include "src/%s/x.h"\n' "$2" >"$tmp/tree/src/$1/$2.h"
		shift 2
	done
	"$check" "$tmp/tree" && echo none
}

if [ -e "$srcdir/replay/local.mk" ]; then
	ok 'the tree'                       "$check" "$srcdir"
	ok 'base includes itself only'      names base/x.c 2 kernels/attn.h
	ok 'kernels know no traces' names kernels/prim/x.cuh 2 traces/trace.h
	ok 'traces know no kernels'         names traces/x.h 2 kernels/attn.h
	ok 'the database knows no replay'   names profiler/x.c 2 replay/sched/sched.h
	ok 'a path begins at the top'       names src/x.c 2 cmd.h
	is 'folders of src include each other' "$(found a b b b a c b c c d)" none
	is '... in no circle' "$(found a b b c c d d b d e)" \
'src/b/c.h:1: includes "src/c/x.h" in a circle
src/c/d.h:1: includes "src/d/x.h" in a circle
src/d/b.h:1: includes "src/b/x.h" in a circle'
else
	skip 'the tree' 'no sources here'
fi
finish

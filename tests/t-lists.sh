#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Each source file and each test is in one list and has its SPDX line; the check names the file.
# Lines of more than 100 columns are named by another.
. "$srcdir/tests/tap.sh"
check=$srcdir/build-aux/check-lists width=$srcdir/build-aux/check-width

licensed() { echo '/* SPDX-License-Identifier: Apache-2.0 */' >"$1"; }
tree() { # tree: one of each kind of list, complete
	rm -rf "$tmp/tree"
	mkdir "$tmp/tree" && cd "$tmp/tree" || return 1
	mkdir base model traces kernels replay profiler src tests
	for file in base/a.c base/a.h kernels/k.cu tests/t-one.c tests/t-two.c tests/more.c tests/t-s.sh; do
		licensed $file
	done
	cat >base/local.mk <<-'END'
		libattnreplay_a_SOURCES += \
		  base/a.c \
		    base/a.h	# a comment
		CLEANFILES += base/a.h
		DEVICE_CODE = kernels/k.cu
		check_PROGRAMS += tests/t-one tests/t-two
		tests_t_two_SOURCES = tests/t-two.c tests/more.c
		dist_check_SCRIPTS += tests/t-s.sh
	END
}
named() { # named FILE N: the check says that FILE is in N lists, and nothing else
	said=$("$check" "$tmp/tree") && return 1
	[ "$said" = "$1: in $2 lists" ]
}
complete() { (tree) && "$check" "$tmp/tree"; }
lacks() { # lacks FILE: a file that no list has
	(tree) && licensed "$tmp/tree/$1" && named "$1" 0
}
twice() { # twice FILE
	(tree) && echo "EXTRA_DIST += $1" >"$tmp/tree/src/local.mk" && named "$1" 2
}

unlicensed() {
	(tree) && : >"$tmp/tree/base/a.h" && said=$("$check" "$tmp/tree")
	[ "$said" = 'base/a.h: no SPDX line' ]
}

wide() { # wide FILE COLUMNS: the check names such a line, which has a tab, but none of 100 columns
	(tree) && mkdir "$tmp/tree/contrib" && printf '\t%092d\n' 0 >>"$tmp/tree/$1" &&
	"$width" "$tmp/tree" && printf '\t%0'$(($2 - 8))'d\n' 0 >>"$tmp/tree/$1" &&
	said=$("$width" "$tmp/tree") && return 1
	[ "$said" = "$1:$(awk 'END { print NR }' "$tmp/tree/$1"): $2 columns" ]
}

if [ -e "$srcdir/replay/local.mk" ]; then
	ok 'the tree' "$check" "$srcdir"
else
	skip 'the tree' 'no sources here'
fi
if [ -e "$check" ]; then
	ok 'every kind of list is read' complete
	ok 'a source that no list has is named' lacks src/x.c
	ok '... a header' lacks tests/x.h
	ok '... device code' lacks kernels/x.cuh
	ok '... a test' lacks tests/t-x.c
	ok '... a script' lacks tests/t-x.sh
	ok 'a file of two lists is named' twice base/a.c
	ok '... a test whose program names it' twice tests/t-one.c
	ok '... one of several files' twice tests/t-two.c
	ok 'a file without the licence is named' unlicensed
	ok 'a line of 101 columns is named' wide base/a.c 101
	ok '... of device code' wide kernels/k.cu 130
	ok '... of a list' wide base/local.mk 101
	ok '... of a make file' wide Makefile.am 101
else
	skip 'lists' 'no sources here'
fi
finish

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Device code is linked twice: into attnreplay, and into the library that the test programs share.
. "$srcdir/tests/tap.sh"
built=$(dirname "$ATTNREPLAY")

has_device_code() { grep -q nv_fatbin "$1"; }
# t-prof-gpu has a kernel of its own.
alone() {
	found=$(find "$built/tests" -maxdepth 1 -type f -perm -100 ! -name '*.s[ho]' \
		! -name t-prof-gpu)
	[ -n "$found" ] || return 1
	for program in $found; do
		has_device_code "$program" && echo "device code: $program" && return 1
	done
	return 0
}

if "$ATTNREPLAY" --version | grep -q '^cuda yes'; then
	ok 'attnreplay needs no library for its kernels' has_device_code "$ATTNREPLAY"
	ok 'the tests have one with theirs' has_device_code "$built/tests/libkernels.so"
	ok 'no test has them itself' alone
else
	skip 'device code' 'built without CUDA'
fi
finish

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What a build needs is installed, or named where that cannot be done.
. "$srcdir/tests/tap.sh"

if ! [ -x "$srcdir/configure" ] || ! [ -f "$srcdir/build-aux/prepare" ]; then
	echo '1..0 # SKIP no sources here'
	exit 0
fi

# ---- prepare, in a tree of its own, on a machine that has compilers but no library ----

tree=$tmp/tree
mkdir -p "$tree/build-aux" "$tree/m4" "$tree/a" "$tmp/bin"
cp "$srcdir/build-aux/prepare" "$tree/build-aux"
touch "$tree/VERSION" "$tree/configure.ac" "$tree/Makefile.am" "$tree/build-aux/a.am" \
	"$tree/m4/a.m4" "$tree/a/local.mk" "$tree/configure" "$tree/Makefile.in" "$tree/config.h.in"
for tool in sh cat cp dirname env find grep mkdir sed tail tee touch; do
	ln -s "$(command -v $tool)" "$tmp/bin/$tool"
done
fake() { # fake NAME STATUS [OUTPUT]: a program that prints OUTPUT, or its arguments
	printf '#!/bin/sh\necho %s\nexit %s\n' "${3:-\"\$@\"}" "$2" >"$tmp/bin/$1"
	chmod +x "$tmp/bin/$1"
}
for tool in gcc make g++; do fake $tool 0; done
fake pkg-config 1
prepare() { PATH=$tmp/bin CUDA_HOME=/none "$tree/build-aux/prepare" build 2>&1; }
libraries=' libsqlite3-dev libzstd-dev zlib1g-dev libcjson-dev libmd-dev'
is 'without apt, packages are named' "$(prepare)" \
	"prepare: install what Debian and Ubuntu call$libraries, then try again"
fake apt-get 100
fake id 0 1000
is 'without root as well' "$(prepare)" \
	"prepare: run 'apt-get install$libraries' as root, then try again"
fake id 0 0
printf '%s\n' NAME=Ubuntu ID=ubuntu >"$tmp/ubuntu"
printf '%s\n' ID=debian >"$tmp/debian"
export OS_RELEASE="$tmp/ubuntu"
is 'what cannot be installed is named; for Ubuntu its component' "$(prepare | tail -n 1)" \
	"prepare: cannot install$libraries; some are in Ubuntu's component 'universe'; the whole output is in '$tree/build/prepare.log'"
is 'apt was asked for them' "$(sed -n 's/.*--no-install-recommends install//p' "$tree/build/prepare.log" |
	sort -u)" "$libraries"
OS_RELEASE=$tmp/debian
is 'Debian has one component of them' "$(prepare | tail -n 1)" \
	"prepare: cannot install$libraries; the whole output is in '$tree/build/prepare.log'"

# ---- configure ----

is 'configure and prepare need the same' \
	"$(sed -n 's/^AR_LIBRARY(\[[A-Z]*\], *\[\([^]]*\)\], *\[\(.*\)\])/\2 \1/p' "$srcdir/configure.ac")" \
	"$(sed -n "s/^need \([^ ]*\) *pkg-config --exists '\(.*\)'/\1 \2/p" "$srcdir/build-aux/prepare")"
unset NVCC # it comes before the toolkit's own
configure() { # configure ARG...: its error
	rm -rf "$tmp/b" && mkdir "$tmp/b" && cd "$tmp/b" && "$srcdir/configure" "$@" 2>&1 |
		sed -n 's/^configure: error: //p'
}
is 'configure names all that is missing' "$(configure --without-cuda PKG_CONFIG=false)" \
	"not found: sqlite3 >= 3.37, libzstd >= 1.4, zlib >= 1.2.9, libcjson >= 1.7, libmd >= 1.0; Debian and Ubuntu have them as$libraries"
fake nvcc 0 "'Cuda compilation tools, release 12.0, V12.0.140'"
is 'an nvcc that is too old is named' "$(configure --with-cuda="$tmp")" \
	"$tmp/bin/nvcc is of CUDA 12.0, and 12.4 is needed; use --without-cuda to do without"
finish

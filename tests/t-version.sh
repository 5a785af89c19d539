#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The version: a release number, and the git revision beside it between releases.
. "$srcdir/tests/tap.sh"
gen=$srcdir/build-aux/git-version-gen
release=$(cat "$srcdir/VERSION")

says_release() {
	"$ATTNREPLAY" --version | head -1 | awk -v release="$release" '
		{ exit !($0 == "attnreplay " release || index($0, "attnreplay " release "-g") == 1) }'
}
version() { # version: in a tree of its own, below which there is no other repository
	(cd "$tmp/tree" && GIT_CEILING_DIRECTORIES=$tmp "$gen" .tarball-version)
}
in_tree() { git -C "$tmp/tree" -c user.name=a -c user.email=a@b -c commit.gpgsign=false "$@"; }

ok 'the program has the release number' says_release
if [ -e "$gen" ] && command -v git >/dev/null; then
	mkdir "$tmp/tree" && echo 1.2.3 >"$tmp/tree/VERSION"
	is 'without git it is the release' "$(version)" 1.2.3
	in_tree init -q && in_tree add VERSION && in_tree commit -q -m 1
	revision=$(in_tree rev-parse --short=7 HEAD)
	is 'a commit has its revision' "$(version)" "1.2.3-g$revision"
	in_tree tag v1.2.2
	is '... beside the tag of another release, too' "$(version)" "1.2.3-g$revision"
	in_tree tag v1.2.3
	is 'the commit of the release has none' "$(version)" 1.2.3
	echo >>"$tmp/tree/VERSION"
	is 'a change is shown' "$(version)" 1.2.3-dirty
	printf 1.2.3-gabcdef0 >"$tmp/tree/.tarball-version"
	is 'a tarball brings its own' "$(version)" 1.2.3-gabcdef0
else
	skip 'revisions' 'no git, or no sources here'
fi
finish

# SPDX-License-Identifier: Apache-2.0
# What the shell scripts of this folder share.  They source it before they change their arguments.
# shellcheck shell=sh disable=SC2034
top=$(cd "$(dirname "$0")/.." && pwd)

attnreplay() { "$top/contrib/program" "$@"; }

wrong_usage() { # end the script, because its arguments are wrong
	sed -n 's/^# \(usage:\)/\1/p' "$0" >&2
	exit 2
}

# The head of each script is its help.
case ${1:-} in
-h | --help)
	sed -n '3,/^[^#]/s/^# \{0,1\}//p' "$0"
	exit
	;;
esac

#compdef attnreplay
# SPDX-License-Identifier: Apache-2.0
# Completion for zsh: commands, their actions, the options in the --help of each command, and the
# values of those that have a list; files otherwise.

# The --help of a command, one line for each option.
_attnreplay_help()
{
	$words[1] $1 --help 2>/dev/null |
		sed 's/^  \(-., \|    \)--/\x01--/' | tr -s '\n ' ' ' | tr '\001' '\n'
}

_attnreplay()
{
	local word=$words[CURRENT] option=$words[CURRENT-1] cmd= at
	local -a list

	for ((at = 2; at < CURRENT; at++)); do
		if [[ $words[at] != -* ]]; then
			cmd=$words[at]
			break
		fi
	done
	if [[ $word == --*=* ]]; then
		option=${word%%=*}
		compset -P '*='
		word=${word#*=}
	fi
	if [[ -z $cmd || $cmd == help ]]; then
		list=($($words[1] --help 2>/dev/null |
			sed -n '/^commands:/,/^$/s/^  \([a-z-]*\) .*/\1/p'))
		[[ -n $cmd ]] || list+=(--help --version -V -q -v help)
	elif [[ $option == --* ]]; then
		list=($(_attnreplay_help $cmd |
			sed -n "s/^$option .*\[one of \([^];]*\).*/\1/p" | tr -d ,))
	elif ((at == CURRENT - 1)); then
		list=($($words[1] $cmd --help 2>/dev/null |
			sed -n "/^$/q; s/.*attnreplay $cmd \([a-z][a-z-]*\).*/\1/p"))
	fi
	if [[ -n $cmd && $cmd != help && $word == -* ]]; then
		list=(--help $(_attnreplay_help $cmd | sed -n 's/^\(--[a-z0-9-]*\).*/\1/p'))
	fi
	if (($#list)); then
		compadd -- ${(u)list}
	else
		_files
	fi
}
_attnreplay "$@"

# SPDX-License-Identifier: Apache-2.0
# Completion for bash: commands, their actions, the options in the --help of each command, and the
# values of those that have a list.

# The --help of a command, one line for each option.
_attnreplay_help()
{
	"${COMP_WORDS[0]}" "$1" --help 2>/dev/null |
		sed 's/^  \(-., \|    \)--/\x01--/' | tr -s '\n ' ' ' | tr '\001' '\n'
}

_attnreplay()
{
	local word=${COMP_WORDS[COMP_CWORD]} option=${COMP_WORDS[COMP_CWORD - 1]} cmd='' at list

	for ((at = 1; at < COMP_CWORD; at++)); do
		if [[ ${COMP_WORDS[at]} != -* ]]; then
			cmd=${COMP_WORDS[at]}
			break
		fi
	done
	# bash makes --option=value three words.
	if [[ $word == = ]]; then
		word=''
	elif [[ $option == = ]]; then
		option=${COMP_WORDS[COMP_CWORD - 2]}
	fi
	COMPREPLY=()
	if [[ ! $cmd || $cmd == help ]]; then
		list=$("${COMP_WORDS[0]}" --help 2>/dev/null |
			sed -n '/^commands:/,/^$/s/^  \([a-z-]*\) .*/\1/p')
		[[ $cmd ]] || list="--help --version -V -q -v help $list"
	elif [[ $option == --* ]]; then
		list=$(_attnreplay_help "$cmd" |
			sed -n "s/^$option .*\[one of \([^];]*\).*/\1/p" | tr -d ,)
	elif ((at == COMP_CWORD - 1)); then
		list=$("${COMP_WORDS[0]}" "$cmd" --help 2>/dev/null |
			sed -n "/^$/q; s/.*attnreplay $cmd \([a-z][a-z-]*\).*/\1/p")
	fi
	if [[ $cmd && $cmd != help && $word == -* ]]; then
		list="--help $(_attnreplay_help "$cmd" | sed -n 's/^\(--[a-z0-9-]*\).*/\1/p')"
	fi
	[[ $list ]] && mapfile -t COMPREPLY < <(compgen -W "$list" -- "$word" | sort -u)
}
complete -o default -F _attnreplay attnreplay

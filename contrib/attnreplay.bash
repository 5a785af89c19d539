# SPDX-License-Identifier: Apache-2.0
# Completion for bash: commands, and the options in the --help of each command.
_attnreplay()
{
	local word=${COMP_WORDS[COMP_CWORD]} cmd='' i list

	for ((i = 1; i < COMP_CWORD; i++)); do
		if [[ ${COMP_WORDS[i]} != -* ]]; then
			cmd=${COMP_WORDS[i]}
			break
		fi
	done
	COMPREPLY=()
	if [[ $cmd && $word == -* ]]; then
		list="--help $("${COMP_WORDS[0]}" "$cmd" --help 2>/dev/null |
			sed -n 's/^  \(-., \|    \)\(--[a-z0-9-]*\).*/\2/p' | sort -u)"
	elif [[ ! $cmd ]]; then
		list="--help --version -V -q -v help $("${COMP_WORDS[0]}" --help 2>/dev/null |
			sed -n '/^commands:/,/^$/s/^  \([a-z-]*\) .*/\1/p')"
	fi
	[[ $list ]] && mapfile -t COMPREPLY < <(compgen -W "$list" -- "$word")
}
complete -o default -F _attnreplay attnreplay

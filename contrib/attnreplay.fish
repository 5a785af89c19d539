# SPDX-License-Identifier: Apache-2.0
# Completion for fish: commands, their actions, the options in the --help of each command, and the
# values of those that have a list; files otherwise.

# The --help of a command, one line for each option.
function __attnreplay_help
    $argv --help 2>/dev/null |
        sed 's/^  \(-., \|    \)--/\x01--/' | tr -s '\n ' ' ' | tr '\001' '\n'
end

function __attnreplay_list
    set -l words (commandline -opc)
    set -l word (commandline -ct)
    set -l option $words[-1]
    set -l operands (string match -v -- '-*' $words[2..-1])
    set -l cmd $operands[1]
    if string match -q -- '--*=*' $word
        # fish completes the whole word.
        set option (string replace -r '=.*' '' -- $word)
        __attnreplay_help $words[1] $cmd | sed -n "s/^$option .*\[one of \([^];]*\).*/\1/p" |
            tr -d , | tr -s ' ' '\n' | sed "s/^./$option=&/"
    else if test -z "$cmd" -o "$cmd" = help
        test -n "$cmd"; or printf '%s\n' --help --version -V -q -v help
        $words[1] --help 2>/dev/null | sed -n '/^commands:/,/^$/s/^  \([a-z-]*\) .*/\1/p'
    else if string match -q -- '-*' $word
        echo --help
        __attnreplay_help $words[1] $cmd | sed -n 's/^\(--[a-z0-9-]*\).*/\1/p'
    else if string match -q -- '--*' $option
        __attnreplay_help $words[1] $cmd | sed -n "s/^$option .*\[one of \([^];]*\).*/\1/p" |
            tr -d , | tr -s ' ' '\n'
    else if test "$option" = "$cmd"
        $words[1] $cmd --help 2>/dev/null |
            sed -n "/^\$/q; s/.*attnreplay $cmd \([a-z][a-z-]*\).*/\1/p"
    end
end

complete -c attnreplay -n 'test -n "$(__attnreplay_list)"' -f -a '(__attnreplay_list)'

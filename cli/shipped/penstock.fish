# fish completion of penstock: penstock completion fish | source
# What may stand where, place, words, meaning, with tabs between. Places are "" (the first word), "GROUP " (its second),
# "COMMAND:" (options and arguments) and "COMMAND:OPTION" (its values); <files> means files.
set -g __penstock_words (string split \n -- '@words@')

function __penstock_offer -d 'Prints the words of a place; fails where it has none'
    set -l lines (string match -- $argv[1]\t'*' $__penstock_words)
    or return 1
    for line in $lines
        set -l parts (string split \t -- $line)
        for word in (string split -n ' ' -- $parts[2])
            if test $word = '<files>'
                __fish_complete_path (string replace -r -- '^--[^=]*=' '' (commandline -ct))
            else if string match -q -- '-*' (commandline -ct); or not string match -q -- '-*' $word
                printf '%s%s\t%s\n' "$argv[2]" $word "$parts[3]"
            end
        end
    end
end

function __penstock_complete -d 'Prints what may stand at the cursor'
    set -l typed (commandline -opc)[2..-1]
    set -l current (commandline -ct)
    if test "$typed[1]" = help
        set -e typed[1]
        test (count $typed) = 0; or string match -q -- "$typed "\t'*' $__penstock_words; or return
    end
    if test (count $typed) = 0
        __penstock_offer ''
        return
    end
    set -l command $typed[1]
    if test (count $typed) = 1; and __penstock_offer "$command "
        return
    end
    if string match -q -- "$typed[1..2]:"\t'*' $__penstock_words
        set command "$typed[1..2]"
    end
    if string match -q -- '--*=*' $current
        set -l option (string replace -r -- '=.*' '' $current)
        __penstock_offer "$command:$option" "$option="
        return
    end
    __penstock_offer "$command:$typed[-1]"; or __penstock_offer "$command:"
end
complete -c penstock -e
complete -c penstock -f -a '(__penstock_complete)'

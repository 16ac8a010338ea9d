#compdef penstock
# zsh completion of penstock: source <(penstock completion zsh), or as _penstock in $fpath
# What may stand where, place, words, meaning, with tabs between. Places are "" (the first word), "GROUP " (its second),
# "COMMAND:" (options and arguments) and "COMMAND:OPTION" (its values); <files> means files.
typeset -ga _penstock_words
_penstock_words=("${(@f)$(<<'END'
@words@
END
)}")

# Adds the words of a place; fails where it has none.
_penstock_offer() {
  local -a lines=(${(M)_penstock_words:#${1}$'\t'*}) named parts
  (( $#lines )) || return 1
  local line word
  for line in $lines; do
    parts=("${(@ps:\t:)line}")
    for word in ${=parts[2]}; do
      if [[ $word == '<files>' ]]; then
        _files
      elif [[ $word == *= ]]; then
        compadd -S '' -- $word
      elif [[ $word != -* || $PREFIX == -* ]]; then
        named+=("${word//:/\\:}${parts[3]:+:$parts[3]}")
      fi
    done
  done
  (( $#named )) && _describe penstock named
  return 0
}

_penstock() {
  local command=$words[2] previous=$words[CURRENT-1]
  if [[ $command == help ]] && (( CURRENT > 2 )); then  # penstock help schedule show
    words[2]=(); (( --CURRENT == 2 )) || [[ $CURRENT == 3 && -n ${(M)_penstock_words:#$words[2] $'\t'*} ]] || return
    command=$words[2]
  fi
  if (( CURRENT == 2 )); then _penstock_offer ''; return; fi
  if (( CURRENT == 3 )) && _penstock_offer "$command "; then return; fi
  [[ -n ${(M)_penstock_words:#$command $words[3]:$'\t'*} ]] && command+=" $words[3]"
  if [[ $PREFIX == --*=* ]]; then previous=${PREFIX%%=*}; compset -P 1 '*='; fi
  _penstock_offer "$command:$previous" || _penstock_offer "$command:"
}
if [[ $funcstack[1] == _penstock ]]; then
  _penstock "$@"
else
  (( $+functions[compdef] )) || { autoload -Uz compinit; compinit }
  compdef _penstock penstock
fi

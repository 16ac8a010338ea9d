# bash completion of penstock: source <(penstock completion bash)
# What may stand where, place, words, meaning, with tabs between. Places are "" (the first word), "GROUP " (its second),
# "COMMAND:" (options and arguments) and "COMMAND:OPTION" (its values); <files> means files.
IFS= read -r -d '' _penstock_words <<'END'
@words@
END

# Adds the words of a place; fails where it has none.
_penstock_offer() {
  local place offered meaning found=1
  while IFS='|' read -r place offered meaning; do
    [[ $place == "$1" ]] || continue
    found=0
    [[ $offered == *'<files>'* ]] && files=1
    words+=" ${offered/'<files>'}"
  done <<<"${_penstock_words//$'\t'/|}"
  return $found
}

_penstock() {
  local at=$COMP_CWORD words='' files=''
  local -a typed=("${COMP_WORDS[@]}")
  local current=${typed[at]} previous=${typed[at-1]}
  if [[ $current == = ]]; then current=''; fi  # bash splits --format=json at the sign
  if [[ $previous == = ]]; then previous=${typed[at-2]}; fi
  COMPREPLY=()
  if [[ ${typed[1]} == help ]] && (( at > 1 )); then  # penstock help schedule show
    typed=("${typed[0]}" "${typed[@]:2}")
    (( --at == 1 )) || [[ $at == 2 && $'\n'$_penstock_words == *$'\n'"${typed[1]} "$'\t'* ]] || return
  fi
  if (( at == 1 )); then
    _penstock_offer ''
  elif (( at > 2 )) || ! _penstock_offer "${typed[1]} "; then
    local command=${typed[1]}
    [[ $'\n'$_penstock_words == *$'\n'"$command ${typed[2]}:"$'\t'* ]] && command+=" ${typed[2]}"
    _penstock_offer "$command:$previous" || _penstock_offer "$command:"
  fi
  COMPREPLY=($(compgen -W "$words" -- "$current"))
  [[ -n $files ]] && COMPREPLY+=($(compgen -f -- "$current"))
}
complete -o filenames -F _penstock penstock ./penstock

# zsh -f zsh_offers.zsh COMPLETION LINE: what an interactive zsh that has sourced the file COMPLETION
# offers at the end of LINE, a word a line. Completion runs only in the line editor, so the editor
# runs in a terminal of its own (zpty), where compadd is told to print as well.
zmodload zsh/zpty || exit 77
zpty shell zsh -f -i

ask() { zpty -w shell "$1"; }
wait_for() { local seen; zpty -r shell seen "*$1*" || exit 1; REPLY=$seen; }

ask "PROMPT= RPROMPT= TERM=dumb; unsetopt zle_bracketed_paste prompt_sp; autoload -Uz compinit"
ask "compinit -u -D; source ${(q)1}"
ask 'compadd() {
  local -a found
  if [[ " $* " == *" -"[OAD]" "* ]]; then builtin compadd "$@"; return; fi
  builtin compadd -A found "$@"
  print -rl -- "<"$^found">"
  builtin compadd "$@"
}
show() { print "<<begin>>"; zle list-choices; print "<<end>>"; zle kill-whole-line }
zle -N show
bindkey "^I" show
zstyle ":completion:*" list-colors
print "<<"ready">>"'
wait_for '<<ready>>'
zpty -w -n shell "$2"$'\t'
wait_for '<<end>>'
print -rl -- ${(u)${(M)${(f)${REPLY//$'\r'/}}:#<[^<]*>}} | sed 's/^<\(.*\)>$/\1/'
zpty -d shell

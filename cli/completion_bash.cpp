// SPDX-License-Identifier: Apache-2.0
#include "cli/completion.hpp"

#include <fmt/format.h>

#include <set>

namespace penstock {
namespace {

std::string words_of(const std::vector<WordWithMeaning>& all) {
  std::string text;
  for (const auto& [word, meaning] : all) text += (text.empty() ? "" : " ") + word;
  return text;
}

/// A `case` arm that sets what may follow.
std::string arm(const std::string& place, const std::vector<std::string>& words, bool files) {
  return fmt::format("    '{}') words='{}'{} ;;\n", place, fmt::join(words, " "),
                     files ? " files=1" : "");
}

/// For "command:--option" its values, for "command:" its options and arguments.
std::string bash_arms() {
  std::string out;
  for (const CommandSpec& command : commands()) {
    std::vector<std::string> words{"--help"};
    for (const OptionSpec& option : command.options) {
      words.push_back(fmt::format("--{}", option.name));
      const Candidates values = values_of(command, option);
      if (!values.any()) continue;
      out += arm(fmt::format("{}:--{}", command.name, option.name), values.words, values.files);
    }
    std::set<std::string> arguments;
    bool files = false;
    for (std::size_t i = 0; i < 2; ++i) {
      const Candidates here = argument_of(command, i);
      arguments.insert(here.words.begin(), here.words.end());
      files = files || here.files;
    }
    words.insert(words.end(), arguments.begin(), arguments.end());
    out += arm(fmt::format("{}:", command.name), words, files);
  }
  return out;
}

}  // namespace

std::string bash_completion() {
  std::string groups, pairs;
  for (const auto& [word, meaning] : first_words()) {
    const auto inside = second_words(word);
    if (inside.empty()) continue;
    groups += fmt::format("    {}) words='{}' ;;\n", word, words_of(inside));
    for (const auto& [second, summary] : inside)
      pairs += fmt::format("{}'{} {}'", pairs.empty() ? "" : " | ", word, second);
  }
  return fmt::format(R"(# bash completion of penstock: source <(penstock completion bash)
_penstock() {{
  local at=$COMP_CWORD words='' files=''
  local -a typed=("${{COMP_WORDS[@]}}")
  local current=${{typed[at]}} previous=${{typed[at-1]}}
  if [[ $current == = ]]; then current=''; fi  # bash splits --format=json at the sign
  if [[ $previous == = ]]; then previous=${{typed[at-2]}}; fi
  COMPREPLY=()
  if (( at == 1 )); then
    COMPREPLY=($(compgen -W '{} --help --version' -- "$current"))
    return
  fi
  if [[ ${{typed[1]}} == help ]] && (( at > 2 )); then  # penstock help schedule show
    typed=("${{typed[0]}}" "${{typed[@]:2}}")
    (( --at == 2 )) || return
  fi
  local command=${{typed[1]}}
  if (( at == 2 )); then
    case $command in
{}    esac
    if [[ -n $words ]]; then COMPREPLY=($(compgen -W "$words" -- "$current")); return; fi
    if (( at < COMP_CWORD )); then return; fi
  fi
  case "$command ${{typed[2]}}" in {}) command="$command ${{typed[2]}}" ;; esac
  local option=''
  [[ $previous == --* ]] && option=$previous
  local place
  for place in "$command:$option" "$command:"; do
    case $place in
{}    esac
    [[ -n $words$files ]] && break
  done
  COMPREPLY=($(compgen -W "$words" -- "$current"))
  [[ -n $files ]] && COMPREPLY+=($(compgen -f -- "$current"))
}}
complete -o filenames -F _penstock penstock ./penstock
)",
                     words_of(first_words()), groups, pairs, bash_arms());
}

}  // namespace penstock

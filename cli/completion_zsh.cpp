// SPDX-License-Identifier: Apache-2.0
#include "cli/completion.hpp"

#include <fmt/format.h>

namespace penstock {
namespace {

/// In single quotes.
std::string zsh_quoted(std::string_view text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

/// A part of a specification of _arguments or _describe.
std::string zsh_part(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == ':' || c == '[' || c == ']' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

/// What completes a place, as an action of _arguments.
std::string zsh_action(const Candidates& candidates) {
  if (!candidates.any()) return " ";  // a value, of which nothing is known
  const std::string words = fmt::format("{}", fmt::join(candidates.words, " "));
  if (words.empty()) return "_files";
  if (candidates.files)
    return fmt::format("{{_alternative \"names:name:({})\" \"files:file:_files\"}}", words);
  if (words.ends_with('=')) return fmt::format("{{compadd -S \"\" -- {}}}", words);
  return fmt::format("({})", words);
}

std::string zsh_option(const CommandSpec& command, const OptionSpec& option) {
  const char* const after = option.value.empty() ? "" : "=";
  std::string names;
  if (option.short_name.empty()) {
    names = fmt::format("{}--{}{}", option.repeated ? "*" : "", option.name, after);
    names = zsh_quoted(names);
  } else {
    names = fmt::format("'(-{0} --{1})'{{-{0}{3},--{1}{2}}}", option.short_name, option.name, after,
                        option.value.empty() ? "" : "+");
  }
  std::string rest = fmt::format("[{}]", zsh_part(option.help));
  if (!option.value.empty())
    rest += fmt::format(":{}:{}", zsh_part(option.value), zsh_action(values_of(command, option)));
  return names + zsh_quoted(rest);
}

std::string zsh_argument(const CommandSpec& command, std::size_t position, bool others) {
  return zsh_quoted(fmt::format("{}:{}:{}", others ? "*" : std::to_string(position + 1),
                                zsh_part(command.positional),
                                zsh_action(argument_of(command, position))));
}

std::string zsh_arm(const CommandSpec& command) {
  std::string text = fmt::format("    {}) _arguments -s -S", zsh_quoted(command.name));
  const auto add = [&](const std::string& specification) { text += " \\\n      " + specification; };
  add("'(-h --help)'{-h,--help}'[what it takes]'");
  for (const OptionSpec& option : command.options) add(zsh_option(command, option));
  const auto most = static_cast<std::size_t>(command.max_positional);
  for (std::size_t i = 0; i < most && i < 2; ++i) add(zsh_argument(command, i, i == 1 && most > 2));
  return text + " ;;\n";
}

/// Items of an array for _describe.
std::string zsh_items(const std::vector<WordWithMeaning>& words) {
  std::string text;
  for (const auto& [word, meaning] : words)
    text += "    " + zsh_quoted(zsh_part(word) + ":" + zsh_part(meaning)) + "\n";
  return text;
}

}  // namespace

std::string zsh_completion() {
  std::string groups, pairs, arms;
  for (const auto& [word, meaning] : first_words()) {
    const auto inside = second_words(word);
    if (inside.empty()) continue;
    groups += fmt::format("  {} second=(\n{}  ) ;;\n", word + ")", zsh_items(inside));
    for (const auto& [second, summary] : inside)
      pairs += fmt::format("{}'{} {}'", pairs.empty() ? "" : " | ", word, second);
  }
  for (const CommandSpec& command : commands()) arms += zsh_arm(command);
  return fmt::format(R"(#compdef penstock
# zsh completion of penstock: source <(penstock completion zsh), or as _penstock in $fpath
_penstock() {{
  local context state state_descr line
  local -A opt_args
  local -a first=(
{}    '--help:what it is'
    '--version:its version'
  )
  if (( CURRENT == 2 )); then _describe command first; return; fi
  if [[ $words[2] == help ]] && (( CURRENT > 3 )); then  # penstock help schedule show
    words[2]=(); (( --CURRENT == 3 )) || return
    local of_help=1
  fi
  local -a second=()
  case $words[2] in
{}  esac
  if (( CURRENT == 3 && $#second )); then _describe command second; return; fi
  if (( $+of_help )); then return; fi
  local name=$words[2] taken=1
  case "$words[2] $words[3]" in {}) name+=" $words[3]"; taken=2 ;; esac
  words[2,taken+1]=(); (( CURRENT -= taken ))
  case $name in
{}  esac
}}
if [[ $funcstack[1] == _penstock ]]; then
  _penstock "$@"
else
  (( $+functions[compdef] )) || {{ autoload -Uz compinit; compinit }}
  compdef _penstock penstock
fi
)",
                     zsh_items(first_words()), groups, pairs, arms);
}

}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
#include "cli/completion.hpp"

#include <fmt/format.h>

namespace penstock {
namespace {

/// In single quotes.
std::string fish_quoted(std::string_view text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') out += '\\';
    out += c;
  }
  return out + "'";
}

/// Where `condition` holds: what `-a` offers.
std::string fish_line(const std::string& condition, const std::string& rest) {
  return fmt::format("complete -c penstock -n {} {}\n", fish_quoted(condition), rest);
}

std::string fish_words(const std::string& condition, const std::vector<WordWithMeaning>& words) {
  std::string text;
  for (const auto& [word, meaning] : words)
    text += fish_line(condition, fmt::format("-a {} -d {}", word, fish_quoted(meaning)));
  return text;
}

/// Files are offered where `-F` asks for them, nowhere else.
std::string fish_candidates(const Candidates& candidates) {
  std::string text = candidates.files ? "-F" : "";
  if (candidates.words.empty()) return text;
  return text + fmt::format("{}-a {}", text.empty() ? "" : " ",
                            fish_quoted(fmt::format("{}", fmt::join(candidates.words, " "))));
}

std::string fish_option(const CommandSpec& command, const OptionSpec& option) {
  std::string text = option.short_name.empty() ? "" : fmt::format("-s {} ", option.short_name);
  text += fmt::format("-l {} -d {}", option.name, fish_quoted(option.help));
  if (option.value.empty()) return text;
  const Candidates values = values_of(command, option);
  text += values.files ? " -r" : " -x";
  return values.any() ? text + " " + fish_candidates(values) : text;
}

std::string fish_command(const CommandSpec& command) {
  const std::string here = fmt::format("__penstock_has {}", command.name);
  std::string text = fish_line(here, "-s h -l help -d 'what it takes'");
  for (const OptionSpec& option : command.options)
    text += fish_line(here, fish_option(command, option));
  Candidates arguments = argument_of(command, 0);
  if (argument_kind(command, 0) == "command") return text;  // its words follow it alone
  const Candidates more = argument_of(command, 1);
  if (arguments.words.empty()) arguments.words = more.words;
  return arguments.any() ? text + fish_line(here, fish_candidates(arguments)) : text;
}

}  // namespace

std::string fish_completion() {
  std::string text = R"(# fish completion of penstock: penstock completion fish | source
function __penstock_has -d 'Does the command line begin with these words?'
    set -l typed (commandline -opc)
    set -l last (math (count $argv) + 1)
    test (count $typed) -ge $last; and test "$typed[2..$last]" = "$argv"
end
function __penstock_is -d 'Is this all that was typed before the word at the cursor?'
    set -l typed (commandline -opc)
    test "$typed[2..-1]" = "$argv"
end
complete -c penstock -e
complete -c penstock -f
complete -c penstock -n __penstock_is -l help -d 'what it is'
complete -c penstock -n __penstock_is -l version -d 'its version'
)";
  text += fish_words("__penstock_is", first_words());
  text += fish_words("__penstock_is help", first_words());
  for (const auto& [word, meaning] : first_words()) {
    text += fish_words("__penstock_is " + word, second_words(word));
    text += fish_words("__penstock_is help " + word, second_words(word));
  }
  for (const CommandSpec& command : commands()) text += fish_command(command);
  return text;
}

}  // namespace penstock

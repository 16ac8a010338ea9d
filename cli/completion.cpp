// SPDX-License-Identifier: Apache-2.0
#include "cli/completion.hpp"

#include "cli/options.hpp"
#include "scenarios/shipped_text.hpp"
#include "scenarios/keys.hpp"
#include "scenarios/scenario.hpp"
#include "schedules/generator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace penstock {
namespace {

constexpr const char* kFiles = "<files>";

std::vector<std::string> key_words(const CommandSpec& command) {
  std::set<std::string> keys;
  for (const char* section : {"scenario", "pipeline"})
    for (const std::string& key : keys_of(section)) keys.insert(key + "=");
  if (command.name == "schedule show" || command.name == "schedule export")
    for (const char* key :
         {"forward", "backward", "backward_input", "backward_weight", "step", "transfer"})
      keys.insert(std::string(key) + "=");
  return {keys.begin(), keys.end()};
}

/// Returns names shipped in these folders, and files.
std::vector<std::string> names_and_files(std::initializer_list<const char*> folders) {
  std::vector<std::string> words{kFiles};
  for (const char* folder : folders)
    for (std::string& name : shipped_names(folder)) words.push_back(std::move(name));
  return words;
}

/// Returns the values of an option.
std::vector<std::string> values_of(const CommandSpec& command, const OptionSpec& option) {
  if (option.choices == "file") return {kFiles};
  if (option.choices == "key") return key_words(command);
  const bool choices = option.choices.find('|') != std::string_view::npos;
  return choices ? split_choices(option.choices) : std::vector<std::string>{};
}

/// Returns what an argument may be, by its word in the table of commands.
std::vector<std::string> arguments_of(std::string_view kind) {
  if (kind == "file") return {kFiles};
  if (kind == "scenario") return names_and_files({"scenarios"});
  if (kind == "model") return names_and_files({"models", "scenarios"});
  if (kind == "schedule") {
    std::vector<std::string> words = schedule_names();
    words.insert(words.begin(), kFiles);
    return words;
  }
  if (kind == "command") return {};  // the scripts know `help`
  return split_choices(kind);
}

/// Adds a line: a place, a word (or several) that may stand there, and its meaning.
void add_words(std::string& lines, std::string_view place, std::string_view word,
               std::string_view meaning = {}) {
  lines += fmt::format("{}\t{}\t{}\n", place, word, meaning);
}

/// Adds the words of the first place, and of the second behind a group.
void add_commands(std::string& lines) {
  std::set<std::string> groups;
  for (const CommandSpec& command : commands()) {
    const std::size_t space = command.name.find(' ');
    const std::string first(command.name.substr(0, space));
    if (space == std::string_view::npos) {
      add_words(lines, "", first, command.summary);
      continue;
    }
    if (groups.insert(first).second)
      add_words(lines, "", first, fmt::format("{}", fmt::join(subcommands(first), ", ")));
    add_words(lines, first + " ", command.name.substr(space + 1), command.summary);
  }
  add_words(lines, "", "--help", "what it is");
  add_words(lines, "", "--version", "its version");
}

void add_options(std::string& lines, const CommandSpec& command) {
  const std::string place = fmt::format("{}:", command.name);
  add_words(lines, place, "--help", "what it takes");
  for (const OptionSpec& option : command.options) {
    const std::string name = fmt::format("--{}", option.name);
    add_words(lines, place, name, option.help);
    const std::string values = fmt::format("{}", fmt::join(values_of(command, option), " "));
    if (values.empty()) continue;
    add_words(lines, place + name, values);
    if (!option.short_name.empty())
      add_words(lines, fmt::format("{}-{}", place, option.short_name), values);
  }
  std::set<std::string> arguments;
  for (std::size_t i = 0; i < 2 && i < static_cast<std::size_t>(command.max_positional); ++i)
    for (std::string& word : arguments_of(argument_kind(command, i)))
      arguments.insert(std::move(word));
  add_words(lines, place, fmt::format("{}", fmt::join(arguments, " ")));
}

}  // namespace

std::string completion_script(const std::string& shell) {
  std::string lines;
  add_commands(lines);
  for (const CommandSpec& command : commands()) add_options(lines, command);
  lines.pop_back();
  if (shell == "fish") {  // which has no here-documents: in single quotes
    std::string quoted;
    for (const char c : lines)
      quoted += c == '\'' || c == '\\' ? std::string{'\\', c} : std::string(1, c);
    lines = quoted;
  }
  return shipped_text("cli/shipped/penstock." + shell, {{"words", lines}});
}

}  // namespace penstock

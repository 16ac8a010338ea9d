// SPDX-License-Identifier: Apache-2.0
#include "cli/completion.hpp"
#include "scenarios/keys.hpp"
#include "scenarios/scenario.hpp"
#include "schedules/generator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace penstock {
namespace {

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

std::vector<std::string> command_words() {
  std::vector<std::string> words;
  for (const auto& [word, meaning] : first_words()) words.push_back(word);
  return words;
}

std::vector<std::string> models_and_scenarios() {
  std::vector<std::string> names = shipped_names("models");
  std::ranges::copy(shipped_names("scenarios"), std::back_inserter(names));
  return names;
}

}  // namespace

Candidates values_of(const CommandSpec& command, const OptionSpec& option) {
  if (option.choices == "file") return {{}, true};
  if (option.choices == "key") return {key_words(command), false};
  const bool choices = option.choices.find('|') != std::string_view::npos;
  return choices ? Candidates{split_choices(option.choices), false} : Candidates{};
}

Candidates argument_of(const CommandSpec& command, std::size_t position) {
  if (position >= static_cast<std::size_t>(command.max_positional)) return {};
  const std::string_view kind = argument_kind(command, position);
  if (kind == "file") return {{}, true};
  if (kind == "scenario") return {shipped_names("scenarios"), true};
  if (kind == "model") return {models_and_scenarios(), true};
  if (kind == "schedule") return {schedule_names(), true};
  if (kind == "command")
    return {position == 0 ? command_words() : std::vector<std::string>{}, false};
  return {split_choices(kind), false};
}

std::vector<WordWithMeaning> first_words() {
  std::vector<WordWithMeaning> words;
  for (const CommandSpec& command : commands()) {
    const std::string first(command.name.substr(0, command.name.find(' ')));
    if (std::ranges::count(words, first, &WordWithMeaning::word) > 0) continue;
    const bool group = first.size() < command.name.size();
    words.push_back({first, group ? fmt::format("{}", fmt::join(subcommands(first), ", "))
                                  : std::string(command.summary)});
  }
  return words;
}

std::vector<WordWithMeaning> second_words(std::string_view group) {
  std::vector<WordWithMeaning> words;
  for (const CommandSpec& command : commands()) {
    if (command.name.starts_with(fmt::format("{} ", group)))
      words.push_back(
          {std::string(command.name.substr(group.size() + 1)), std::string(command.summary)});
  }
  return words;
}

}  // namespace penstock

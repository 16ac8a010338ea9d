// SPDX-License-Identifier: Apache-2.0
// Completion for shells, from the table of commands: what may stand in a place of the command line,
// and how bash, zsh and fish are told so. Shipped names are those there are when it is written.
#pragma once

#include "cli/options.hpp"

#include <optional>

namespace penstock {

/// What may stand in a place: these words, files, or both.
struct Candidates {
  std::vector<std::string> words;  ///< one that ends in '=' goes on
  bool files = false;

  bool any() const { return files || !words.empty(); }
};

/// A value of an option.
Candidates values_of(const CommandSpec& command, const OptionSpec& option);

/// An argument, from 0 on.
Candidates argument_of(const CommandSpec& command, std::size_t position);

struct WordWithMeaning {
  std::string word, meaning;
};

/// What the command line begins with, groups ("schedule") among them, in the order of the table.
std::vector<WordWithMeaning> first_words();

/// What follows a group.
std::vector<WordWithMeaning> second_words(std::string_view group);

std::string bash_completion();
std::string zsh_completion();
std::string fish_completion();

}  // namespace penstock

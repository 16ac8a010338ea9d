// SPDX-License-Identifier: Apache-2.0
// Every key a scenario, model, device or cluster file may have: one table that feeds the reader,
// the errors, `--set`, the JSON schema, `penstock init` and docs/scenario.md.
#pragma once

#include "base/units.hpp"

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace penstock {

struct KeyRow {
  enum class Type : std::uint8_t {
    text,
    boolean,
    integer,             ///< >= minimum
    quantity,            ///< of `dimension`, >= 0
    quantity_per_stage,  ///< a quantity, or a list with one per stage
    choice,              ///< one of `choices`
    choice_or_section,   ///< one of `choices`, or a map of the section named as the key, whose
                         ///< `base` it is
    choice_per_stage,    ///< one of `choices`, or a list with one per virtual stage
    choice_sets,         ///< one of `choices`, a list of them, or such a list per virtual stage
    counts,              ///< an integer >= minimum, or a list with one per stage
    split,               ///< a choice, or a list of layer counts
    gpus,                ///< a choice, or a list of GPU numbers
    numbers,             ///< a list of numbers >= 0
    link,                ///< a bandwidth, or a map of the section "link"
    section,             ///< a map of the section named `choices`
    section_list,        ///< a list of such maps
    name_or_section,     ///< a name (or file), or a map of the section named `choices`
    curve,               ///< a list of pairs [number, share]
    pair,                ///< a list of two names or numbers
    rates,               ///< a map from number type to a compute rate
  };

  KeyRow(std::string_view section, std::string_view key, Type type, std::string_view help,
         Dimension dimension, std::string_view choices = "", std::string_view aliases = "")
      : section(section),
        key(key),
        type(type),
        help(help),
        dimension(dimension),
        choices(choices),
        aliases(aliases) {}
  KeyRow(std::string_view section, std::string_view key, Type type, std::string_view help,
         std::string_view choices = "", std::string_view aliases = "")
      : section(section), key(key), type(type), help(help), choices(choices), aliases(aliases) {}
  KeyRow(std::string_view section, std::string_view key, Type type, std::string_view help,
         int minimum, std::string_view aliases = "")
      : section(section), key(key), type(type), help(help), minimum(minimum), aliases(aliases) {}

  std::string_view section;  ///< "scenario", "pipeline", "model", "cluster", "device", "link" ...
  std::string_view key;
  Type type = Type::text;
  std::string_view help;  ///< effect and default, one line
  Dimension dimension = Dimension::number;
  double minimum = 0;
  std::string_view choices;  ///< separated by '|'
  std::string_view aliases;  ///< its other names, separated by '|'
};

std::span<const KeyRow> key_table();

/// The row of a key (or of its alias) in a section; null when there is none.
const KeyRow* find_key(std::string_view section, std::string_view key);

/// Keys of a section (aliases too), for suggestions.
std::vector<std::string> keys_of(std::string_view section);

/// What to give instead of a key of other tools that has no counterpart here; "" for all others.
std::string known_elsewhere(std::string_view key);

std::vector<std::string> split_choices(std::string_view choices);

/// Position of a word among choices; none when it is not among them.
std::optional<int> place_of_choice(std::string_view choices, std::string_view word);

/// "an integer >= 1", "one of none, full", "a time such as '1.5 us' ...".
std::string describe(const KeyRow& row);

/// The JSON Schema (draft-07) of a scenario file.
std::string json_schema();

/// docs/scenario.md: every key with its values, meaning and other names, as Markdown.
std::string keys_reference();

}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
// docs/scenario.md, made from the table of keys and from scenarios/reference.md, which has its text
// and a line @SECTION@ for the table of each section.
#include "scenarios/keys.hpp"
#include "scenarios/shipped_text.hpp"

#include <fmt/format.h>

#include <map>

namespace penstock {
namespace {

std::string words_of(const KeyRow& row) {
  std::string text;
  for (const std::string& word : split_choices(row.choices))
    text += (text.empty() ? "`" : ", `") + word + "`";
  return text;
}

std::string values_of(const KeyRow& row) {
  switch (row.type) {
    case KeyRow::Type::section: return fmt::format("map, see `{}` below", row.choices);
    case KeyRow::Type::section_list:
      return fmt::format("list of maps, see `{}` below", row.choices);
    case KeyRow::Type::choice: return words_of(row);
    case KeyRow::Type::choice_or_section:
      return fmt::format("{}, or a map, see `{}` below", words_of(row), row.key);
    case KeyRow::Type::choice_per_stage:
      return words_of(row) + ", or a list with one per virtual stage";
    default: return describe(row);
  }
}

std::string table_row(const KeyRow& row) {
  std::string aliases;
  for (const std::string& alias : split_choices(row.aliases))
    aliases += fmt::format("{}`{}`", aliases.empty() ? "" : ", ", alias);
  return fmt::format("| `{}` | {} | {} | {} |", row.key, values_of(row), row.help, aliases);
}

}  // namespace

std::string keys_reference() {
  std::map<std::string, std::string> tables;
  for (const KeyRow& row : key_table()) {
    std::string& table = tables[std::string(row.section)];
    table += table.empty() ? "| key | value | meaning | also called |\n|---|---|---|---|\n" : "\n";
    table += table_row(row);
  }
  return shipped_text("scenarios/reference.md", tables);
}

}  // namespace penstock

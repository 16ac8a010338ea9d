// SPDX-License-Identifier: Apache-2.0
#include "scenarios/import_tables.hpp"

#include "scenarios/scenario.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <mutex>

namespace penstock {
namespace {

std::vector<std::string> words_in(const Value& list) {
  std::vector<std::string> words;
  for (const Value& item : list.items) words.push_back(item.text);
  return words;
}

UnmodelledOption unmodelled_option(const Value& row) {
  UnmodelledOption option;
  option.beginning = said_of(row, "flag");
  option.why = said_of(row, "why");
  option.left_out = said_of(row, "left_out");
  if (const std::string_view memory = said_of(row, "leaves"); !memory.empty())
    option.leaves = memory == "more" ? Leaves::more : Leaves::less;
  if (const std::string_view neutral = said_of(row, "neutral"); !neutral.empty())
    option.neutral = neutral;
  option.with = said_of(row, "with");
  return option;
}

}  // namespace

const Value& import_table(const std::string& importer, const std::string& table) {
  static std::mutex mutex;
  static std::map<std::string, Value> read;
  const std::lock_guard lock(mutex);
  auto document = read.find(importer);
  if (document == read.end())
    document = read.emplace(importer, load_document(fmt::format("{}/scenarios/import/{}.yaml",
                                                                data_folder(), importer)))
                   .first;
  const Value* found = document->second.find(table);
  invariant(found != nullptr, "a table of an importer is missing");
  return *found;
}

bool lists(const Value& list, std::string_view word) {
  return std::ranges::any_of(list.items, [&](const Value& item) { return item.text == word; });
}

std::string_view said_of(const Value& map, std::string_view key) {
  const Value* said = map.find(std::string(key));
  return said == nullptr ? std::string_view() : said->text;
}

KnownOptions known_options(const std::string& importer) {
  KnownOptions known{words_in(import_table(importer, "ignored")),
                     words_in(import_table(importer, "ignored_beginnings")),
                     {}};
  for (const Value& row : import_table(importer, "unmodelled").items)
    known.unmodelled.push_back(unmodelled_option(row));
  return known;
}

}  // namespace penstock

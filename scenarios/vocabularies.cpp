// SPDX-License-Identifier: Apache-2.0
#include "scenarios/vocabularies.hpp"

#include "base/error.hpp"
#include "base/numbers.hpp"
#include "scenarios/document.hpp"
#include "scenarios/scenario.hpp"

#include <algorithm>
#include <cctype>

namespace penstock {
namespace {

struct KnownTokenizer {
  std::string name;
  std::int64_t vocabulary;  ///< 0: a word that says it is another one
};

std::vector<KnownTokenizer> known_tokenizers() {
  const std::string path = data_folder() + "/models/tokenizers/vocabularies.yaml";
  std::vector<KnownTokenizer> out;
  for (const Value& row : load_document(path).items) {
    const Value* vocabulary = row.find("vocabulary");
    const Value* names = row.find("names");
    const auto size = parse_number<std::int64_t>(vocabulary == nullptr ? "" : vocabulary->text);
    invariant(size && names != nullptr, "a row of vocabularies.yaml lacks a key");
    for (const Value& name : names->items) out.push_back({name.text, *size});
  }
  return out;
}

/// A dot between digits belongs to a number: "3.1".
bool goes_on(std::string_view text, std::size_t at) {
  const auto is = [&](std::size_t i, int (*kind)(int)) {
    return i < text.size() && kind(static_cast<unsigned char>(text[i])) != 0;
  };
  return is(at, std::isalnum) || (at < text.size() && text[at] == '.' && is(at + 1, std::isdigit));
}

/// Where `name` that begins at text[at] ends; npos where it does not stand there.
std::size_t end_of(std::string_view name, std::string_view text, std::size_t at) {
  for (const char c : name) {
    const bool there = at < text.size();
    if (c == '-') {
      if (there && (text[at] == '-' || text[at] == '_')) ++at;
    } else if (there && std::tolower(static_cast<unsigned char>(text[at])) == c) {
      ++at;
    } else {
      return text.npos;
    }
  }
  return at;
}

bool is_named(std::string_view name, std::string_view text) {
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (at > 0 && std::isalnum(static_cast<unsigned char>(text[at - 1])) != 0) continue;
    const std::size_t end = end_of(name, text, at);
    if (end != text.npos && !goes_on(text, end)) return true;
  }
  return false;
}

}  // namespace

std::optional<std::int64_t> vocabulary_of(std::string_view tokenizer_name) {
  static const std::vector<KnownTokenizer> kKnown = known_tokenizers();
  const KnownTokenizer* best = nullptr;
  for (std::size_t at = 0, end = 0; end < tokenizer_name.size(); at = end + 1) {
    end = std::min(tokenizer_name.find('/', at), tokenizer_name.size());
    const std::string_view part = tokenizer_name.substr(at, end - at);
    const auto is_part = [&](const KnownTokenizer& known) { return is_named(known.name, part); };
    if (std::ranges::any_of(kKnown, [&](const auto& k) { return k.vocabulary == 0 && is_part(k); }))
      continue;
    for (const KnownTokenizer& known : kKnown)
      if (is_part(known) && (best == nullptr || known.name.size() > best->name.size()))
        best = &known;
  }
  return best != nullptr ? std::optional(best->vocabulary) : std::nullopt;
}

}  // namespace penstock

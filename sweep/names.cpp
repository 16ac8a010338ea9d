// SPDX-License-Identifier: Apache-2.0
#include "sweep/names.hpp"

#include "base/error.hpp"
#include "scenarios/library.hpp"
#include "scenarios/overrides.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

namespace penstock {
namespace {

/// Keys that scenarios leave out, and what that means, where it follows from nothing else.
constexpr std::pair<std::string_view, const char*> kDefaults[] = {
    {"transfers", "overlapped"},
    {"pipeline.tensor", "1"},
    {"pipeline.microbatch_size", "1"},
    {"pipeline.recompute", "none"},
    {"pipeline.split", "even"},
    {"pipeline.optimizer_sync", "device"},
    {"pipeline.rank_order", "data-first"},
};

bool is_number_type(KeyRow::Type type) {
  using T = KeyRow::Type;
  return type == T::integer || type == T::quantity || type == T::quantity_per_stage ||
         type == T::counts || type == T::link;
}

/// Numbers where the key has such and all texts are; else texts.
Variable variable_of(std::size_t level, const std::string& key, std::vector<std::string> texts) {
  Variable v;
  v.level = level;
  const auto path = key_path(key, "");
  const KeyRow* row = key_row(path);
  if (row != nullptr && is_number_type(row->type)) {
    v.dimension = row->type == KeyRow::Type::link ? Dimension::bandwidth : row->dimension;
    std::string why;
    for (const std::string& text : texts) {
      const auto number = parse_quantity(text, *v.dimension, why);
      if (!number) break;
      v.numbers.push_back(*number);
    }
    if (v.numbers.size() == texts.size()) return v;
    v.numbers.clear();
    v.dimension.reset();
  }
  for (std::string& text : texts) {
    const bool quoted = text.size() >= 2 && text.front() == text.back() &&
                        (text.front() == '"' || text.front() == '\'');
    v.texts.push_back(quoted ? text.substr(1, text.size() - 2) : std::move(text));
  }
  return v;
}

/// The axis that decides about a key: its own, or one for what the key is a part of.
std::string axis_above(const std::vector<SweepAxis>& axes, const std::string& key) {
  for (const SweepAxis& axis : axes) {
    for (const std::string& above : axis.keys)
      if (key.starts_with(above + ".")) return above;
  }
  return "";
}

/// Puts the file that a section names in its place, so that its keys can be found.
void resolve_section(Value& document, const std::string& key, const char* folder,
                     const std::string& home, Documents& files) {
  for (Value::Entry& entry : document.entries) {
    if (entry.key.text != key) continue;
    Diagnostics ignored;  // what is wrong with it is said for each point
    Library library(home, files, ignored);
    if (const Value* found = library.resolve(entry.value, key, folder)) {
      Value copy = *found;
      entry.value = std::move(copy);
    }
    if (key == "cluster") resolve_section(entry.value, "device", "models/devices", home, files);
  }
}

}  // namespace

Names::Names(const std::vector<std::string>& files, const std::vector<SweepAxis>& axes,
             const std::vector<Override>& changes, Documents& documents)
    : files_(files), axes_(axes), changes_(changes), documents_(documents) {}

const std::vector<Value>& Names::scenarios() {
  if (!scenarios_.empty()) return scenarios_;
  for (const std::string& file : files_) {
    Value document = documents_.load(file);
    Diagnostics diagnostics;
    if (document.kind == Value::Kind::map) apply_overrides(document, changes_, diagnostics);
    diagnostics.throw_if_any();
    const std::string home = std::filesystem::path(file).parent_path().string();
    resolve_section(document, "model", "models", home, documents_);
    resolve_section(document, "cluster", "models/clusters", home, documents_);
    resolve_section(document, "stack", "models/stacks", home, documents_);
    scenarios_.push_back(std::move(document));
  }
  return scenarios_;
}

Variable Names::find(const std::string& name) {
  const std::string key = fmt::format("{}", fmt::join(key_path(name, name), "."));
  for (std::size_t a = 0; a < axes_.size(); ++a) {
    const auto at = std::ranges::find(axes_[a].keys, key);
    if (at == axes_[a].keys.end()) continue;
    std::vector<std::string> texts;
    for (const auto& value : axes_[a].values)
      texts.push_back(value[static_cast<std::size_t>(at - axes_[a].keys.begin())]);
    return variable_of(a + 1, key, std::move(texts));
  }
  if (const std::string above = axis_above(axes_, key); !above.empty())
    throw InputError(name, fmt::format("'{}' depends on the axis '{}'; conditions know axes and "
                                       "what scenarios say",
                                       key, above));
  std::vector<std::string> texts;
  for (const Value& document : scenarios()) texts.push_back(text_of(document, key));
  return variable_of(0, key, std::move(texts));
}

std::string Names::text_of(const Value& document, const std::string& key) const {
  const Value* value = value_at(document, key_path(key, ""));
  if (value != nullptr && value->kind == Value::Kind::scalar) return value->text;
  const std::string& file = files_[static_cast<std::size_t>(&document - scenarios_.data())];
  if (value != nullptr) {
    throw InputError(key, fmt::format("'{}' is a list or a map in {}; conditions take numbers and "
                                      "texts",
                                      key, file));
  }
  const auto known = std::ranges::find(kDefaults, key, [](const auto& d) { return d.first; });
  if (known != std::end(kDefaults)) return known->second;
  throw InputError(key, fmt::format("{} does not give '{}', and its default depends on other keys; "
                                    "give it: --set {}=...",
                                    file, key, key));
}

}  // namespace penstock

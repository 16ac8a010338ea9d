// SPDX-License-Identifier: Apache-2.0
#include "scenarios/torchtitan_flavors.hpp"

#include "base/suggest.hpp"
#include "scenarios/document.hpp"
#include "scenarios/scenario.hpp"

#include <algorithm>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace penstock {
namespace {

const std::vector<Value>& titan_rows() {
  static const Value kRows = load_document(data_folder() + "/models/torchtitan/flavors.yaml");
  return kRows.items;
}

const Value& titan_cell(const Value& row, const char* key) {
  const Value* cell = row.find(key);
  invariant(cell != nullptr, "a row of flavors.yaml lacks a key");
  return *cell;
}

std::string full_name(const Value& row) {
  return titan_cell(row, "name").text + " " + titan_cell(row, "flavor").text;
}

std::string letters_of(std::string_view text) {
  std::string out = lower_case(std::string(text));
  std::erase_if(out, [](char c) { return c == '-' || c == '_' || c == ' '; });
  return out;
}

NamedModel model_in(const Value& row) {
  NamedModel model{fmt::format("  name: {}\n", full_name(row)), 1, ""};
  std::string map = "{";
  for (const Value::Entry& e : titan_cell(row, "model").entries) {
    const std::string entry = fmt::format("{}: {}", e.key.text, e.value.text);
    model.keys += fmt::format("  {}\n", entry);
    map += entry + ", ";
  }
  model.layers = load_model(map + "seq_length: 1}").num_layers;
  return model;
}

}  // namespace

std::optional<NamedModel> find_titan_flavor(std::string_view name, std::string_view flavor) {
  const std::string model = letters_of(name);
  std::string wanted = letters_of(flavor);
  if (wanted.starts_with(model)) wanted.erase(0, model.size());
  for (const std::string_view kernel : {"attn", "flex", "varlen", "sdpa", "fusedqkv"})
    if (wanted.ends_with(kernel)) wanted.erase(wanted.rfind(kernel));
  for (const Value& row : titan_rows())
    if (letters_of(full_name(row)) == model + wanted) return model_in(row);
  return std::nullopt;
}

std::optional<std::pair<std::string, std::string>> titan_flavor_of(const TransformerSpec& model) {
  const auto sizes = [](const TransformerSpec& m) {
    return std::tuple(m.num_layers, m.hidden_size, m.num_attention_heads, m.key_size(),
                      m.ffn_hidden_size, m.vocab_size, m.tie_embeddings, m.parameters());
  };
  for (const Value& row : titan_rows()) {
    std::string map = "{";
    for (const Value::Entry& e : titan_cell(row, "model").entries)
      map += fmt::format("{}: {}, ", e.key.text, e.value.text);
    if (sizes(load_model(map + "seq_length: 1}")) == sizes(model))
      return std::pair(titan_cell(row, "name").text, titan_cell(row, "flavor").text);
  }
  return std::nullopt;
}

std::string titan_flavor_names() {
  std::vector<std::string> names;
  for (const Value& row : titan_rows()) names.push_back(full_name(row));
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
#include "scenarios/foreign_experts.hpp"

#include "scenarios/foreign.hpp"
#include "scenarios/import_tables.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

namespace penstock {

const Value& hf_table(const char* name) { return import_table("huggingface", name); }

const Value* beyond_us(std::string_view key) {
  for (const Value& row : hf_table("beyond").items)
    if (lists(*row.find("keys"), key)) return &row;
  return nullptr;
}

bool is_positive(const Value& value) {
  return value.kind == Value::Kind::scalar &&
         (value.text == "true" || std::atof(value.text.c_str()) > 0);
}

double first_of(const Value& document, std::initializer_list<const char*> keys) {
  for (const char* key : keys) {
    const Value* value = document.find(key);
    const double number = value == nullptr ? 0 : std::atof(value->text.c_str());
    if (number > 0) return number;
  }
  return 0;
}

const Value::Entry* experts_of(const Value& document) {
  for (const Value::Entry& entry : document.entries)
    if (lists(hf_table("expert_counts"), entry.key.text) && std::atof(entry.value.text.c_str()) > 1)
      return &entry;
  return nullptr;
}

bool says_dense(const Value& document) {
  return experts_of(document) == nullptr &&
         std::ranges::any_of(document.entries, [](const Value::Entry& entry) {
           return lists(hf_table("expert_counts"), entry.key.text);
         });
}

double width_of_experts(const Value& document) {
  const double visited = first_of(document, {"num_experts_per_tok", "moe_router_topk"});
  const double size = first_of(document, {"moe_intermediate_size", "moe_ffn_hidden_size",
                                          "intermediate_size", "ffn_hidden_size"});
  const Value* type = document.find("model_type");
  const bool always_one = type != nullptr && type->text.starts_with("llama4");  // Llama4TextMoe
  const double shared = (always_one ? 1 : first_of(document, {"n_shared_experts"})) * size +
                        first_of(document, {"shared_expert_intermediate_size",
                                            "moe_shared_expert_intermediate_size"});
  return visited == 0 || size == 0 ? 0 : visited * size + shared;
}

std::vector<std::string> take_out_experts(Value& document) {
  for (Value::Entry& entry : document.entries)
    if (entry.key.text == "text_config" && entry.value.kind == Value::Kind::map)
      return take_out_experts(entry.value);
  if (const Value* type = document.find("model_type");
      type != nullptr && !said_of(hf_table("others"), type->text).empty())
    return {};
  const double width = width_of_experts(document);
  if (experts_of(document) == nullptr || width == 0) return {};
  std::vector<std::string> missing;
  bool gated = false;
  std::string sibling;
  std::erase_if(document.entries, [&](const Value::Entry& entry) {
    const std::string& key = entry.key.text;
    gated = gated ||
            (lists(hf_table("activations"), key) && lists(hf_table("gated"), entry.value.text)) ||
            (key == "swiglu" && is_positive(entry.value));
    if (key == "model_type") sibling = said_of(hf_table("dense_siblings"), entry.value.text);
    const Value* beyond = beyond_us(key);
    // A model without it is another model, so that there is no stand-in.
    if (beyond != nullptr && said_of(*beyond, "what") == "model") return false;
    if (beyond == nullptr)
      return key == "shared_expert_intermediate_size" || key.starts_with("moe_") ||
             key == "intermediate_size" || key == "ffn_hidden_size" || key == "model_type";
    if (is_positive(entry.value))
      missing.push_back(fmt::format("{} {}: {}", printable(key), printable(entry.value.text),
                                    said_of(*beyond, "why")));
    return true;
  });
  const auto add = [&](const char* key, std::string text) {
    Value scalar;
    scalar.kind = Value::Kind::scalar;
    scalar.source = document.source;
    Value::Entry entry{scalar, scalar};
    entry.key.text = key;
    entry.value.text = std::move(text);
    document.entries.push_back(std::move(entry));
  };
  add("model_type", !sibling.empty() ? sibling : gated ? "llama" : "gpt2");
  add("intermediate_size", fmt::format("{:.0f}", width));
  return missing;
}

}  // namespace penstock

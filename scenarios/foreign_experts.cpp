// SPDX-License-Identifier: Apache-2.0
#include "scenarios/foreign_experts.hpp"

#include "base/numbers.hpp"
#include "scenarios/import_tables.hpp"

#include <algorithm>
#include <cstdlib>

namespace penstock {

const Value& hf_table(const char* name) { return import_table("huggingface", name); }

const Value* beyond_us(std::string_view key) {
  for (const Value& row : hf_table("beyond").items)
    if (lists(*row.find("keys"), key)) return &row;
  return nullptr;
}

const Value::Entry* given_in(const Value& document, std::string_view key) {
  for (const Value::Entry& entry : document.entries)
    if (entry.key.text == key && entry.value.kind != Value::Kind::null) return &entry;
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

namespace {

/// Returns whether a number of experts is said of which `is` is true.
template <class Is>
bool says_experts(const Value& document, const Is& is) {
  return std::ranges::any_of(document.entries, [&](const Value::Entry& entry) {
    return lists(hf_table("expert_counts"), entry.key.text) &&
           is(std::atof(entry.value.text.c_str()));
  });
}

}  // namespace

bool has_experts(const Value& document) {
  return says_experts(document, [](double count) { return count > 1; });
}

bool says_dense(const Value& document) {
  return !has_experts(document) && says_experts(document, [](double) { return true; });
}

std::vector<std::string> unsaid_needs(const Value& document, const Value& needs) {
  std::vector<std::string> unsaid;
  bool another = false;
  for (const Value& key : needs.items) {
    const bool count = lists(hf_table("expert_counts"), key.text);
    const bool said = given_in(document, key.text) != nullptr ||
                      given_in(document, said_of(hf_table("renamed"), key.text)) != nullptr ||
                      (count && (has_experts(document) || says_dense(document)));
    if (said) continue;
    another = another || count || key.text == "kv_lora_rank";
    unsaid.push_back(key.text);
  }
  return another ? unsaid : std::vector<std::string>{};
}

std::optional<ExpertLayers> expert_layers(const std::vector<bool>& has) {
  const auto first = std::ranges::find(has, true);
  if (first == has.end()) return std::nullopt;
  const auto second = std::find(first + 1, has.end(), true);
  const ExpertLayers rule{
      static_cast<int>(first - has.begin()),
      second == has.end() && first + 1 == has.end() ? 1 : static_cast<int>(second - first)};
  for (std::size_t i = 0; i < has.size(); ++i) {
    const int beyond = static_cast<int>(i) - rule.first_dense;
    if (has[i] != (beyond >= 0 && beyond % rule.every == 0)) return std::nullopt;
  }
  return rule;
}

namespace {

constexpr std::size_t kMostLayersOfPattern = 100'000;

/// Reads sums of lists, each times a number, such as "([0]*3+[1]*58)".
class PatternReader {
 public:
  explicit PatternReader(std::string_view text) {
    for (const char c : text)
      if (c != ' ' && c != '"' && c != '\'') text_ += c;
  }

  std::optional<std::vector<bool>> read() {
    std::vector<bool> sum = read_sum(0);
    if (!right_ || at_ < text_.size()) return std::nullopt;
    return sum;
  }

 private:
  bool take(char c) {
    const bool there = at_ < text_.size() && text_[at_] == c;
    at_ += there ? 1 : 0;
    return there;
  }
  std::size_t read_number() {
    const std::size_t begin = at_;
    while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') ++at_;
    const auto number = parse_number<std::size_t>(text_.substr(begin, at_ - begin));
    right_ = right_ && number.has_value();
    return number.value_or(0);
  }
  std::vector<bool> read_sum(int depth) {
    constexpr int kDeepest = 8;
    std::vector<bool> sum;
    right_ = right_ && depth < kDeepest;
    do {
      const std::vector<bool> part = read_part(depth);
      if (sum.size() + part.size() > kMostLayersOfPattern) right_ = false;
      if (right_) sum.insert(sum.end(), part.begin(), part.end());
    } while (right_ && take('+'));
    return sum;
  }
  std::vector<bool> read_part(int depth) {
    std::vector<bool> once, part;
    if (take('(')) {
      once = read_sum(depth + 1);
      right_ = right_ && take(')');
    } else {
      right_ = right_ && take('[');
      do once.push_back(read_number() > 0);
      while (right_ && take(','));
      right_ = right_ && take(']');
    }
    const std::size_t times = take('*') ? read_number() : 1;
    if (!right_ || times > kMostLayersOfPattern / std::max<std::size_t>(1, once.size())) {
      right_ = false;
      return {};
    }
    for (std::size_t i = 0; i < times; ++i) part.insert(part.end(), once.begin(), once.end());
    return part;
  }

  std::string text_;
  std::size_t at_ = 0;
  bool right_ = true;
};

}  // namespace

std::optional<std::vector<bool>> layer_pattern(std::string_view text, int layers) {
  const auto every = parse_number<int>(text);
  if (!every) return PatternReader(text).read();
  if (*every < 1) return std::nullopt;
  std::vector<bool> has;
  for (int i = 0; i < layers; ++i) has.push_back(i % *every == 0);
  return has;
}

std::vector<bool> layers_with_experts(const Value& document, int layers) {
  const auto number = [&](const char* key, int otherwise) {
    const Value::Entry* entry = given_in(document, key);
    const bool said = entry != nullptr && entry->value.kind == Value::Kind::scalar;
    return said ? static_cast<int>(std::clamp(std::atof(entry->value.text.c_str()), 0.0, 1e6))
                : otherwise;
  };
  const auto listed = [&](const char* key) {
    const Value::Entry* entry = given_in(document, key);
    return entry != nullptr && entry->value.kind == Value::Kind::list ? &entry->value.items
                                                                      : nullptr;
  };
  const auto holds = [](const std::vector<Value>& items, int layer) {
    return std::ranges::any_of(
        items, [&](const Value& item) { return std::atoi(item.text.c_str()) == layer; });
  };
  const std::vector<Value>* only = listed("moe_layers");
  const std::vector<Value>* without = listed("mlp_only_layers");
  const std::vector<Value>* each = listed("moe_layer_freq");
  // Of Megatron's, also in Python's words.
  const Value::Entry* freq = given_in(document, "moe_layer_freq");
  std::vector<bool> pattern;
  if (freq != nullptr && freq->value.text.find('[') != std::string::npos)
    pattern = layer_pattern(freq->value.text, layers).value_or(std::vector<bool>{});
  const auto first =
      std::max(number("first_k_dense_replace", 0), number("moe_layer_start_index", 0));
  // Megatron and DeepSeek count layers from 0, the others from 1.
  const int every = pattern.empty() ? std::max(1, number("moe_layer_freq", 1)) : 1;
  int of_step = 1;
  for (const char* key : {"decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_interval"})
    of_step = std::max(of_step, number(key, 1));
  std::vector<bool> has;
  for (int i = 0; i < layers; ++i) {
    const auto at = static_cast<std::size_t>(i);
    has.push_back(i >= first && i % every == 0 && (i + 1) % of_step == 0 &&
                  (only == nullptr || only->empty() || holds(*only, i)) &&
                  (without == nullptr || !holds(*without, i)) &&
                  (pattern.empty() || (at < pattern.size() && pattern[at])) &&
                  (each == nullptr || (at < each->size() && is_positive((*each)[at]))));
  }
  return has;
}

}  // namespace penstock

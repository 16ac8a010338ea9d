#include "scenarios/section.hpp"

#include "base/suggest.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace penstock {
namespace {

constexpr double kMaxInteger = 1e9;

std::string shown(const Value& value) {
  switch (value.kind) {
    case Value::Kind::null: return "nothing";
    case Value::Kind::list: return "a list";
    case Value::Kind::map: return "a map";
    case Value::Kind::scalar: break;
  }
  const bool long_text = value.text.size() > 60;
  return fmt::format("'{}{}'", value.text.substr(0, 60), long_text ? "…" : "");
}

std::optional<double> parse_integer(const std::string& text) {
  std::int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error == std::errc::result_out_of_range && stop == end)
    return text.starts_with('-') ? -1e300 : 1e300;
  if (error != std::errc() || stop != end) return std::nullopt;
  return static_cast<double>(value);
}

}  // namespace

void Diagnostics::throw_if_any() const {
  if (!all_.empty()) throw InputError(all_);
}

Section::Section(const Value& value, std::string name, Diagnostics& diagnostics, bool lenient)
    : name_(std::move(name)), self_(&value), diagnostics_(diagnostics) {
  if (value.kind != Value::Kind::map) {
    diagnostics_.add(
        value, fmt::format("expected a map with the keys of a {}, got {}", name_, shown(value)));
    return;
  }
  for (const Value::Entry& entry : value.entries) {
    const KeyRow* row = find_key(name_, entry.key.text);
    if (row == nullptr) {
      if (lenient) {
        ignored_.push_back(entry.key.text);
      } else {
        diagnostics_.add(entry.key, fmt::format("unknown key '{}' in {}{}", entry.key.text, name_,
                                                did_you_mean(entry.key.text, keys_of(name_))));
      }
      continue;
    }
    const auto [it, first] = values_.try_emplace(std::string(row->key), &entry.value);
    if (!first) {
      diagnostics_.add(entry.key, fmt::format("'{}' means the same as '{}', which is given, too",
                                              entry.key.text, row->key));
      continue;
    }
    if (lenient && entry.value.kind == Value::Kind::null) {
      values_.erase(it);
      continue;
    }
    check(*row, entry.value);
  }
}

const Value& Section::at(const std::string& key) const {
  const auto it = values_.find(key);
  return it == values_.end() ? *self_ : *it->second;
}

std::optional<double> Section::number(const std::string& key) const {
  const auto it = numbers_.find(key);
  if (it == numbers_.end() || it->second.size() != 1) return std::nullopt;
  return it->second[0];
}

std::optional<std::int64_t> Section::integer(const std::string& key) const {
  const auto value = number(key);
  if (!value) return std::nullopt;
  return static_cast<std::int64_t>(*value);
}

std::optional<std::string> Section::text(const std::string& key) const {
  const auto it = values_.find(key);
  if (it == values_.end() || it->second->kind != Value::Kind::scalar) return std::nullopt;
  return it->second->text;
}

std::optional<bool> Section::boolean(const std::string& key) const {
  const auto value = text(key);
  if (value == "true") return true;
  if (value == "false") return false;
  return std::nullopt;
}

std::optional<std::vector<double>> Section::list(const std::string& key) const {
  const auto it = numbers_.find(key);
  if (it == numbers_.end()) return std::nullopt;
  return it->second;
}

std::optional<int> Section::choice(const std::string& key) const {
  const KeyRow* row = find_key(name_, key);
  const auto value = text(key);
  if (row == nullptr || !value) return std::nullopt;
  const auto choices = split_choices(row->choices);
  const auto it = std::ranges::find(choices, *value);
  if (it == choices.end()) return std::nullopt;
  return static_cast<int>(it - choices.begin());
}

void Section::complain(const KeyRow& row, const Value& value, const std::string& why) {
  const std::string got =
      why.empty() ? ", got " + shown(value) : fmt::format(": {} {}", shown(value), why);
  diagnostics_.add(value, fmt::format("'{}' must be {}{}", row.key, describe(row), got));
}

void Section::check(const KeyRow& row, const Value& value) {
  using T = KeyRow::Type;
  const bool list = value.kind == Value::Kind::list;
  switch (row.type) {
    case T::section:
    case T::rates:
      if (value.kind != Value::Kind::map) complain(row, value);
      return;
    case T::name_or_section:
    case T::link:
      if (value.kind == Value::Kind::map) return;
      if (check_scalar(row, value) && row.type == T::link) check_quantity(row, value);
      return;
    case T::curve: return check_curve(row, value);
    case T::quantity_per_stage:
    case T::split:
      if (list && value.items.empty()) return complain(row, value);
      for (const Value& item : value.items) {
        if (!check_scalar(row, item)) return;
        row.type == T::split ? check_integer(row, item) : check_quantity(row, item);
      }
      if (list) return;
      break;
    default: break;
  }
  if (!check_scalar(row, value)) return;
  if (row.type == T::quantity || row.type == T::quantity_per_stage)
    return check_quantity(row, value);
  if (row.type == T::integer) return check_integer(row, value);
  if (row.type == T::boolean && value.text != "true" && value.text != "false")
    return complain(row, value);
  if ((row.type == T::choice || row.type == T::split) && !choice(std::string(row.key))) {
    diagnostics_.add(value,
                     fmt::format("'{}' must be {}, got {}{}", row.key, describe(row), shown(value),
                                 did_you_mean(value.text, split_choices(row.choices))));
  }
}

bool Section::check_scalar(const KeyRow& row, const Value& value) {
  if (value.kind == Value::Kind::scalar && !value.text.empty()) return true;
  complain(row, value);
  return false;
}

void Section::check_quantity(const KeyRow& row, const Value& value) {
  std::string why;
  const auto parsed = parse_quantity(value.text, row.dimension, why);
  if (!parsed) return complain(row, value, why);
  if (*parsed < 0) return complain(row, value, "is negative");
  if (row.dimension == Dimension::fraction && *parsed > 1)
    return complain(row, value, "is more than 100%");
  if (row.dimension == Dimension::bandwidth && *parsed == 0)
    return complain(row, value, "would never deliver anything; leave it out for an unlimited link");
  if (row.dimension == Dimension::bytes && *parsed > 9e15)
    return complain(row, value, "is too large");
  if (row.dimension == Dimension::time && *parsed > 1e9) return complain(row, value, "is too long");
  numbers_[std::string(row.key)].push_back(*parsed);
}

void Section::check_integer(const KeyRow& row, const Value& value) {
  const auto parsed = parse_integer(value.text);
  if (!parsed || *parsed < row.minimum) return complain(row, value);
  if (*parsed > kMaxInteger) return complain(row, value, "is too large");
  numbers_[std::string(row.key)].push_back(*parsed);
}

void Section::check_curve(const KeyRow& row, const Value& value) {
  if (value.kind != Value::Kind::list || value.items.empty()) return complain(row, value);
  double previous = 0;
  for (const Value& pair : value.items) {
    std::string why;
    const bool shaped = pair.items.size() == 2 && pair.items[0].kind == Value::Kind::scalar &&
                        pair.items[1].kind == Value::Kind::scalar;
    if (!shaped) return complain(row, pair);
    const auto x = parse_quantity(pair.items[0].text, Dimension::number, why);
    const auto y = parse_quantity(pair.items[1].text, Dimension::fraction, why);
    if (!x || !y) return complain(row, pair);
    if (*x <= previous) return diagnostics_.add(pair, fmt::format("'{}' must ascend", row.key));
    if (*y <= 0 || *y > 1)
      return diagnostics_.add(pair, fmt::format("a share in '{}' must be in (0, 100%]", row.key));
    previous = *x;
    numbers_[std::string(row.key)].push_back(*x);
    numbers_[std::string(row.key)].push_back(*y);
  }
}

}  // namespace penstock

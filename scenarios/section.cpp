// SPDX-License-Identifier: Apache-2.0
#include "scenarios/section.hpp"

#include "base/suggest.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <tuple>

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
  return fmt::format("'{}'", printable(value.text));
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

/// What is wrong with the size of a value; far beyond any real machine the sums overflow.
std::string out_of_range(Dimension dimension, double value) {
  if (value < 0) return "is negative";
  switch (dimension) {
    case Dimension::time: return value > 1e9 ? "is too long" : "";
    case Dimension::bytes: return value > 9e15 ? "is too large" : "";
    case Dimension::fraction: return value > 1 ? "is more than 100%" : "";
    case Dimension::number: return value > 1e6 ? "is too large" : "";
    case Dimension::bandwidth:
    case Dimension::flops_rate:
      return value == 0     ? "is zero, so nothing would ever end"
             : value < 1e-3 ? "is so little that nothing would ever end"
                            : "";
  }
  return "";
}

}  // namespace

void Diagnostics::add_error(const Value& where, const std::string& message) {
  if (!full()) add_error(where.diagnostic(message));
}

void Diagnostics::add_error(Diagnostic diagnostic) {
  const auto same = [&](const Diagnostic& d) {
    return d.where.origin == diagnostic.where.origin && d.where.line == diagnostic.where.line &&
           d.where.column == diagnostic.where.column && d.message == diagnostic.message;
  };
  if (!full() && std::ranges::none_of(all_, same)) all_.push_back(std::move(diagnostic));
}

void Diagnostics::add_all(const Diagnostics& others) {
  for (const Diagnostic& d : others.all_) add_error(d);
}

void Diagnostics::throw_if_any() const {
  if (all_.empty()) return;
  std::vector<std::string> origins;  // files in the order in which they first failed
  for (const Diagnostic& d : all_) {
    if (std::ranges::find(origins, d.where.origin) == origins.end())
      origins.push_back(d.where.origin);
  }
  std::vector<Diagnostic> sorted = all_;
  std::ranges::stable_sort(sorted, {}, [&](const Diagnostic& d) {
    const auto origin = std::ranges::find(origins, d.where.origin) - origins.begin();
    return std::tuple(origin, d.where.line, d.where.column);
  });
  if (full()) {
    Diagnostic more;
    more.where.origin = origins[0];
    more.message = "and more; correct these first";
    sorted.push_back(std::move(more));
  }
  throw InputError(std::move(sorted));
}

Section::Section(const Value& value, std::string name, Diagnostics& diagnostics)
    : name_(std::move(name)), self_(&value), diagnostics_(diagnostics) {
  if (value.kind != Value::Kind::map) {
    diagnostics_.add_error(
        value, fmt::format("expected a map with the keys of a {}, got {}", name_, shown(value)));
    return;
  }
  read_entries();
}

Section::Section(const Section& above, std::string key)
    : name_(std::move(key)), self_(&above.at(name_)), diagnostics_(above.diagnostics_) {
  if (above.has(name_) && self_->kind == Value::Kind::map)
    read_entries();
  else
    self_ = above.self_;
}

void Section::read_entries() {
  for (const Value::Entry& entry : self_->entries) {
    if (diagnostics_.full()) return;
    read_entry(entry);
  }
}

void Section::read_entry(const Value::Entry& entry) {
  const KeyRow* row = find_key(name_, entry.key.text);
  if (row == nullptr) return diagnostics_.add_error(entry.key, unknown_key(entry.key.text));
  Field& here = field(row->key);
  if (here.value != nullptr) {
    diagnostics_.add_error(
        entry.key,
        fmt::format("'{}' means the same as '{}', which is given, too", entry.key.text, row->key));
    return;
  }
  here.value = &entry.value;
  check(*row, entry.value);
}

const Section::Field* Section::find(std::string_view key) const {
  const auto it = std::ranges::find(fields_, key, &Field::key);
  return it == fields_.end() ? nullptr : &*it;
}

Section::Field& Section::field(std::string_view key) {
  const auto it = std::ranges::find(fields_, key, &Field::key);
  if (it != fields_.end()) return *it;
  fields_.push_back({.key = key});
  return fields_.back();
}

/// The nearest key of this section, else the section that has such a key.
std::string Section::unknown_key(const std::string& key) const {
  const std::string instead = known_elsewhere(key);
  if (!instead.empty()) return fmt::format("unknown key '{}' in '{}'{}", key, name_, instead);
  std::vector<std::string> sections;
  for (const KeyRow& row : key_table()) {
    if (row.section.starts_with("measured")) continue;  // nobody types profiles
    const bool here = row.key == key || place_of_choice(row.aliases, key);
    if (here) sections.push_back(fmt::format("'{}'", row.section));
  }
  const std::string hint = sections.empty()
                               ? did_you_mean(key, keys_of(name_))
                               : fmt::format("; it is a key of {}", fmt::join(sections, " and "));
  return fmt::format("unknown key '{}' in '{}'{}", printable(key), name_, hint);
}

const Value& Section::at(std::string_view key) const {
  return has(key) ? *find(key)->value : *self_;
}

std::optional<double> Section::number(std::string_view key) const {
  const Field* field = find(key);
  if (field == nullptr || field->numbers.size() != 1 || field->broken) return std::nullopt;
  return field->numbers[0];
}

std::optional<std::int64_t> Section::integer(std::string_view key) const {
  const auto value = number(key);
  if (!value) return std::nullopt;
  return static_cast<std::int64_t>(*value);
}

std::optional<std::string> Section::text(std::string_view key) const {
  if (!has(key) || at(key).kind != Value::Kind::scalar) return std::nullopt;
  return at(key).text;
}

std::optional<bool> Section::boolean(std::string_view key) const {
  const auto value = text(key);
  if (value == "true") return true;
  if (value == "false") return false;
  return std::nullopt;
}

std::optional<std::vector<double>> Section::list(std::string_view key) const {
  const Field* field = find(key);
  if (field == nullptr || field->numbers.empty() || field->broken) return std::nullopt;
  return field->numbers;
}

std::optional<int> Section::choice(std::string_view key) const {
  if (!has(key) || at(key).kind != Value::Kind::scalar) return std::nullopt;
  const KeyRow* row = find_key(name_, key);
  return row == nullptr ? std::nullopt : place_of_choice(row->choices, at(key).text);
}

std::optional<std::vector<int>> Section::choices(std::string_view key) const {
  if (!has(key) || broken(key)) return std::nullopt;
  if (const auto single = choice(key)) return std::vector<int>{*single};
  std::vector<int> places;
  for (const Value& item : at(key).items)
    places.push_back(*place_of_choice(find_key(name_, key)->choices, item.text));
  return places;
}

std::optional<std::vector<unsigned>> Section::choice_sets(std::string_view key) const {
  if (!has(key) || broken(key)) return std::nullopt;
  const Value& value = at(key);
  const std::string_view all = find_key(name_, key)->choices;
  const auto set_of = [&](const Value& words) {
    unsigned set = 0;
    for (const Value& word : words.items) set |= 1U << unsigned(*place_of_choice(all, word.text));
    return set;
  };
  if (value.kind == Value::Kind::scalar)
    return std::vector{1U << unsigned(*place_of_choice(all, value.text))};
  if (value.items.front().kind == Value::Kind::scalar) return std::vector{set_of(value)};
  std::vector<unsigned> sets;
  for (const Value& item : value.items) sets.push_back(set_of(item));
  return sets;
}

void Section::complain(const KeyRow& row, const Value& value, const std::string& why) {
  const std::string got =
      why.empty() ? ", got " + shown(value) : fmt::format(": {} {}", shown(value), why);
  diagnostics_.add_error(value, fmt::format("'{}' must be {}{}", row.key, describe(row), got));
  field(row.key).broken = true;
}

void Section::check(const KeyRow& row, const Value& value) {
  using T = KeyRow::Type;
  const bool list = value.kind == Value::Kind::list;
  const bool map = value.kind == Value::Kind::map;
  switch (row.type) {
    case T::section:
      if (!map) complain(row, value);
      return;
    case T::section_list:
      if (!list || value.items.empty()) return complain(row, value);
      for (const Value& item : value.items) {
        if (item.kind != Value::Kind::map) complain(row, item);
      }
      return;
    case T::pair: return check_pair(row, value);
    case T::rates: return check_rates(row, value);
    case T::curve: return check_curve(row, value);
    case T::name_or_section:
    case T::choice_or_section:
    case T::link:
      if (map) return;
      break;
    case T::choice_sets:
      if (list) return check_choice_sets(row, value);
      break;
    case T::quantity_per_stage:
    case T::choice_per_stage:
    case T::counts:
    case T::split:
    case T::gpus:
      if (list) return check_list(row, value);
      break;
    case T::numbers: return list ? check_list(row, value) : complain(row, value);
    default: break;
  }
  if (!check_scalar(row, value)) return;
  switch (row.type) {
    case T::link:
    case T::quantity:
    case T::quantity_per_stage: return check_quantity(row, value);
    case T::counts:
    case T::integer: return check_integer(row, value);
    case T::boolean:
      if (value.text != "true" && value.text != "false") complain(row, value);
      return;
    case T::choice:
    case T::choice_or_section:
    case T::choice_per_stage:
    case T::choice_sets:
    case T::split:
    case T::gpus: return check_choice(row, value);
    default: return;
  }
}

void Section::check_choice(const KeyRow& row, const Value& value) {
  if (place_of_choice(row.choices, value.text)) return;
  const std::string known = known_elsewhere(value.text);
  diagnostics_.add_error(
      value,
      fmt::format("'{}' must be {}, got {}{}", row.key, describe(row), shown(value),
                  known.empty() ? did_you_mean(value.text, split_choices(row.choices)) : known));
  field(row.key).broken = true;
}

void Section::check_list(const KeyRow& row, const Value& value) {
  if (value.items.empty()) complain(row, value, "is empty");
  for (const Value& item : value.items) {
    if (diagnostics_.full()) return;
    if (check_scalar(row, item)) check_item(row, item);
  }
}

void Section::check_choice_sets(const KeyRow& row, const Value& value) {
  if (value.items.empty()) complain(row, value, "is empty");
  const bool per_stage = std::ranges::any_of(
      value.items, [](const Value& item) { return item.kind == Value::Kind::list; });
  for (const Value& item : value.items) {
    if (diagnostics_.full()) return;
    if (per_stage && item.kind == Value::Kind::list)
      check_list(row, item);
    else if (per_stage)
      complain(row, item, "is one of several lists, and no list");
    else if (check_scalar(row, item))
      check_choice(row, item);
  }
}

void Section::check_item(const KeyRow& row, const Value& item) {
  switch (row.type) {
    case KeyRow::Type::quantity_per_stage: return check_quantity(row, item);
    case KeyRow::Type::numbers: return check_number(row, item);
    case KeyRow::Type::choice_per_stage:
    case KeyRow::Type::choice_sets: return check_choice(row, item);
    default: return check_integer(row, item);
  }
}

void Section::check_pair(const KeyRow& row, const Value& value) {
  const auto is_word = [](const Value& item) {
    return item.kind == Value::Kind::scalar && !item.text.empty();
  };
  if (value.items.size() != 2 || !std::ranges::all_of(value.items, is_word)) complain(row, value);
}

void Section::check_rates(const KeyRow& row, const Value& value) {
  if (value.kind != Value::Kind::map) return complain(row, value);
  const auto types = split_choices(row.choices);
  for (const Value::Entry& rate : value.entries) {
    if (diagnostics_.full()) return;
    const std::string& type = rate.key.text;
    if (std::ranges::find(types, type) == types.end()) {
      diagnostics_.add_error(
          rate.key, fmt::format("unknown number type '{}' in '{}' (known: {}){}", printable(type),
                                row.key, fmt::join(types, ", "), did_you_mean(type, types)));
      continue;
    }
    KeyRow single = row;
    single.key = type;
    single.type = KeyRow::Type::quantity;
    if (check_scalar(single, rate.value)) check_quantity(single, rate.value);
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
  why = out_of_range(row.dimension, *parsed);
  if (!why.empty()) return complain(row, value, why);
  field(row.key).numbers.push_back(*parsed);
}

void Section::check_integer(const KeyRow& row, const Value& value) {
  const auto parsed = parse_integer(value.text);
  if (!parsed || *parsed < row.minimum) return complain(row, value);
  if (*parsed > kMaxInteger) return complain(row, value, "is too large");
  field(row.key).numbers.push_back(*parsed);
}

void Section::check_number(const KeyRow& row, const Value& value) {
  constexpr double kMost = 1e15;
  std::string why;
  const auto parsed = parse_quantity(value.text, Dimension::number, why);
  if (!parsed || *parsed < 0) return complain(row, value, why);
  if (*parsed > kMost) return complain(row, value, "is too large");
  field(row.key).numbers.push_back(*parsed);
}

void Section::check_curve(const KeyRow& row, const Value& value) {
  if (value.kind != Value::Kind::list || value.items.empty()) return complain(row, value);
  double previous = 0;
  for (const Value& pair : value.items) {
    std::string why;
    const bool shaped = pair.items.size() == 2 && pair.items[0].kind == Value::Kind::scalar &&
                        pair.items[1].kind == Value::Kind::scalar;
    const auto x =
        shaped ? parse_quantity(pair.items[0].text, Dimension::number, why) : std::nullopt;
    const auto y =
        shaped ? parse_quantity(pair.items[1].text, Dimension::fraction, why) : std::nullopt;
    if (!x || !y || *y < 1e-6 || *y > 1) {
      complain(row, pair);
    } else if (*x <= previous) {
      complain(row, pair, "does not ascend");
    } else {
      previous = *x;
      field(row.key).numbers.push_back(*x);
      field(row.key).numbers.push_back(*y);
    }
  }
}

}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
// A map of a scenario read against the table of keys: every key known, every value of its type.
#pragma once

#include "scenarios/document.hpp"
#include "scenarios/keys.hpp"

#include <optional>
#include <string_view>

namespace penstock {

/// Collects what is wrong with an input, to report all of it at once: nothing twice, and no more
/// than anybody reads.
class Diagnostics {
 public:
  void add_error(const Value& where, const std::string& message);
  void add_error(Diagnostic diagnostic);
  void add_all(const Diagnostics& others);
  /// What the user should know though nothing is wrong.
  void note(std::string text) { notes_.push_back(std::move(text)); }
  const std::vector<std::string>& notes() const { return notes_; }
  bool empty() const { return all_.empty(); }
  bool full() const { return all_.size() >= kMost; }
  std::size_t size() const { return all_.size(); }
  /// Throws InputError with all of them in the order of the file, unless there are none.
  void throw_if_any() const;

 private:
  static constexpr std::size_t kMost = 50;
  std::vector<Diagnostic> all_;
  std::vector<std::string> notes_;
};

class Section {
 public:
  /// Reads `value` as section `name`, reporting unknown keys and wrong values.
  Section(const Value& value, std::string name, Diagnostics& diagnostics);
  /// The one at a key of another; empty, and in the place of that, where there is none.
  Section(const Section& above, std::string key);
  /// One that is read already, but reports to others from now on.
  Section(const Section& read, Diagnostics& diagnostics)
      : name_(read.name_), self_(read.self_), diagnostics_(diagnostics), fields_(read.fields_) {}

  bool has(std::string_view key) const {
    const Field* field = find(key);
    return field != nullptr && field->value != nullptr;
  }
  /// Is the key given, but its value refused?
  bool broken(std::string_view key) const {
    const Field* field = find(key);
    return field != nullptr && field->broken;
  }
  /// Where a key stands; the section itself when the key is missing.
  const Value& at(std::string_view key) const;
  const Value& self() const { return *self_; }
  /// Reports what is wrong at a key.
  void refuse(std::string_view key, const std::string& why) const {
    diagnostics_.add_error(at(key), why);
  }
  void refuse(const std::string& why) const { diagnostics_.add_error(*self_, why); }
  Diagnostics& diagnostics() const { return diagnostics_; }

  // Values of keys that are there and well-formed.
  std::optional<double> number(std::string_view key) const;
  std::optional<std::int64_t> integer(std::string_view key) const;
  std::optional<std::string> text(std::string_view key) const;
  std::optional<bool> boolean(std::string_view key) const;
  /// One element for a single quantity.
  std::optional<std::vector<double>> list(std::string_view key) const;
  /// Position of a choice among the row's choices.
  std::optional<int> choice(std::string_view key) const;
  /// The same of each item of a list; one element for a single choice.
  std::optional<std::vector<int>> choices(std::string_view key) const;
  /// Sets of choices, a bit for each: of all stages alike, or one per stage.
  std::optional<std::vector<unsigned>> choice_sets(std::string_view key) const;

 private:
  /// A key that is there, or a number type of a map of rates (then without `value`).
  struct Field {
    std::string_view key;
    const Value* value = nullptr;
    std::vector<double> numbers = {};
    bool broken = false;
  };
  /// Null when there is none. Sections are small: looked through, not sorted.
  const Field* find(std::string_view key) const;
  Field& field(std::string_view key);

  void read_entries();
  void read_entry(const Value::Entry& entry);
  std::string unknown_key(const std::string& key) const;
  void check(const KeyRow& row, const Value& value);
  bool check_scalar(const KeyRow& row, const Value& value);
  void check_quantity(const KeyRow& row, const Value& value);
  void check_integer(const KeyRow& row, const Value& value);
  void check_number(const KeyRow& row, const Value& value);
  void check_curve(const KeyRow& row, const Value& value);
  void check_list(const KeyRow& row, const Value& value);
  void check_item(const KeyRow& row, const Value& item);
  void check_choice(const KeyRow& row, const Value& value);
  void check_choice_sets(const KeyRow& row, const Value& value);
  void check_pair(const KeyRow& row, const Value& value);
  void check_rates(const KeyRow& row, const Value& value);
  void complain(const KeyRow& row, const Value& value, const std::string& why = "");

  std::string name_;
  const Value* self_;
  Diagnostics& diagnostics_;
  std::vector<Field> fields_;
};

}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0

#include "base/suggest.hpp"
#include "scenarios/parts.hpp"
#include "scenarios/specification.hpp"

#include <fmt/format.h>

namespace penstock {
namespace {

class ValueCheck {
 public:
  ValueCheck(Library& library, Diagnostics& diagnostics)
      : library_(library), diagnostics_(diagnostics) {}

  void check(const Value& value, const std::string& kind) {
    const Value* const found = whole(value, kind);
    if (found == nullptr || found->kind != Value::Kind::map) return;
    const Section section(*found, kind, diagnostics_);
    for (const Value::Entry& entry : found->entries) {
      const KeyRow* const row = find_key(kind, entry.key.text);
      if (row != nullptr && !section.broken(row->key)) check_inside(*row, entry.value);
    }
  }

 private:
  /// With what its 'base' gives it, and read from the file whose name it is.
  const Value* whole(const Value& value, const std::string& kind) {
    if (kind == "model") return library_.resolve(value, kind, "models");
    if (kind == "cluster") return library_.resolve(value, kind, "models/clusters");
    if (kind == "stack") return library_.resolve(value, kind, "models/stacks");
    if (kind == "device") return library_.resolve(value, kind, "models/devices");
    return &value;
  }

  void check_inside(const KeyRow& row, const Value& value) {
    using T = KeyRow::Type;
    const std::string kind = row.type == T::link                ? "link"
                             : row.type == T::choice_or_section ? std::string(row.key)
                                                                : std::string(row.choices);
    if (row.key == "schedule") {
      check_schedule(value);
    } else if (row.section == "model" && row.key == "profile") {
      read(value, "profile");
    } else if (row.type == T::section_list) {
      for (const Value& item : value.items) check(item, kind);
    } else if (row.type == T::section || row.type == T::name_or_section ||
               row.type == T::choice_or_section || row.type == T::link) {
      check(value, kind);
    }
  }

  void check_schedule(const Value& value) {
    if (!is_own_schedule(value)) {
      schedule_named(value, diagnostics_);
    } else if (value.kind == Value::Kind::scalar && value.text.ends_with(".csv")) {
      read(value, "schedule");
    } else if (const Value* const block = library_.resolve(value, "block", "schedules")) {
      check(*block, "block");
    }
  }

  void read(const Value& name, const std::string& kind) {
    const auto path = library_.file(name, kind);
    if (!path) return;
    try {
      library_.text(*path);
    } catch (const InputError& error) {
      for (const Diagnostic& d : error.diagnostics()) diagnostics_.add_error(d);
    }
  }

  Library& library_;
  Diagnostics& diagnostics_;
};

}  // namespace

void check_values(const Value& scenario, Library& library, Diagnostics& diagnostics) {
  ValueCheck(library, diagnostics).check(scenario, "scenario");
  // It may be asked for where none is named: who carries the files elsewhere has to read it.
  if (scenario.kind == Value::Kind::map && scenario.find("stack") == nullptr)
    ValueCheck(library, diagnostics).check(usual_stack(scenario), "stack");
}

const Schedule* schedule_named(const Value& name, Diagnostics& diagnostics) {
  const Schedule* const found = find_schedule(name.text);
  if (found == nullptr) {
    diagnostics.add_error(
        name, fmt::format("unknown schedule '{}'{} (`penstock schedule list` shows all)",
                          printable(name.text), did_you_mean(name.text, schedule_names())));
  }
  return found;
}

}  // namespace penstock

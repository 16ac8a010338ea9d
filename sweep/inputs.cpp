// SPDX-License-Identifier: Apache-2.0
#include "sweep/inputs.hpp"

#include "scenarios/keys.hpp"
#include "scenarios/overrides.hpp"
#include "scenarios/section.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace penstock {
namespace {

/// Parts of a scenario that name files, none of which depends on the other parts.
constexpr std::array<std::string_view, 3> kParts = {"model", "cluster", "schedule"};

/// May the value of a key name files, be it deep inside of it?
bool may_name_files(const std::string& key) {
  using T = KeyRow::Type;
  const KeyRow* const row = key_row(key_path(key, key));
  return row != nullptr && (row->type == T::name_or_section || row->type == T::section_list ||
                            row->key == "base" || row->key == "profile");
}

bool names_files_of(const SweepAxis& axis, std::string_view part) {
  return std::ranges::any_of(axis.keys, [&](const std::string& key) {
    return key.substr(0, key.find('.')) == part && may_name_files(key);
  });
}

/// The first values of all axes, but of one part every combination of those that name files.
class Combinations {
 public:
  Combinations(const std::vector<SweepAxis>& axes, std::string_view part)
      : axes_(axes), at_(axes.size(), 0), sizes_(axes.size(), 1) {
    for (std::size_t a = 0; a < axes.size(); ++a)
      if (names_files_of(axes[a], part)) sizes_[a] = axes[a].values.size();
  }

  void append_to(std::vector<Override>& changes) const {
    for (std::size_t a = 0; a < axes_.size(); ++a)
      for (std::size_t k = 0; k < axes_[a].keys.size(); ++k)
        changes.push_back({axes_[a].keys[k], axes_[a].values[at_[a]][k]});
  }

  bool advance() {
    for (std::size_t a = axes_.size(); a-- > 0; at_[a] = 0)
      if (++at_[a] < sizes_[a]) return true;
    return false;
  }

 private:
  const std::vector<SweepAxis>& axes_;
  std::vector<std::size_t> at_, sizes_;
};

/// How a change is called where something is wrong with it.
std::string flag_of(const char* flag, const Override& change) {
  return fmt::format("{} {}={}", flag, printable(change.key), printable(change.value));
}

using Scenarios = std::vector<ScenarioTemplate>;

/// A value that any of the scenarios can take is none to complain about.
void check_value(const Scenarios& scenarios, const Override& value, Diagnostics& wrong) {
  std::vector<Diagnostic> first;
  for (const ScenarioTemplate& scenario : scenarios) {
    const auto found = scenario.check_alone(value);
    if (found.empty()) return;
    if (first.empty()) first = found;
  }
  for (Diagnostic& d : first) {
    if (d.where.origin == flag_of("--set", value)) d.where.origin = flag_of("--over", value);
    wrong.add_error(std::move(d));
  }
}

/// What is wrong whatever the values of the axes are.
void check_scenario(const ScenarioTemplate& scenario, const std::vector<Override>& changes,
                    const std::vector<SweepAxis>& axes, Diagnostics& wrong) {
  std::vector<Override> firsts, all = changes;
  Combinations(axes, "").append_to(firsts);
  all.insert(all.end(), firsts.begin(), firsts.end());
  for (const Diagnostic& d : scenario.check(all)) {
    const bool of_axis = std::ranges::any_of(
        firsts, [&](const Override& first) { return d.where.origin == flag_of("--set", first); });
    if (!of_axis) wrong.add_error(d);
  }
}

void check_inputs(const Scenarios& scenarios, const std::vector<SweepAxis>& axes,
                  const std::vector<Override>& changes) {
  Diagnostics wrong;
  for (const SweepAxis& axis : axes)
    for (const auto& values : axis.values)
      for (std::size_t k = 0; k < values.size() && !wrong.full(); ++k)
        check_value(scenarios, {axis.keys[k], values[k]}, wrong);
  for (const ScenarioTemplate& scenario : scenarios) check_scenario(scenario, changes, axes, wrong);
  wrong.throw_if_any();
}

}  // namespace

void read_inputs(const std::vector<std::string>& files, const std::vector<SweepAxis>& axes,
                 const std::vector<Override>& changes,
                 const std::shared_ptr<Documents>& documents) {
  Scenarios read;
  for (const std::string& file : files) read.emplace_back(file, documents);
  check_inputs(read, axes, changes);
  for (const ScenarioTemplate& scenario : read) {
    for (const std::string_view part : kParts) {
      Combinations combinations(axes, part);
      do {
        std::vector<Override> all = changes;
        combinations.append_to(all);
        scenario.check(all);  // what does not go together is a row
      } while (combinations.advance());
    }
  }
  documents->close();
}

}  // namespace penstock

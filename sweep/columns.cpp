// SPDX-License-Identifier: Apache-2.0
#include "sweep/columns.hpp"

#include "base/error.hpp"
#include "base/suggest.hpp"
#include "scenarios/document.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>

namespace penstock {
namespace {

constexpr std::string_view kTexts[] = {"engine", "schedule", "transfers", "width", "replication"};

const std::string& text_of(const Row& row, std::size_t number) {
  const std::string* const texts[] = {&row.engine, &row.schedule, &row.transfers, &row.width,
                                      &row.replication};
  return *texts[number];
}

/// Keys that a column of `simulate` repeats under the same name.
constexpr std::string_view kRepeated[] = {"pipeline.stages",
                                          "pipeline.tensor",
                                          "pipeline.microbatches",
                                          "pipeline.microbatch_size",
                                          "pipeline.width",
                                          "batches",
                                          "schedule",
                                          "transfers"};

bool is_own_column(std::string_view name) {
  constexpr std::string_view kOthers[] = {"point", "scenario", "status", "why"};
  return std::ranges::find(kOthers, name) != std::end(kOthers) ||
         std::ranges::find(kTexts, name) != std::end(kTexts) || find_measure(name) != nullptr;
}

/// The last part of a key where that is nothing else's name.
std::string column_name(const std::string& key, const std::vector<std::string>& keys) {
  const std::string leaf = key.substr(key.rfind('.') + 1);
  const auto same = std::ranges::count_if(
      keys, [&](const std::string& other) { return other.substr(other.rfind('.') + 1) == leaf; });
  const bool repeated = std::ranges::find(kRepeated, key) != std::end(kRepeated);
  return same == 1 && (repeated || !is_own_column(leaf)) ? leaf : key;
}

/// Names of scenarios; where two have the same, their files.
std::vector<std::string> labels_of(const std::vector<std::string>& files, Documents& documents) {
  std::vector<std::string> labels;
  for (const std::string& file : files) {
    const Value document = documents.exists(file) ? documents.load(file) : Value();
    const Value* const name = document.find("name");
    const bool given = name != nullptr && name->kind == Value::Kind::scalar && !name->text.empty();
    labels.push_back(one_line(given ? name->text : std::filesystem::path(file).stem().string()));
  }
  const std::set<std::string> different(labels.begin(), labels.end());
  return different.size() == labels.size() ? labels : files;
}

}  // namespace

const Measure* measure_of(const SweepColumn& column) {
  return column.type == SweepColumn::Type::number
             ? &measures()[static_cast<std::size_t>(column.source)]
             : nullptr;
}

std::vector<const Measure*> usual_measures() {
  std::vector<const Measure*> usual;
  for (const Measure& m : measures())
    if (m.column.usual > 0) usual.push_back(&m);
  std::ranges::sort(usual, {}, [](const Measure* m) { return m->column.usual; });
  return usual;
}

std::string short_name(const std::string& column) {
  const Measure* m = find_measure(column);
  return m == nullptr || m->column.header.empty() ? column : std::string(m->column.header);
}

std::string full_name(const std::string& header) {
  const auto has_header = [&](const Measure& m) { return m.column.header == header; };
  const auto found = std::ranges::find_if(measures(), has_header);
  return header.empty() || found == measures().end() ? header : found->name;
}

std::string number_cell(double value) {
  if (std::isnan(value)) return "";
  return fmt::format("{}", value);
}

SweepColumns::SweepColumns(const std::vector<SweepAxis>& axes) {
  using Type = SweepColumn::Type;
  std::vector<std::string> keys;
  for (const SweepAxis& axis : axes) keys.insert(keys.end(), axis.keys.begin(), axis.keys.end());
  add_column(Part::point, "point", Type::integer, 0);
  add_column(Part::scenario, "scenario", Type::text, 0);
  for (std::size_t k = 0; k < keys.size(); ++k)
    add_column(Part::axis, column_name(keys[k], keys), Type::value, static_cast<int>(k));
  axes_ = keys.size();
  const auto add_unless_axis = [&](Part part, std::string_view name, Type type, std::size_t n) {
    const bool shown = std::ranges::find(columns_, name, &SweepColumn::name) != columns_.end();
    if (!shown) add_column(part, std::string(name), type, static_cast<int>(n));
  };
  for (std::size_t t = 0; t < std::size(kTexts); ++t)
    add_unless_axis(Part::text, kTexts[t], kTexts[t] == "width" ? Type::mixed : Type::text, t);
  for (std::size_t m = 0; m < measures().size(); ++m)
    add_unless_axis(Part::measure, measures()[m].name, Type::number, m);
  add_column(Part::status, "status", Type::text, 0);
  add_column(Part::why, "why", Type::text, 0);
}

void SweepColumns::add_column(Part part, std::string name, SweepColumn::Type type, int source) {
  columns_.push_back({std::move(name), type, source});
  parts_.push_back(part);
}

std::size_t SweepColumns::find(const std::string& name, const std::string& flag) const {
  for (const std::string& called : {name, full_name(name)}) {
    const auto at = std::ranges::find(columns_, called, &SweepColumn::name);
    if (at != columns_.end()) return static_cast<std::size_t>(at - columns_.begin());
  }
  std::vector<std::string> known;
  for (const SweepColumn& column : columns_) {
    known.push_back(column.name);
    if (const std::string header = short_name(column.name); header != column.name)
      known.push_back(header);
  }
  throw InputError(flag, fmt::format("there is no column '{}'{}; there are {}", name,
                                     did_you_mean(name, known), fmt::join(known, ", ")));
}

std::size_t SweepColumns::at(std::string_view name) const {
  const auto found = std::ranges::find(columns_, name, &SweepColumn::name);
  invariant(found != columns_.end(), "a column of every sweep is missing");
  return static_cast<std::size_t>(found - columns_.begin());
}

Columns::Columns(const Space& space, Documents& documents)
    : SweepColumns(space.axes()), space_(space), scenarios_(labels_of(space.files(), documents)) {}

Cells Columns::cells(const Row& row) const {
  const Point point = space_.point(row.point);
  Cells cells;
  for (std::size_t c = 0; c < all().size(); ++c) cells.push_back(cell(c, row, point));
  return cells;
}

std::string Columns::cell(std::size_t column, const Row& row, const Point& point) const {
  const auto source = static_cast<std::size_t>(all()[column].source);
  switch (part(column)) {
    case Part::point: return std::to_string(row.point);
    case Part::scenario: return scenarios_[point.scenario];
    case Part::axis: return one_line(point.changes[source].value);
    case Part::text: return one_line(text_of(row, source));
    case Part::measure: return number_cell(row.numbers[source]);
    case Part::status: return std::string(kStatusNames[static_cast<std::size_t>(row.status)]);
    case Part::why: return one_line(row.why);
  }
  return "";
}

}  // namespace penstock

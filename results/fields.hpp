// SPDX-License-Identifier: Apache-2.0
// The fields of a result, in one table: a row says all there is to say about a field (its name,
// unit, value, meaning and, if it has one, its column in sweeps), and JSON, CSV, the rows of
// sweeps, what a sweep's table and page make of a column, and docs/metrics.md follow from it.
// A name with dots stands in an object: `bubble.drain`, in CSV and sweeps `bubble_drain`.
#pragma once

#include "base/json.hpp"
#include "results/simulation.hpp"

#include <cmath>
#include <concepts>
#include <limits>

namespace penstock {

enum class Unit : std::uint8_t {
  none,
  count,
  seconds,
  bytes,
  fraction,
  samples_per_s,
  microbatches_per_s,
  tokens_per_s,
  tflops_per_s,
};
inline constexpr std::string_view kUnitNames[] = {
    "", "", "s", "bytes", "fraction", "samples/s", "microbatches/s", "tokens/s", "TFLOP/s"};

/// How a sweep shows a field. Of a field of devices it shows the largest value of any device.
struct ShownInSweeps {
  /// its place among the columns; -1: it is no column. New ones go last, as files are continued
  int place = -1;
  /// its place among the columns that the table shows unasked; 0: it is not among them
  int usual = 0;
  std::string_view header = {};  ///< its name in the table
  std::string_view label = {};   ///< its name on the page; empty: the field's name without the unit
  bool higher_is_better = false;
  bool setting = false;  ///< whether it says what a point is, rather than what came of it
};

/// A field of an `Of`. A value may be none: a number is null then, and a Json is left out.
template <class Of>
struct Field {
  /// Makes a field whose value `Get` computes from an Of, or from a part of a Summary.
  template <class Get>
  Field(std::string_view name_, Unit unit_, Get, std::string_view meaning_,
        ShownInSweeps column_ = {});

  std::string_view name;
  Unit unit;
  std::string_view meaning;  ///< one line of Markdown
  std::string_view type;     ///< the type in JSON: boolean, integer, number, string; else any
  bool nullable = false;     ///< whether it may be null
  ShownInSweeps column;
  std::optional<Json> (*value)(const Of&);
  /// the value, NaN for none; null where the field is no number
  double (*number)(const Of&) = nullptr;
  bool before_run = false;  ///< whether it follows from the scenario alone
  bool of_rates = false;    ///< whether it is a field of Rates
};

/// What the fields of a whole result are read from. Fields that follow from the scenario alone need
/// nothing else.
struct Summary {
  const Scenario& scenario;
  const Simulation* simulation = nullptr;
  const Result* result = nullptr;
  bool reproducible = false;  ///< whether what varies between runs is left out
  const Rates* rates = result;
};

/// Communication of one dimension, and the device time of the run that it is a share of.
struct DimensionShare {
  const Communication& communication;
  double device_s;
};

struct PathPart {
  const Simulation& simulation;
  const PathSegment& segment;
};

// Both lists are in the order of JSON.
const std::vector<Field<Summary>>& result_fields();
const std::vector<Field<DeviceResult>>& device_fields();

/// Returns a result as JSON.
Json to_json(const Summary& summary);

/// Returns all fields as the tables of docs/metrics.md.
std::string fields_as_markdown();

/// A number that a sweep can show for each of its points.
struct Measure {
  std::string name;
  Unit unit;
  ShownInSweeps column;
  const Field<Summary>* of_result;
  const Field<DeviceResult>* of_device;  ///< null where it is a field of the result

  bool before_run() const { return of_device == nullptr && of_result->before_run; }
  /// Returns the number of a result, NaN where there is none.
  double value(const Summary& summary) const;
};
/// Returns all numbers, in the order of their columns.
const std::vector<Measure>& measures();
/// Returns the number of a name, or null where there is none.
const Measure* find_measure(std::string_view name);

/// Returns the replicas of the stages: a number where all have as many, else a list.
Json width_json(const std::vector<int>& widths);

/// Returns the name of a link of the simulation's traffic.
const std::string& link_name(const Simulation& simulation, int link);

template <class T>
Json nullable(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

/// Returns the number of a key of an object that was read, or none.
inline std::optional<double> number_in(const Json& object, std::string_view key) {
  const Json* const found = object.find(key);
  if (found == nullptr || !found->is_number()) return std::nullopt;
  return found->get<double>() + 0.0;  // of -0, too
}

/// Returns a list of what `one` makes of each item.
template <class Items, class F>
Json list(const Items& items, F&& one) {
  Json out = Json::array();
  for (const auto& item : items) out.push_back(one(item));
  return out;
}

namespace fields_detail {

template <class Get, class Of>
auto get(const Of& of) {
  if constexpr (std::invocable<Get, const Of&>) {
    return Get{}(of);
  } else if constexpr (std::invocable<Get, const Scenario&>) {
    return Get{}(of.scenario);
  } else if constexpr (std::invocable<Get, const Rates&>) {
    return Get{}(*of.rates);
  } else if constexpr (std::invocable<Get, const Result&>) {
    return Get{}(*of.result);
  } else {
    return Get{}(*of.simulation, *of.result);
  }
}

inline std::optional<Json> value(std::optional<Json> given) { return given; }
template <class T>
std::optional<Json> value(const std::optional<T>& given) {
  return nullable(given);
}
template <class T>
std::optional<Json> value(T given) {
  return Json(std::move(given));
}

template <class T>
inline constexpr bool is_optional = false;
template <class T>
inline constexpr bool is_optional<std::optional<T>> = true;

template <class T>
constexpr std::string_view json_type() {
  if constexpr (std::same_as<T, bool>) {
    return "boolean";
  } else if constexpr (std::integral<T>) {
    return "integer";
  } else if constexpr (std::floating_point<T>) {
    return "number";
  } else if constexpr (is_optional<T>) {
    return json_type<typename T::value_type>();
  } else if constexpr (std::convertible_to<T, std::string_view>) {
    return "string";
  } else {
    return "any";
  }
}

template <class T>
concept Number = std::is_arithmetic_v<T>;
double number(Number auto given) { return static_cast<double>(given); }
template <Number T>
double number(const std::optional<T>& given) {
  return given ? static_cast<double>(*given) : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace fields_detail

template <class Of>
template <class Get>
Field<Of>::Field(std::string_view name_, Unit unit_, Get, std::string_view meaning_,
                 ShownInSweeps column_)
    : name(name_),
      unit(unit_),
      meaning(meaning_),
      type(fields_detail::json_type<
           std::remove_cvref_t<decltype(fields_detail::get<Get>(std::declval<const Of&>()))>>()),
      nullable(fields_detail::is_optional<
               std::remove_cvref_t<decltype(fields_detail::get<Get>(std::declval<const Of&>()))>>),
      column(column_),
      value([](const Of& of) { return fields_detail::value(fields_detail::get<Get>(of)); }),
      before_run(std::invocable<Get, const Scenario&>),
      of_rates(std::invocable<Get, const Rates&>) {
  if constexpr (requires(const Of& of) { fields_detail::number(fields_detail::get<Get>(of)); })
    number = [](const Of& of) { return fields_detail::number(fields_detail::get<Get>(of)); };
}

}  // namespace penstock

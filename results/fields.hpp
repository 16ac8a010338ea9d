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

/// How a sweep shows a field; one of devices is the most that any has.
struct ShownInSweeps {
  int place = -1;  ///< of its columns; none: -1. Files are continued: new ones go last
  int usual = 0;   ///< among the columns that its table shows unasked; 0: not there
  std::string_view header = {};  ///< what the table calls it then
  std::string_view label = {};   ///< what its page calls it; none: the name without the unit
  bool higher_is_better = false;
  bool setting = false;  ///< says what a point is, not what became of it
};

/// A field of what `Of` says. Its value may be none: a number is null then, a Json left out.
template <class Of>
struct Field {
  /// `Get` takes an Of, or what a Summary has of that.
  template <class Get>
  Field(std::string_view name_, Unit unit_, Get, std::string_view meaning_,
        ShownInSweeps column_ = {});

  std::string_view name;
  Unit unit;
  std::string_view meaning;  ///< Markdown, one line
  std::string_view type;     ///< of its JSON: boolean, integer, number, string; else any
  bool nullable = false;     ///< may be null
  ShownInSweeps column;
  std::optional<Json> (*value)(const Of&);
  double (*number)(const Of&) = nullptr;  ///< the same, NaN for none; null: the field is no number
  bool before_run = false;                ///< follows from the scenario
  bool of_rates = false;                  ///< is one of Rates
};

/// What the fields of a whole result are read from. Fields that follow from the scenario need no
/// more.
struct Summary {
  const Scenario& scenario;
  const Simulation* simulation = nullptr;
  const Result* result = nullptr;
  bool reproducible = false;  ///< without what varies between runs
  const Rates* rates = result;
};

/// Of the scenario's device time.
struct DimensionShare {
  const Communication& communication;
  double device_s;
};

struct PathPart {
  const Simulation& simulation;
  const PathSegment& segment;
};

// In the order of JSON.
const std::vector<Field<Summary>>& result_fields();
const std::vector<Field<DeviceResult>>& device_fields();

Json to_json(const Summary& summary);

/// All fields as the tables of docs/metrics.md.
std::string fields_as_markdown();

/// A number of a sweep's rows.
struct Measure {
  std::string name;
  Unit unit;
  ShownInSweeps column;
  const Field<Summary>* of_result;
  const Field<DeviceResult>* of_device;  ///< null: of the result

  bool before_run() const { return of_device == nullptr && of_result->before_run; }
  /// NaN where there is none.
  double value(const Summary& summary) const;
};
/// In the order of their columns.
const std::vector<Measure>& measures();
/// Null: there is none of that name.
const Measure* find_measure(std::string_view name);

/// Replicas, as a number where all stages have as many.
Json width_json(const std::vector<int>& widths);

/// Of a link of the simulation's traffic.
const std::string& link_name(const Simulation& simulation, int link);

template <class T>
Json nullable(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

/// Of an object that was read: none where there is no number.
inline std::optional<double> number_in(const Json& object, std::string_view key) {
  const Json* const found = object.find(key);
  if (found == nullptr || !found->is_number()) return std::nullopt;
  return found->get<double>() + 0.0;  // of -0, too
}

/// What `one` makes of each item.
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

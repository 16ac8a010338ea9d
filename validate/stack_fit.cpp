// SPDX-License-Identifier: Apache-2.0
#include "validate/stack_fit.hpp"

#include "base/json.hpp"
#include "base/suggest.hpp"
#include "scenarios/documents.hpp"
#include "scenarios/stack_parts.hpp"
#include "validate/least_squares.hpp"
#include "validate/measured_files.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <filesystem>
#include <memory>
#include <numeric>
#include <thread>

namespace penstock {
namespace {

std::optional<double> value_of(const StackSpec& stack, const StackNumber& number) {
  return std::visit([&](auto field) { return std::optional<double>(stack.*field); }, number.field);
}

std::string unit_of(const StackNumber& number) {
  return number.dimension == Dimension::time    ? "s"
         : number.dimension == Dimension::bytes ? "B"
                                                : "";
}

/// As YAML; a share as such, so that no value is cut off.
std::string exact_text(const StackNumber& number, double value) {
  return fmt::format("{}{}", value, unit_of(number).empty() ? "" : " " + unit_of(number));
}

std::string short_text(const StackNumber& number, double value) {
  switch (number.dimension) {
    case Dimension::fraction: return fmt::format("{:.4g}%", 100 * value);
    case Dimension::time: return fmt::format("{:.4g} ms", 1e3 * value);
    case Dimension::bytes: return fmt::format("{:.4g} GB", value / 1e9);
    default: return fmt::format("{:.4g}", value);
  }
}

/// Shares end below 1: no product and no link reaches all that a data sheet says.
FitRange range_of(const StackNumber& number, double start) {
  if (number.dimension == Dimension::fraction) return {std::min(start, 0.98), start / 50, 0.98};
  return {start, start / 50, start * 50};
}

/// Those that are wanted, or all of the stack's that it gives above 0 and that change what is
/// fitted.
std::vector<StackNumber> numbers_of(const StackSpec& stack, const StackFit& wanted) {
  std::vector<StackNumber> numbers;
  std::vector<std::string> known;
  for (const StackNumber& number : stack_numbers()) {
    const auto value = value_of(stack, number);
    if (value.value_or(0) <= 0 || value == value_of(StackSpec{}, number)) continue;
    known.emplace_back(number.key);
    const bool all = wanted.numbers.empty() && number.of_memory == wanted.memory;
    if (all || std::ranges::find(wanted.numbers, number.key) != wanted.numbers.end())
      numbers.push_back(number);
  }
  for (const std::string& key : wanted.numbers) {
    if (std::ranges::find(known, key) == known.end())
      throw InputError("--numbers",
                       fmt::format("'{}' has no '{}' above 0{}; it has {}", stack.name, key,
                                   did_you_mean(key, known), fmt::join(known, ", ")));
  }
  return numbers;
}

/// The rows as scenarios, predicted under other numbers of the stack.
class RunFit {
 public:
  explicit RunFit(const StackFit& wanted)
      : wanted_(wanted), start_(load_stack(wanted.stack)), numbers_(numbers_of(start_, wanted)) {
    const auto documents = std::make_shared<Documents>();
    for (RunRow& row : rows_in(wanted.table, wanted.rows)) {
      if (!(wanted.memory ? row.measured_bytes.has_value() : row.measured_s.has_value())) continue;
      scenarios_.emplace_back(row.scenario, row.id, documents);
      rows_.push_back(std::move(row));
    }
    if (rows_.size() <= numbers_.size())
      throw InputError(wanted.table, fmt::format("has {} measured rows, too few for {} numbers",
                                                 rows_.size(), numbers_.size()));
  }

  std::size_t rows() const { return rows_.size(); }
  const std::vector<StackNumber>& numbers() const { return numbers_; }
  const StackSpec& start() const { return start_; }

  std::vector<double> start_values() const {
    std::vector<double> values;
    for (const StackNumber& number : numbers_) values.push_back(*value_of(start_, number));
    return values;
  }

  /// Of the rows chosen, with these values; side by side, as each is by itself.
  std::vector<MeasuredRowResult> predicted(const std::vector<std::size_t>& chosen,
                                           const std::vector<double>& values) const {
    std::string stack = fmt::format("{{base: {}", wanted_.stack);
    for (std::size_t j = 0; j < values.size(); ++j)
      stack += fmt::format(", {}: {}", numbers_[j].key, exact_text(numbers_[j], values[j]));
    std::vector<Override> overrides = wanted_.rows.changes;
    overrides.push_back({"stack", stack + "}"});
    std::vector<MeasuredRowResult> results(chosen.size());
    std::atomic<std::size_t> next = 0;
    std::exception_ptr wrong;
    std::atomic_flag failed = ATOMIC_FLAG_INIT;
    const auto work = [&] {
      try {
        for (std::size_t i = next++; i < chosen.size(); i = next++)
          results[i] = predict_row(rows_[chosen[i]], scenarios_[chosen[i]].resolve(overrides),
                                   wanted_.rows.engine);
      } catch (...) {
        if (!failed.test_and_set()) wrong = std::current_exception();
      }
    };
    std::vector<std::jthread> others;
    for (unsigned i = 1; i < std::thread::hardware_concurrency(); ++i) others.emplace_back(work);
    work();
    others.clear();  // joins them
    if (wrong) std::rethrow_exception(wrong);
    return results;
  }

  /// log(predicted / measured) of the rows chosen.
  Residuals residuals(const std::vector<std::size_t>& chosen) const {
    return [this, chosen](const std::vector<double>& values) {
      std::vector<double> out;
      for (const MeasuredRowResult& row : predicted(chosen, values))
        out.push_back(std::log1p((wanted_.memory ? row.memory_error() : row.error()).value_or(0)));
      return out;
    };
  }

  std::vector<double> fit(const std::vector<std::size_t>& chosen,
                          const std::vector<double>& first) const {
    std::vector<FitRange> ranges;
    const std::vector<double> start = start_values();
    for (std::size_t j = 0; j < numbers_.size(); ++j)
      ranges.push_back(range_of(numbers_[j], start[j]));
    constexpr FitOptions kOptions = {.scale = 0.02, .prior = 0.003, .steps = 20, .gain = 1e-3};
    return fit_least_squares(residuals(chosen), ranges, first, kOptions);
  }

 private:
  const StackFit& wanted_;
  StackSpec start_;
  std::vector<StackNumber> numbers_;
  std::vector<RunRow> rows_;
  std::vector<ScenarioTemplate> scenarios_;
};

std::vector<std::size_t> all_rows(const RunFit& fitted) {
  std::vector<std::size_t> rows(fitted.rows());
  std::iota(rows.begin(), rows.end(), std::size_t{0});
  return rows;
}

/// Each row by a fit on the parts it is not in, which goes on from that on all.
std::vector<MeasuredRowResult> in_folds(const RunFit& fitted, const std::vector<double>& all,
                                        int folds, std::uint64_t seed) {
  const auto part = random_parts(fitted.rows(), folds, seed);
  std::vector<MeasuredRowResult> results(fitted.rows());
  for (int fold = 0; fold < folds; ++fold) {
    std::vector<std::size_t> seen, unseen;
    for (std::size_t i = 0; i < part.size(); ++i) (part[i] == fold ? unseen : seen).push_back(i);
    const auto predicted = fitted.predicted(unseen, fitted.fit(seen, all));
    for (std::size_t i = 0; i < unseen.size(); ++i) results[unseen[i]] = predicted[i];
  }
  return results;
}

std::string stack_text(const RunFit& fitted, const std::vector<double>& values,
                       const std::vector<double>& spread, const std::string& fitted_on) {
  std::string text = fmt::format(
      "# Made by `penstock calibrate --from`; +- is a standard deviation.\n"
      "name: {}\nfitted_on: {}\n",
      fitted.start().name, Json(fitted_on).dump());
  const StackSpec& stack = fitted.start();
  for (const StackNumber& number : stack_numbers()) {
    const auto place =
        std::ranges::find(fitted.numbers(), std::string_view(number.key),
                          [](const StackNumber& n) { return std::string_view(n.key); });
    const auto j = static_cast<std::size_t>(place - fitted.numbers().begin());
    const auto kept = value_of(stack, number);
    if (place != fitted.numbers().end())
      text += fmt::format("{}: {}  # +- {:.0f} %\n", number.key, short_text(number, values[j]),
                          100 * spread[j]);
    else if (kept && *kept != value_of(StackSpec{}, number))
      text += fmt::format("{}: {}\n", number.key, short_text(number, *kept));
  }
  if (stack.measured_kernels) text += "kernels: measured\n";
  if (!stack.matrix_efficiency_of.empty())
    text += fmt::format("matrix_efficiency_of: {}\n", Json(stack.matrix_efficiency_of).dump());
  if (stack.overlaps_reduction) text += "reduction_overlap: backward\n";
  if (stack.gathers_again) text += "gathered_inputs: again\n";
  if (stack.cross_entropy != CrossEntropy::separate)
    text += fmt::format("cross_entropy: {}\n",
                        stack.cross_entropy == CrossEntropy::fused ? "fused" : "in-place");
  if (stack.cuda_graphs) text += "cuda_graphs: true\n";
  if (stack.gradient_placeholders) text += "gradient_placeholders: true\n";
  return text;
}

}  // namespace

FittedStack fit_stack(const StackFit& wanted) {
  const RunFit fitted(wanted);
  const auto folds = static_cast<int>(std::min<std::uint64_t>(wanted.folds, fitted.rows()));
  const auto rows = all_rows(fitted);
  const auto values = fitted.fit(rows, fitted.start_values());
  const auto spread = fit_spread(fitted.residuals(rows), values);
  MeasuredReport report;
  report.file = wanted.table;
  report.format = "training runs";
  report.protocol = folds > 1
                        ? fmt::format(
                              "{}-fold cross-validation (seed {}): every row predicted by a fit on "
                              "the other folds; the values are of a fit on all rows",
                              folds, wanted.seed)
                        : "fitted on all rows";
  report.rows =
      folds > 1 ? in_folds(fitted, values, folds, wanted.seed) : fitted.predicted(rows, values);
  for (MeasuredRowResult& row : report.rows) row.fitted = folds < 2;
  for (std::size_t j = 0; j < values.size(); ++j)
    report.parameters.push_back({fitted.numbers()[j].key, values[j], unit_of(fitted.numbers()[j]),
                                 fmt::format("+- {:.0f} %", 100 * spread[j])});
  const std::string table = std::filesystem::path(wanted.table).filename().string();
  return {std::move(report),
          stack_text(fitted, values, spread, fmt::format("{} rows of {}", rows.size(), table))};
}

}  // namespace penstock

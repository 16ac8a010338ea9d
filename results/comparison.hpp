// SPDX-License-Identifier: Apache-2.0
// Results of `penstock simulate --format json`, compared: what they have in common, which is
// fastest and which needs least memory, and why their numbers may not be those of the same work.
#pragma once

#include "base/json.hpp"

#include <optional>
#include <string>
#include <vector>

namespace penstock {

/// The version of the fields of a result (results/fields.cpp).
inline constexpr int kSchemaVersion = 1;
/// Returns why this is no result that this version of penstock reads, or "" where it is one.
std::string why_no_result(const Json& json);
/// Throws InputError that names every number of a result that no run can have: a negative count or
/// time, or a number so large or small that sums and ratios of it would be infinite or NaN.
void require_numbers_of_a_run(const Json& result, const std::string& origin);

/// Returns the number of a result's key, or 0 where it has none.
double number_or_0(const Json& result, const char* key);
/// Returns the number of a key of each result, NaN where one has none.
std::vector<double> numbers_of(const std::vector<Json>& results, const char* key);
/// Returns the largest number that any of the result's devices has for a key, or 0 where none has
/// one.
double most_of_devices(const Json& result, const char* key);

/// Returns the number of GPUs of a result's run.
std::size_t gpus_in(const Json& result);
/// Returns whether the results are of runs on different numbers of GPUs.
bool gpus_differ(const std::vector<Json>& results);

/// Returns the tokens per second of all GPUs together; NaN for models without tokens.
double tokens_per_s(const Json& result);

/// The rate by which results are compared: tokens/s where their sequences differ in length, else
/// samples/s.
struct ComparedRate {
  std::string unit;             ///< "samples/s"
  std::vector<double> per_s{};  ///< the rate of each result; 0 where it has none
};
/// Returns the rate by which these results are compared.
ComparedRate compared_rate(const std::vector<Json>& results);

/// Returns whether a result fits, or is not known not to.
bool result_fits(const Json& result);

/// Names for the results: a heading of what all have in common, and for each row what it has of its
/// own.
struct ComparisonLabels {
  std::string heading;  ///< empty where they are of several scenarios
  std::vector<std::string> rows;
};
/// Returns the names of these results.
ComparisonLabels labels_of(const std::vector<Json>& results);

/// Returns notes, a line each: which models, sequence lengths, batches, work and GPUs differ, and
/// what the runs themselves note.
std::string comparison_notes(const std::vector<Json>& results, const ComparisonLabels& labels);

/// The best of several results, as indices.
struct BestResults {
  std::optional<std::size_t> fastest, smallest;  ///< among those that fit; none where none fits
  std::optional<double> faster_than_first;  ///< the fastest's rate divided by that of the first
  std::size_t unfit = 0;                    ///< how many do not fit
};
/// Returns the best of these results.
BestResults best_of(const std::vector<Json>& results);

}  // namespace penstock

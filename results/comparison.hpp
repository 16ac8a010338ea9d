// SPDX-License-Identifier: Apache-2.0
// Results of `penstock simulate --format json` side by side: what they have in common, which of
// them is fastest and which smallest, and why their numbers may not be those of the same work.
#pragma once

#include "base/json.hpp"

#include <optional>
#include <string>
#include <vector>

namespace penstock {

/// Of the fields as a whole (results/fields.cpp).
inline constexpr int kSchemaVersion = 1;
/// Why this is no result that this version of penstock reads; empty: it is one.
std::string why_no_result(const Json& json);
/// Throws InputError with every number of a result that no run has: one that is negative where it
/// counts or lasts, or so large or small that what is computed of it would be no number.
void require_numbers_of_a_run(const Json& result, const std::string& origin);

/// 0 where it has none.
double number_or_0(const Json& result, const char* key);
/// Likewise of all results; NaN where one has none.
std::vector<double> numbers_of(const std::vector<Json>& results, const char* key);
/// The largest of its devices; 0 where they have none.
double most_of_devices(const Json& result, const char* key);

std::size_t gpus_in(const Json& result);
bool gpus_differ(const std::vector<Json>& results);

/// Tokens per second of all GPUs; NaN for models without tokens.
double tokens_per_s(const Json& result);

/// What makes one result faster than another: tokens/s where sequences are of different lengths,
/// samples/s where not.
struct ComparedRate {
  std::string unit;             ///< "samples/s"
  std::vector<double> per_s{};  ///< of each result; 0 where it has none
};
ComparedRate compared_rate(const std::vector<Json>& results);

/// As far as is known.
bool result_fits(const Json& result);

/// What all have in common, and what is left of each.
struct ComparisonLabels {
  std::string heading;  ///< empty: they are of several scenarios
  std::vector<std::string> rows;
};
ComparisonLabels labels_of(const std::vector<Json>& results);

/// Models, sequence lengths, batches, work and GPUs that differ, and what was noted of runs; a line
/// each.
std::string comparison_notes(const std::vector<Json>& results, const ComparisonLabels& labels);

/// By their places among the results.
struct BestResults {
  std::optional<std::size_t> fastest, smallest;  ///< of those that fit
  std::optional<double> faster_than_first;       ///< the fastest's rate over that of the first
  std::size_t unfit = 0;                         ///< do not fit
};
BestResults best_of(const std::vector<Json>& results);

}  // namespace penstock

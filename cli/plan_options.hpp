// SPDX-License-Identifier: Apache-2.0
// The options of `penstock plan` as values; everything that is wrong with them is said at once.
#pragma once

#include "cli/options.hpp"
#include "plan/search/source.hpp"

#include "base/error.hpp"

#include <cstdint>
#include <optional>

namespace penstock {

inline constexpr int kMostDevices = 4'096;
inline constexpr std::int64_t kMostSamples = 1'000'000'000;
inline constexpr std::int64_t kMostTokens = 100'000'000;  ///< of a sample

class PlanOptions {
 public:
  /// `arguments` must outlive it.
  explicit PlanOptions(const Arguments& arguments);

  // Nothing where the option is not given, or wrong.
  std::optional<std::int64_t> integer(const std::string& option, std::int64_t most);  ///< from 1
  std::optional<double> positive(const std::string& option);
  std::optional<double> bytes(const std::string& option);
  std::optional<double> share(const std::string& option);  ///< "10%"; from 0, below 1
  /// "1024", "1024 samples", or "4194304 tokens" and "4M tokens", of which the source is told.
  std::int64_t batch(PlanSource& source);
  /// "64xH100": so many of a shipped cluster; none where there is none.
  std::optional<std::string> cluster_of_gpus();
  /// "4x12GB/s", innermost first.
  std::vector<PlanLevel> levels();

  void wrong(const std::string& option, const std::string& message);
  /// Wrong if it is given.
  void refuse(const std::string& option, const std::string& message);
  /// What the command as a whole lacks.
  void missing(const std::string& message);
  /// Throws InputError.
  void throw_if_wrong() const;

 private:
  std::optional<double> quantity(const std::string& option, const std::string& text,
                                 bool bandwidth);
  void add_diagnostic(const std::string& origin, const std::string& message);

  const Arguments& arguments_;
  std::vector<Diagnostic> wrong_;
};

}  // namespace penstock

// `penstock validate` on Sailor's measured configurations (validate/sailor.hpp).
#pragma once

#include "cli/run_rows.hpp"

namespace penstock {

/// A configuration as a scenario, with its model and whether the parameters have seen it.
struct SailorRow {
  RunRow run;
  std::string model, file;
  bool calibrated = false;
  std::vector<std::string> notes;  ///< of the profiles
};

/// Throws InputError.
std::vector<SailorRow> sailor_rows(const std::vector<std::string>& files,
                                   const Arguments& arguments);

/// One report per model. Throws InputError.
std::vector<MeasuredReport> sailor_reports(const std::vector<std::string>& files,
                                           const Arguments& arguments);

}  // namespace penstock

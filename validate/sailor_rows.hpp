// Sailor's measured configurations (validate/sailor.hpp) as rows of scenarios.
#pragma once

#include "validate/run_rows.hpp"

namespace penstock {

/// The configuration of a file, with the model and what there is to say of its profiles.
struct SailorRow {
  RunRow run;
  std::string model;
  std::vector<std::string> notes;
};
/// One of each file. Throws InputError.
std::vector<SailorRow> sailor_rows(const std::vector<std::string>& files,
                                   const RowOptions& options);

/// One report per model; `path` names what all are of. Throws InputError.
std::vector<MeasuredReport> sailor_reports(const std::vector<std::string>& files,
                                           const std::string& path, const RowOptions& options);

}  // namespace penstock

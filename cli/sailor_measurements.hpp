// `penstock validate` on Sailor's measured configurations (validate/sailor.hpp).
#pragma once

#include "cli/run_rows.hpp"

namespace penstock {

/// Of each of these files: its configuration as a scenario, with the model and what there is to say
/// of its profiles. Throws InputError.
struct SailorRow {
  RunRow run;
  std::string model;
  std::vector<std::string> notes;
};
std::vector<SailorRow> sailor_rows(const std::vector<std::string>& files,
                                   const Arguments& arguments);

/// One report per model. Throws InputError.
std::vector<MeasuredReport> sailor_reports(const std::vector<std::string>& files,
                                           const Arguments& arguments);

/// Does `--as` say that what is named is a table of training runs, in whichever of its forms?
bool given_as_runs(const Arguments& arguments);

/// All rows of a table, of a configuration, or of those in a folder and below it. Throws
/// InputError.
std::vector<RunRow> rows_in(const std::string& path, const Arguments& arguments);

}  // namespace penstock

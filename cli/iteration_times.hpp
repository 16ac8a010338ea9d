// `penstock validate` on a CSV table of iteration times (validate/training_runs.hpp).
#pragma once

#include "cli/options.hpp"
#include "validate/measured_rows.hpp"

namespace penstock {

/// Reads the table, fits what --fit asks for and predicts every row: a report for the runs of one
/// node and one for those of many, which have calibrations of their own. Throws InputError.
std::vector<MeasuredReport> iteration_times_reports(const std::string& path,
                                                    const Arguments& arguments);

}  // namespace penstock

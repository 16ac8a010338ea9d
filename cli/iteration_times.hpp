// `penstock validate` on a CSV table of iteration times (validate/iteration_times.hpp).
#pragma once

#include "cli/options.hpp"
#include "validate/measured_rows.hpp"

namespace penstock {

/// Reads the table, fits what --fit asks for and predicts every row. Throws InputError.
MeasuredReport iteration_times_report(const std::string& path, const Arguments& arguments);

}  // namespace penstock

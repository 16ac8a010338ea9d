// `penstock validate` on Sailor's measured configurations (validate/sailor.hpp).
#pragma once

#include "cli/options.hpp"
#include "validate/measured_rows.hpp"

namespace penstock {

/// Predicts the configurations of these files; one report per model. Throws InputError.
std::vector<MeasuredReport> sailor_reports(const std::vector<std::string>& files,
                                           const Arguments& arguments);

}  // namespace penstock

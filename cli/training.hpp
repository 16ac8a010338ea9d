// Scenarios trained for real, each with several seeds: what `penstock train` shows of them.
#pragma once

#include "cli/options.hpp"
#include "results/learning.hpp"

namespace penstock {

/// Trains all scenarios of the arguments with all their seeds (`--seeds`, `--updates`, `--jobs`,
/// `--checkpoint`, `--resume`). `status`: what penstock-run ended with; runs that it did not begin
/// are missing.
std::vector<LearnedScenario> train_all(const Arguments& arguments, int& status);

}  // namespace penstock

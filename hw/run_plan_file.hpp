// SPDX-License-Identifier: Apache-2.0
// A RunPlan as a file: JSON, so that a program can be carried to a machine that has neither the
// scenario reader nor the simulator, and be read by people. It has the compute order as tokens, the
// placement, the rules, shapes and costs; sends, reductions and steps are lowered from these where
// it is read (schedules/lowering.hpp), of all batches and replicas.
#pragma once

#include "hw/run_plan.hpp"

namespace penstock {

inline constexpr int kProgramFileVersion = 11;

/// The file's text: the same plan makes the same bytes.
std::string to_text(const RunPlan& plan);

/// Reads what to_text wrote. Throws InputError with what is wrong; `origin` names the file.
RunPlan parse_run_plan(const std::string& text, const std::string& origin);

/// Throws SystemError when it cannot be read.
RunPlan read_run_plan(const std::string& path);

}  // namespace penstock

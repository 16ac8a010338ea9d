// SPDX-License-Identifier: Apache-2.0
// `--on WHERE`: starts the package for Python, whose workers compute elsewhere.
#pragma once

#include "sweep/elsewhere.hpp"

#include <functional>

namespace penstock {

/// Replaces this program by Python that runs main() of a module of our package; `words` are the
/// module's name and its arguments. Throws SystemError when there is no Python.
[[noreturn]] void become_python(const std::vector<std::string>& words);

/// Calls `work` with the descriptors of the engine at `where`, which `work` closes. "pipes:IN,OUT"
/// names descriptors that this program was started with. Throws InputError where `where` is not
/// valid, SystemError, and what `work` throws.
void work_on(const std::string& where, const std::function<void(int in, int out)>& work);

/// Visits all points as visit_elsewhere does, by the engine at `where`.
void visit_on(const std::string& where, const SweepRecipe& recipe, const NextPoint& next,
              const TakeRow& take, const WorkerOptions& options);

}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
// `--on WHERE`: starts who works elsewhere, the package for Python.
#pragma once

#include "sweep/elsewhere.hpp"

#include <functional>

namespace penstock {

/// Python in place of this program: main() of a module of our package, `words` are its name and
/// arguments. Throws SystemError when there is no Python.
[[noreturn]] void become_python(const std::vector<std::string>& words);

/// Calls `work` with the descriptors of the engine at `where`, which `work` closes; "pipes:IN,OUT":
/// of who has started this program and handed them over. Throws InputError for a place that is
/// none, SystemError, and what `work` throws.
void work_on(const std::string& where, const std::function<void(int in, int out)>& work);

/// As visit_elsewhere, by the engine at `where`.
void visit_on(const std::string& where, const SweepRecipe& recipe, const NextPoint& next,
              const TakeRow& take, const WorkerOptions& options);

}  // namespace penstock

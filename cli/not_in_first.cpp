// SPDX-License-Identifier: Apache-2.0
// The commands that penstock-first, which ./penstock builds for the first table, does without.
#include "base/exit_codes.hpp"
#include "base/say.hpp"
#include "cli/options.hpp"

namespace penstock {
namespace {

int missing() {
  say("penstock-first is built for the first table; ./penstock builds the rest of penstock\n");
  return exit_failed;
}

}  // namespace

int run_calibrate(const Arguments&) { return missing(); }
int run_compare(const Arguments&) { return missing(); }
int run_merge(const Arguments&) { return missing(); }
int run_plan(const Arguments&) { return missing(); }
std::vector<Diagnostic> wrong_plan_options(const Arguments&) { return {}; }
int run_serve(const Arguments&) { return missing(); }
int run_sweep(const Arguments&) { return missing(); }
int run_train(const Arguments&) { return missing(); }
int run_validate(const Arguments&) { return missing(); }

}  // namespace penstock

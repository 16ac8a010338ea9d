// SPDX-License-Identifier: Apache-2.0
// ZB-V's heuristic (Qi et al., "Zero Bubble Pipeline Parallelism", arXiv 2401.10241, and its
// public scheduler): forwards fill the V as far as they fit; then every device does one backward
// and one forward per round, with W's in the gaps. A gap too short for a W is left open only by
// devices that have stood idle less than another one has; the rounds are repeated with what each
// device stood idle as its allowance while that helps.
#pragma once

#include "schedules/search/problem.hpp"

namespace penstock {

/// The order with the least stage time that rounds make; not found() where they do not fit the
/// limits. Precondition: the V placement.
Order round_order(const OrderProblem& problem);

}  // namespace penstock

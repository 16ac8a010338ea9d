// SPDX-License-Identifier: Apache-2.0
// How flows share links: max-min fairness, in closed form where nothing else uses the links.
#pragma once

#include "models/cluster.hpp"
#include "program/transfer.hpp"

namespace penstock {

/// Seconds until the last of these flows has ended when all start together and share every link
/// max-min fairly (progressive filling: Bertsekas and Gallager, Data Networks, 2nd ed., 6.5.2).
double shared_flows_s(const std::vector<LinkFlow>& flows, const std::vector<NetworkLink>& links);

}  // namespace penstock

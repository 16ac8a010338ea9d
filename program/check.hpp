// SPDX-License-Identifier: Apache-2.0
// Proves, before anything runs, that a Program can run and means what its schedule promises:
// every op exactly once and where its stage lives, producers before consumers on one device, each
// weight version made before it is used and still held, and no deadlock under its transfers.
#pragma once

#include "program/dependencies.hpp"
#include "program/program.hpp"

namespace penstock {

/// What is wrong, one sentence each (at most 20), naming the ops and devices; empty when nothing
/// is.
std::vector<std::string> check(const Program& program, const DependencyTable& table);

/// The same but for deadlock, and deadlock alone (precondition: nothing else is wrong): it takes as
/// long as an engine's own walk, which proves as much.
std::vector<std::string> check_order(const Program& program, const DependencyTable& table);
std::vector<std::string> check_deadlock(const Program& program, const DependencyTable& table);

}  // namespace penstock

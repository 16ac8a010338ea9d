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

}  // namespace penstock

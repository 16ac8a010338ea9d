// SPDX-License-Identifier: Apache-2.0
// Where penstock's modules lie: libraries that are opened only when they are needed, because what
// they link is slow to load (SimGrid) or not on every machine (CUDA).
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace penstock {

/// Where this program lies, around which modules and shipped files are found.
std::filesystem::path program_path();
/// In a process of another program (Python's) that of ours. To be called before anything is looked
/// for.
void set_program_path(std::filesystem::path path);

/// The existing files named `module`, best first: in $PENSTOCK_MODULES, beside the program, in
/// `room` of the build tree around it ("sim/simgrid"), in an installation's lib/penstock.
std::vector<std::filesystem::path> module_paths(const std::string& module, const std::string& room);

/// Returns the Python that runs what is written in it: $PENSTOCK_PYTHON, else the system's, else
/// the one in PATH.
std::string python_program();

}  // namespace penstock

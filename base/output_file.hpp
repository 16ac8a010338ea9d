// Files that are to be written.
#pragma once

#include <string>
#include <vector>

namespace penstock {

/// Throws InputError, naming the option, where the file that it names is one of those that are
/// read.
void require_no_input(const std::string& option, const std::string& output,
                      const std::vector<std::string>& inputs);

}  // namespace penstock

#include "base/output_file.hpp"

#include "base/error.hpp"

#include <filesystem>

namespace penstock {

void require_no_input(const std::string& option, const std::string& output,
                      const std::vector<std::string>& inputs) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(output, ignored)) return;
  for (const std::string& input : inputs)
    if (std::filesystem::equivalent(output, input, ignored))
      throw InputError(option, "'" + output + "' is read, too; name another file to write to");
}

}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
// penstock completion bash | zsh | fish
#include "cli/completion.hpp"

#include "base/error.hpp"
#include "base/exit_codes.hpp"
#include "base/suggest.hpp"
#include "cli/options.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace penstock {

int run_completion(const Arguments& arguments) {
  const std::vector<std::string> shells{"bash", "zsh", "fish"};
  const std::string& name = arguments.positional[0];
  if (std::ranges::find(shells, name) == shells.end())
    throw InputError("penstock completion",
                     fmt::format("only bash, zsh and fish are known, got '{}'{}", name,
                                 did_you_mean(name, shells)));
  fmt::print("{}", completion_script(name));
  return exit_ok;
}

}  // namespace penstock

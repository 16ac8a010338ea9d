// SPDX-License-Identifier: Apache-2.0
// penstock completion bash | zsh | fish
#include "base/error.hpp"
#include "base/exit_codes.hpp"
#include "base/suggest.hpp"
#include "cli/completion.hpp"

#include <fmt/format.h>

#include <map>

namespace penstock {

int run_completion(const Arguments& arguments) {
  const std::map<std::string, std::string (*)()> shells{
      {"bash", bash_completion}, {"zsh", zsh_completion}, {"fish", fish_completion}};
  const std::string& name = arguments.positional[0];
  const auto shell = shells.find(name);
  if (shell == shells.end()) {
    throw InputError("penstock completion",
                     fmt::format("only bash, zsh and fish are known, got '{}'{}", name,
                                 did_you_mean(name, {"bash", "zsh", "fish"})));
  }
  fmt::print("{}", shell->second());
  return exit_ok;
}

}  // namespace penstock

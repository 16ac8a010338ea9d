// SPDX-License-Identifier: Apache-2.0
// penstock help [COMMAND]
#include "base/error.hpp"
#include "base/exit_codes.hpp"
#include "base/say.hpp"
#include "cli/man_page.hpp"
#include "cli/options.hpp"

#include <fmt/format.h>

namespace penstock {
namespace {

std::string help_of(const std::vector<std::string>& words) {
  if (words.empty()) return general_help();
  if (words.size() == 1 && !subcommands(words[0]).empty()) return group_help(words[0]);
  std::size_t used = 0;
  const CommandSpec& command = find_command(words, used);
  if (used < words.size())
    throw InputError("penstock help", fmt::format("unexpected argument '{}'; `penstock help {}`",
                                                  words[used], command.name));
  return help_text(command);
}

}  // namespace

int run_help(const Arguments& arguments) {
  const bool man = arguments.flag("man");
  if (man && !arguments.positional.empty())
    throw InputError("--man",
                     "is one page of all commands; leave out '" + arguments.positional[0] + "'");
  if (man)
    fmt::print("{}", man_page());
  else
    print_text(help_of(arguments.positional));
  return exit_ok;
}

}  // namespace penstock

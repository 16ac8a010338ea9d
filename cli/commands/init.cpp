// SPDX-License-Identifier: Apache-2.0
// penstock init: a commented scenario to start from.
#include "base/error.hpp"
#include "base/exit_codes.hpp"
#include "base/say.hpp"
#include "cli/options.hpp"
#include "scenarios/keys.hpp"
#include "scenarios/shipped_text.hpp"
#include "traces/byte_sink.hpp"

#include <fmt/format.h>

#include <filesystem>

namespace penstock {

int run_init(const Arguments& arguments) {
  const std::string text = arguments.flag("schema") ? json_schema()
                           : arguments.flag("keys") ? keys_reference()
                                                    : shipped_text("cli/shipped/scenario.yaml", {});
  const std::string path = arguments.positional.empty() ? "-" : arguments.positional[0];
  if (path != "-" && std::filesystem::exists(path))
    throw InputError(path, "exists already; choose another name");
  write_file(path, text);
  if (path != "-") say("wrote {0}; try: penstock simulate {0}\n", path);
  return exit_ok;
}

}  // namespace penstock

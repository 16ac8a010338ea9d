// SPDX-License-Identifier: Apache-2.0
// penstock serve: the playground with the full engine behind it, by the package for Python.
#include "base/error.hpp"
#include "base/numbers.hpp"
#include "cli/options.hpp"
#include "sweep/python_workers.hpp"

#include <fmt/format.h>

namespace penstock {

int run_serve(const Arguments& arguments) {
  constexpr int kMostPorts = 65535;
  const std::string port = arguments.value("port", "0");
  const auto number = parse_number<int>(port);
  if (!number || *number < 0 || *number > kMostPorts)
    throw InputError("--port", fmt::format("must be 0 to {}, got '{}'", kMostPorts, port));
  become_python({"penstock.serve", "--port", port});
}

}  // namespace penstock

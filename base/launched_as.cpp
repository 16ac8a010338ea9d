// SPDX-License-Identifier: Apache-2.0
#include "base/launched_as.hpp"

#include "base/error.hpp"
#include "base/numbers.hpp"

#include <fmt/format.h>

#include <cstdlib>

namespace penstock {
namespace {

struct Launcher {
  const char* rank;
  const char* size;
};
constexpr Launcher kLaunchers[] = {{"RANK", "WORLD_SIZE"},
                                   {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                   {"SLURM_PROCID", "SLURM_NTASKS"},
                                   {"PMI_RANK", "PMI_SIZE"}};
constexpr int kMostProcesses = 1 << 20;

}  // namespace

std::optional<std::string> environment(const std::string& name) {
  const char* const value = std::getenv(name.c_str());
  return value == nullptr || *value == '\0' ? std::nullopt : std::optional<std::string>(value);
}

int integer_variable(const std::string& name, const std::string& text, int least, int most) {
  const auto value = parse_number<int>(text);
  if (!value || *value < least || *value > most)
    throw InputError(name,
                     fmt::format("must be an integer from {} to {}, got '{}'", least, most, text));
  return *value;
}

std::optional<LaunchedAs> launched_as(const Environment& get) {
  for (const Launcher& launcher : kLaunchers) {
    const auto rank = get(launcher.rank);
    const auto size = get(launcher.size);
    if (!rank && !size) continue;
    if (!rank || !size)
      throw InputError(rank ? launcher.size : launcher.rank,
                       fmt::format("is not set, but {} is", rank ? launcher.rank : launcher.size));
    LaunchedAs one;
    one.size = integer_variable(launcher.size, *size, 1, kMostProcesses);
    one.rank = integer_variable(launcher.rank, *rank, 0, one.size - 1);
    one.rank_variable = launcher.rank;
    return one;
  }
  return std::nullopt;
}

}  // namespace penstock

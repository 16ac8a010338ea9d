#include "cli/output.hpp"

#include <fmt/format.h>

namespace penstock {

std::string counted(std::int64_t count, std::string_view what) {
  const char* ending = count == 1 ? "" : what.ends_with("ch") ? "es" : "s";
  return fmt::format("{} {}{}", count, what, ending);
}

}  // namespace penstock

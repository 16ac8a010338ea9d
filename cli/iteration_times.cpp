#include "cli/iteration_times.hpp"

#include "base/error.hpp"

namespace penstock {

MeasuredReport iteration_times_report(const std::string& path, const Arguments&) {
  throw InputError(path, "tables of iteration times cannot be predicted yet");
}

}  // namespace penstock

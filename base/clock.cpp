// SPDX-License-Identifier: Apache-2.0
#include "base/clock.hpp"

#include <sys/resource.h>

#include <chrono>
#include <ctime>

namespace penstock {

double process_cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  rusage children{};
  getrusage(RUSAGE_CHILDREN, &children);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec) +
         seconds(children.ru_utime) + seconds(children.ru_stime);
}

double steady_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
// NVIDIA's management library for the emulated GPU: a clock that goes up and down, and a power cap
// now and then.
#include <atomic>
#include <cstdio>

namespace {

std::atomic<unsigned> asked{0};

}  // namespace

extern "C" int nvmlInit_v2() { return 0; }
extern "C" int nvmlShutdown() { return 0; }
extern "C" int nvmlDeviceGetHandleByPciBusId_v2(const char*, void** device) {
  *device = &asked;
  return 0;
}
extern "C" int nvmlSystemGetDriverVersion(char* text, unsigned length) {
  return std::snprintf(text, length, "emulated") > 0 ? 0 : 1;
}
extern "C" int nvmlDeviceGetClockInfo(void*, int clock, unsigned* mhz) {
  *mhz = clock == 1 ? 1500 + 100 * (asked++ % 5) : 2600;
  return 0;
}
extern "C" int nvmlDeviceGetMaxClockInfo(void*, int, unsigned* mhz) {
  *mhz = 1980;
  return 0;
}
extern "C" int nvmlDeviceGetEnforcedPowerLimit(void*, unsigned* mw) {
  *mw = 700000;
  return 0;
}
extern "C" int nvmlDeviceGetPowerUsage(void*, unsigned* mw) {
  *mw = 420000;
  return 0;
}
extern "C" int nvmlDeviceGetTemperature(void*, int, unsigned* celsius) {
  *celsius = 50;
  return 0;
}
extern "C" int nvmlDeviceGetCurrentClocksThrottleReasons(void*, unsigned long long* reasons) {
  *reasons = asked % 2 == 0 ? 0 : 4;
  return 0;
}

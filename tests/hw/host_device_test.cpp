// SPDX-License-Identifier: Apache-2.0
// The host's device when a run is stopped in the middle of its work.
#include "hw/host/device.hpp"

#include "base/error.hpp"

#include <gtest/gtest.h>

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <thread>

namespace penstock::host_device_test {
namespace {

constexpr std::int64_t kBytes = std::int64_t{512} << 20;  // takes longer than a wait looks away

void* page_of(char* byte) {
  const auto at = reinterpret_cast<std::uintptr_t>(byte);
  return reinterpret_cast<void*>(at - at % 4096);
}

/// Has anything been written to the page that holds this byte?
bool is_touched(char* byte) {
  unsigned char resident = 0;
  ::mincore(page_of(byte), 1, &resident);
  return (resident & 1) != 0;
}

/// Of memory that was used before. What is on its first and last page stays.
void forget_pages(char* first, std::int64_t bytes) {
  char* const from = static_cast<char*>(page_of(first)) + 4096;
  const auto whole = static_cast<char*>(page_of(first + bytes)) - from;
  EXPECT_EQ(::madvise(from, static_cast<std::size_t>(whole), MADV_DONTNEED), 0);
}

TEST(HostDevice, AnUploadThatIsStoppedHasEndedBeforeItsCallerGoesOn) {
  const std::unique_ptr<char, void (*)(void*)> from(
      static_cast<char*>(std::calloc(1, static_cast<std::size_t>(kBytes))), std::free);
  from.get()[kBytes - 1] = 1;
  RunControl control(0);
  const HostClock clock(false);
  HostDevice device(0, control, clock);
  Block* to = device.allocate(kComputeQueue, kBytes);
  device.finish();
  auto* const copied = static_cast<char*>(to->data);
  forget_pages(copied, kBytes);
  std::thread stopper([&] {
    while (!is_touched(copied + (kBytes >> 6))) std::this_thread::yield();
    control.fail("stopped in the middle of a copy");
  });
  EXPECT_THROW(device.upload({to}, from.get(), kBytes), SystemError);
  EXPECT_EQ(copied[kBytes - 1], 1);
  stopper.join();
}

TEST(HostDevice, KernelsOfAStoppedRunAreNotComputedWithoutThreads) {
  RunControl control(0);
  const HostClock clock(false);
  HostDevice device(0, control, clock, false);
  Block* block = device.allocate(kComputeQueue, 4);
  device.math().zero(4, {block});
  *static_cast<float*>(block->data) = 1;
  control.fail("stopped between two kernels");
  EXPECT_THROW(device.math().zero(4, {block}), SystemError);
  EXPECT_EQ(*static_cast<float*>(block->data), 1);
}

}  // namespace
}  // namespace penstock::host_device_test

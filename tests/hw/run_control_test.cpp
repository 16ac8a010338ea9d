// SPDX-License-Identifier: Apache-2.0
#include "hw/run_control.hpp"

#include "base/error.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <thread>

namespace penstock::run_control_test {
namespace {

TEST(RunControl, FirstFailureOfManyThreadsIsTheReason) {
  RunControl control(0);
  std::atomic<int> woken{0};
  control.on_stop([&] { ++woken; });
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([&control, i] { control.fail("thread " + std::to_string(i)); });
  for (auto& t : threads) t.join();
  const std::string reason = control.reason();
  control.fail("late");
  EXPECT_EQ(control.reason(), reason);
  EXPECT_TRUE(reason.starts_with("thread "));
  EXPECT_EQ(woken, 1);
}

TEST(RunControl, NothingIsThrownBeforeAFailureAndTheReasonAfterIt) {
  RunControl control(0);
  EXPECT_FALSE(control.stopped());
  EXPECT_NO_THROW(control.throw_if_stopped());
  control.fail("device 2 has no memory left");
  EXPECT_TRUE(control.stopped());
  try {
    control.throw_if_stopped();
    FAIL() << "did not throw";
  } catch (const SystemError& e) {
    EXPECT_STREQ(e.what(), "device 2 has no memory left");
  }
}

TEST(RunControl, AWakerThatComesLateIsCalledAtOnce) {
  RunControl control(0);
  control.fail("over");
  int woken = 0;
  control.on_stop([&] { ++woken; });
  EXPECT_EQ(woken, 1);
}

TEST(RunControl, AWakerMayAskForTheReasonAndFailAgain) {
  RunControl control(0);
  std::string seen;
  control.on_stop([&] {
    seen = control.reason();
    control.fail("again");
  });
  control.fail("once");
  EXPECT_EQ(seen, "once");
  EXPECT_EQ(control.reason(), "once");
}

TEST(RunControl, AStallEndsTheRunAndTheReportHasOneLinePerDevice) {
  RunControl control(0.05);
  std::promise<void> stopped;
  control.on_stall([] { return std::string("device 0 stands before 0B3"); });
  control.on_stall([] { return std::string(); });
  control.on_stall([] { return std::string("device 1 stands before 1F4"); });
  control.on_stop([&] { stopped.set_value(); });
  stopped.get_future().wait();
  EXPECT_EQ(control.reason(),
            "nothing moved for 0.05 s\n  device 0 stands before 0B3\n  device 1 stands before 1F4");
}

TEST(RunControl, ProgressPutsTheDeadlineOff) {
  using Clock = std::chrono::steady_clock;
  RunControl control(0.4);
  // Far longer than the deadline, in steps far shorter.
  for (const auto end = Clock::now() + std::chrono::seconds(1); Clock::now() < end;) {
    control.progress();
    std::this_thread::yield();
  }
  EXPECT_FALSE(control.stopped()) << control.reason();
}

TEST(RunControl, EndsWithoutWaitingForItsDeadline) {
  // A day; the test would time out.
  EXPECT_NO_THROW(RunControl(86400));
}

}  // namespace
}  // namespace penstock::run_control_test

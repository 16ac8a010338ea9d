// SPDX-License-Identifier: Apache-2.0
// The two ends of a channel on a virtual clock: when a message leaves and arrives under each
// transfer semantics. And matrix products of several threads at once.
#include "hw/host/links.hpp"

#include "base/error.hpp"
#include "hw/host/memory_wire.hpp"
#include "tests/hw/stage_rig.hpp"

#include <gtest/gtest.h>

#include <thread>

namespace penstock::links_test {
namespace {

constexpr double kLatency = 0.5, kBandwidth = 100;

/// A channel from device 0 to device 1 whose messages take 2 s on the link and 0.5 s beyond.
class Link : public testing::TestWithParam<Transfers> {
 protected:
  Link() {
    plan_.program.transfers = GetParam();
    plan_.costs.resize(2);
    plan_.costs[0].output_bytes = 200;
    const bool coupled = GetParam() == Transfers::coupled;
    MemoryWire wire = memory_wire({"device 0 -> device 1 (forward)", 2, coupled}, control_);
    const LinkSettings settings{&plan_, kLatency, kBandwidth};
    sending_ = std::make_unique<HostSendingEnd>(source_, std::move(wire.sender), settings);
    receiving_ =
        std::make_unique<HostReceivingEnd>(destination_, std::move(wire.receiver), settings);
  }
  // As the backend does: threads first.
  ~Link() override {
    control_.fail("the test is over");
    source_.close();
    destination_.close();
  }

  struct Times {
    double departed, delivered, arrived;
    bool operator==(const Times&) const = default;
  };

  /// An event of the source's (destination's) compute queue at this time.
  static Event at(HostDevice& device, double time_s) {
    device.pace(kComputeQueue, device.record(kComputeQueue), 0, 1);
    device.queue(kComputeQueue).push([&device, time_s] {
      device.queue(kComputeQueue).time_s = time_s;
    });
    return device.record(kComputeQueue);
  }

  /// Issues both ends of one message.
  struct Message {
    SendingEnd::Sent sent;
    ReceivingEnd::Received received;
    Times times() {
      return {sent.departed->time_s(), sent.delivered->time_s(), received.arrived->time_s()};
    }
  };
  Message message(std::uint32_t microbatch, double ready_s, double posted_s = 0) {
    const Op op{.microbatch = microbatch, .stage = 0, .kind = OpKind::forward};
    Block* from = source_.allocate(kComputeQueue, 64);
    Block* to = destination_.allocate(receiving_->queue(), 64);
    const auto sent = sending_->send(at(source_, ready_s), from, 64, op);
    return {sent, receiving_->receive(at(destination_, posted_s), to, 64, op)};
  }

  RunPlan plan_;
  RunControl control_{30};
  HostClock clock_{true};
  HostDevice source_{0, control_, clock_}, destination_{1, control_, clock_};
  std::unique_ptr<HostSendingEnd> sending_;
  std::unique_ptr<HostReceivingEnd> receiving_;
};

using Overlapped = Link;
TEST_P(Overlapped, MessagesFollowOneAnotherOnTheLinkAndTheirLatencyOverlaps) {
  Message first = message(0, 1), second = message(1, 1), third = message(2, 10);
  EXPECT_EQ(first.times(), (Times{1, 3.5, 3.5}));
  EXPECT_EQ(second.times(), (Times{3, 5.5, 5.5}));
  EXPECT_EQ(third.times(), (Times{10, 12.5, 12.5}));
}
INSTANTIATE_TEST_SUITE_P(Host, Overlapped,
                         testing::Values(Transfers::overlapped, Transfers::blocking));

using Free = Link;
TEST_P(Free, MessagesTakeNoTimeAndDoNotWait) {
  Message first = message(0, 1), second = message(1, 1);
  EXPECT_EQ(first.times(), (Times{1, 1, 1}));
  EXPECT_EQ(second.times(), (Times{1, 1, 1}));
}
INSTANTIATE_TEST_SUITE_P(Host, Free, testing::Values(Transfers::free));

using Coupled = Link;
TEST_P(Coupled, MessagesLeaveWhenBothEndsAreThere) {
  Message early = message(0, 1, 4), late = message(1, 20, 5);
  EXPECT_EQ(early.times(), (Times{4, 6.5, 6.5}));
  EXPECT_EQ(late.times(), (Times{20, 22.5, 22.5}));
}
INSTANTIATE_TEST_SUITE_P(Host, Coupled, testing::Values(Transfers::coupled));

using Order = Link;
TEST_P(Order, OfMessagesIsCheckedAgainstTheOpTheyAreOf) {
  const Op expected{.microbatch = 7, .stage = 0, .kind = OpKind::forward};
  const Op other{.microbatch = 8, .stage = 0, .kind = OpKind::forward};
  Block* from = source_.allocate(kComputeQueue, 64);
  Block* to = destination_.allocate(receiving_->queue(), 64);
  sending_->send(at(source_, 0), from, 64, other);
  const auto received = receiving_->receive(nullptr, to, 64, expected);
  EXPECT_THROW(received.arrived->time_s(), SystemError);
  EXPECT_NE(control_.reason().find("expected 0F7"), std::string::npos) << control_.reason();
}
INSTANTIATE_TEST_SUITE_P(Host, Order, testing::Values(Transfers::overlapped));

// --- products of several threads -----------------------------------------------------------------

/// Products of many shapes, one after the other, as one list of numbers.
std::vector<float> products(std::uint64_t seed) {
  HostMath math = immediate_math();
  std::vector<float> all;
  for (std::int64_t m = 1; m <= 160; m = m * 3 / 2 + 1) {
    for (const std::int64_t n : {1, 7, 32, 129}) {
      for (const std::int64_t k : {3, 64, 200}) {
        const Memory a(random_values(m * k, seed)), b(random_values(k * n, seed + 1));
        Memory c(std::vector<float>(static_cast<std::size_t>(m * n)));
        Gemm g;
        g.m = m, g.n = n, g.k = k;
        g.lda = k, g.ldb = n, g.ldc = n;
        math.gemm(g, a.tensor(), b.tensor(), c.tensor());
        const std::vector<float> product = c.values();
        all.insert(all.end(), product.begin(), product.end());
      }
    }
  }
  return all;
}

TEST(ConcurrentProducts, OfFourThreadsEqualThoseOfOneBitForBit) {
  constexpr int kThreads = 4;
  std::vector<std::vector<float>> alone, together(kThreads);
  for (int t = 0; t < kThreads; ++t) alone.push_back(products(static_cast<std::uint64_t>(t)));
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] { together[t] = products(t); });
  for (std::thread& thread : threads) thread.join();
  for (std::size_t t = 0; t < kThreads; ++t) EXPECT_TRUE(together[t] == alone[t]) << t;
}

TEST(ConcurrentProducts, OfAnOpenBlasWithoutThreadsAreRefusedByName) {
  constexpr int kSequential = 0, kThreads = 1, kOpenMp = 2;
  EXPECT_NO_THROW(require_concurrent_blas(kThreads));
  EXPECT_NO_THROW(require_concurrent_blas(kOpenMp));
  EXPECT_NO_THROW(require_concurrent_blas(host_blas_parallel()));
  try {
    require_concurrent_blas(kSequential);
    FAIL() << "was accepted";
  } catch (const SystemError& error) {
    EXPECT_NE(std::string(error.what()).find("libopenblas-pthread-dev"), std::string::npos);
  }
}

}  // namespace
}  // namespace penstock::links_test

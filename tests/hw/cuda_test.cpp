// SPDX-License-Identifier: Apache-2.0
// What the CUDA backend decides without a GPU, the line it says where there is none, and, where
// there is one, its links and clocks.
#include "base/error.hpp"
#include "hw/cuda/base_chain.hpp"
#include "hw/cuda/layout.hpp"
#include "hw/cuda/mailbox.hpp"
#include "tests/hw/cuda_rig.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <thread>

namespace penstock::cuda_test {
namespace {

using namespace cuda;

// --- partitions, GPUs, streams

TEST(CudaLayout, An132SmGpuSplitsAsThePartitionTableSays) {
  EXPECT_EQ(partition_sms(132, 2, 8, 8), 64);
  EXPECT_EQ(partition_sms(132, 4, 8, 8), 32);
  EXPECT_EQ(partition_sms(132, 8, 8, 8), 16);
  EXPECT_EQ(partition_sms(132, 16, 8, 8), 8);
  EXPECT_EQ(partition_sms(132, 17, 8, 8), 0);
  EXPECT_EQ(partition_sms(108, 4, 4, 2), 26);  // compute capability 8.0
  EXPECT_EQ(partition_sms(108, 27, 4, 2), 4);
  EXPECT_EQ(partition_sms(108, 28, 4, 2), 0);
}

TEST(CudaLayout, DevicesOfOneProcessShareOneGpuAndSpreadOverSeveral) {
  const std::vector<GpuPlace> partitions{{0, 0}, {0, 1}, {0, 2}, {0, 3}};
  EXPECT_EQ(place_devices(4, 1, 0, 1, 0), partitions);
  const std::vector<GpuPlace> gpus{{0, 0}, {1, 0}, {2, 0}, {3, 0}};
  EXPECT_EQ(place_devices(4, 8, 0, 1, 0), gpus);
  const std::vector<GpuPlace> both{{0, 0}, {0, 1}, {0, 2}, {1, 0}, {1, 1}};
  EXPECT_EQ(place_devices(5, 2, 0, 1, 0), both);
  EXPECT_TRUE(place_devices(0, 1, 0, 1, 0).empty());
}

TEST(CudaLayout, AProcessAmongSeveralUsesTheGpuOfItsLocalRank) {
  const std::vector<GpuPlace> third{{2, 0}, {2, 1}};
  EXPECT_EQ(place_devices(2, 8, 0, 4, 2), third);
  EXPECT_EQ(place_devices(2, 2, 0, 4, 2)[0].gpu, 0);
}

TEST(CudaLayout, PartitionsThatAreAskedForAreKeptAndMustHoldTheDevices) {
  const std::vector<GpuPlace> one{{0, 0}};
  EXPECT_EQ(place_devices(1, 1, 4, 1, 0), one);
  try {
    place_devices(4, 1, 2, 1, 0);
    FAIL() << "did not throw";
  } catch (const InputError& e) {
    EXPECT_NE(std::string(e.what()).find("1 GPU(s) of 2 partition(s) hold 2 devices"),
              std::string::npos)
        << e.what();
  }
}

TEST(CudaLayout, StreamsAreSharedOnlyWhereThereAreMoreThanHardwareQueues) {
  const auto pipeline = [](int p) {  // the first and the last stage have one neighbour
    std::vector<int> ends(static_cast<std::size_t>(p), 2);
    ends.front() = ends.back() = 1;
    return ends;
  };
  EXPECT_EQ(share_streams(pipeline(4), pipeline(4)), StreamSharing::none);     // 16
  EXPECT_EQ(share_streams(pipeline(8), pipeline(8)), StreamSharing::sending);  // 36 or 30
  EXPECT_EQ(share_streams(std::vector<int>(8, 4), std::vector<int>(8, 4)), StreamSharing::all);
}

TEST(CudaLayout, ChannelsMeetInFewRoundsWithEachProcessInOneAtATime) {
  for (const int processes : {2, 3, 8, 300}) {
    std::vector<std::pair<int, int>> channels;  // a pipeline there and back, and a ring
    for (int p = 0; p + 1 < processes; ++p) {
      channels.emplace_back(p, p + 1);
      channels.emplace_back(p + 1, p);
    }
    for (int p = 0; p < processes; ++p) channels.emplace_back(p, (p + 1) % processes);
    const std::vector<int> rounds = splitting_rounds(channels);
    ASSERT_EQ(rounds.size(), channels.size());
    std::set<std::pair<int, int>> busy;  // round, process
    for (std::size_t i = 0; i < rounds.size(); ++i) {
      EXPECT_TRUE(busy.insert({rounds[i], channels[i].first}).second);
      EXPECT_TRUE(busy.insert({rounds[i], channels[i].second}).second);
    }
    EXPECT_LE(*std::ranges::max_element(rounds), 10);  // a process has 6 channels at most
  }
  EXPECT_TRUE(splitting_rounds({}).empty());
}

TEST(CudaLayout, AlignmentIsTheLargestPowerOfTwoOfTheOffset) {
  EXPECT_EQ(alignment_of(0), 256);
  EXPECT_EQ(alignment_of(512), 256);
  EXPECT_EQ(alignment_of(96), 32);
  EXPECT_EQ(alignment_of(6), 2);
}

// --- the clock's base

struct FakeEvent {
  bool has_fired = false;
  bool fired() const { return has_fired; }
};
using FakePtr = std::shared_ptr<FakeEvent>;

TEST(BaseChain, AnEventBecomesTheBaseASecondLaterAndOnlyOnceItHasFired) {
  BaseChain<FakePtr> chain(1);
  const auto root = std::make_shared<FakeEvent>(FakeEvent{true});
  const auto early = std::make_shared<FakeEvent>();
  const auto late = std::make_shared<FakeEvent>();
  chain.restart(root, 10);
  chain.recorded(early, 10.5);
  chain.recorded(late, 11);
  EXPECT_EQ(chain.base(12), root);
  early->has_fired = true;
  EXPECT_EQ(chain.base(12.5), root);
  late->has_fired = true;
  EXPECT_EQ(chain.base(13), late);
  const auto next = std::make_shared<FakeEvent>(FakeEvent{true});
  chain.recorded(next, 13.9);  // the last base was adopted at 13
  EXPECT_EQ(chain.base(14), late);
  chain.recorded(next, 14);
  EXPECT_EQ(chain.base(14), next);
}

TEST(BaseChain, ARestartForgetsTheEventThatWouldHaveBeenNext) {
  BaseChain<FakePtr> chain(1);
  const auto root = std::make_shared<FakeEvent>(FakeEvent{true});
  chain.restart(root, 0);
  chain.recorded(std::make_shared<FakeEvent>(FakeEvent{true}), 5);
  chain.restart(root, 6);
  EXPECT_EQ(chain.base(6.5), root);
}

// --- between host threads

TEST(RingTickets, NoSlotIsFilledBeforeItWasDrainedNorDrainedBeforeItWasFilled) {
  RunControl control(0);
  constexpr std::uint64_t kSlots = 3;
  constexpr std::uint64_t kPieces = 1000;
  RingTickets tickets(control, kSlots);
  std::vector<std::uint64_t> ring(kSlots, 0);
  std::uint64_t wrong = 0;
  std::thread drainer([&] {
    for (std::uint64_t n = 0; n < kPieces; ++n) {
      tickets.wait_to_drain(n);
      wrong += ring[tickets.slot(n)] != n + 1;
      tickets.drain();
    }
  });
  for (std::uint64_t n = 0; n < kPieces; ++n) {
    tickets.wait_to_fill(n);
    ring[tickets.slot(n)] = n + 1;
    EXPECT_EQ(tickets.reuses(n), n >= kSlots);
    tickets.fill();
  }
  drainer.join();
  EXPECT_EQ(wrong, 0U);
}

TEST(RingTickets, AWaitEndsWithTheReasonWhenTheRunStops) {
  RunControl control(0);
  RingTickets tickets(control, 1);
  tickets.wait_to_fill(0);
  tickets.fill();
  std::thread stopper([&] { control.fail("enough"); });
  EXPECT_THROW(tickets.wait_to_fill(1), SystemError);
  stopper.join();
}

TEST(CudaMailbox, ItemsComeInOrderAndAWaitEndsWhenTheRunStops) {
  RunControl control(0);
  Mailbox<int> box(control);
  std::thread sender([&] {
    for (int i = 0; i < 100; ++i) box.put(i);
  });
  for (int i = 0; i < 100; ++i) EXPECT_EQ(box.take_message(), i);
  sender.join();
  control.fail("enough");
  EXPECT_THROW(box.take_message(), SystemError);
}

// --- the module and its links

TEST(CudaModule, WhereThereIsNoHardwareOneLineSaysWhy) {
  if (!module_built()) GTEST_SKIP() << probe_cuda();
  if (gpu_there()) GTEST_SKIP() << "there is a GPU: " << probe_cuda();
  const RunPlan plan = two_devices();
  const RunSettings settings;
  RunControl control(0);
  SingleProcess alone;
  try {
    open_cuda_backend({plan, settings, control, alone, {0, 1}});
    FAIL() << "did not throw";
  } catch (const NoHardware& e) {
    const std::string line = e.what();
    EXPECT_EQ(line, probe_cuda());
    EXPECT_EQ(line.find('\n'), std::string::npos) << line;
    EXPECT_NE(line.find("use --backend host"), std::string::npos) << line;
  }
}

/// By how much times of two GPUs may be apart, as the backend says: each is aligned to within its
/// uncertainty. None where both devices are one GPU.
double apart_s(const Backend& backend) {
  const Description description = backend.describe();
  const auto said = description.find("clock uncertainty");
  return said == description.end() ? 0 : 2e-6 * std::stod(said->second);
}

/// Sends `sizes` messages from device 0 to 1 and checks what comes and when.
void exchange(Opened& run, const std::vector<std::size_t>& sizes) {
  Device& from = run.backend->device(0);
  Device& to = run.backend->device(1);
  SendingEnd& sending = run.backend->sending(0);
  ReceivingEnd& receiving = run.backend->receiving(0);
  const double apart = apart_s(*run.backend);
  double last_departure_s = 0;
  for (std::uint32_t k = 0; k < sizes.size(); ++k) {
    const std::vector<float> message = numbers(sizes[k], static_cast<int>(k));
    const Op op{k, 0, OpKind::forward, Op::sends};
    const Tensor source = uploaded(from, message);
    Block* block = to.allocate(receiving.queue(), bytes_of(message));
    const auto received = receiving.receive(to.record(kComputeQueue), block, bytes_of(message), op);
    const auto sent = sending.send(from.record(kComputeQueue), source.block, bytes_of(message), op);
    from.release(sending.queue(), const_cast<Block*>(source.block));
    to.wait(kComputeQueue, received.arrived);
    EXPECT_EQ(downloaded(to, {block}, sizes[k]), message) << "message " << k;
    EXPECT_LE(received.departed->time_s(), received.arrived->time_s() + apart);
    EXPECT_LE(sent.departed->time_s(), sent.delivered->time_s() + apart);
    EXPECT_GE(received.departed->time_s(), last_departure_s);
    last_departure_s = received.departed->time_s();
    to.release(kComputeQueue, block);
  }
  from.finish();
  to.finish();
}

TEST_F(Gpu, EveryLinkDeliversMessagesOfEverySizeInOrder) {
  for (const char* link : {"d2d", "pinned", "paced"}) {
    for (const Transfers transfers : {Transfers::overlapped, Transfers::coupled}) {
      SCOPED_TRACE(std::string(link) + " " + std::string(to_string(transfers)));
      RunSettings settings;
      settings.link = link;
      Opened run("cuda", two_devices(transfers), settings);
      // A slot of pinned memory has 65,536 floats, a ring 8 slots.
      exchange(run, {1, 1000, 65536, 65537, 524288, 524289, 5000000, 3});
    }
  }
}

/// The median of five: where another process comes between the stamps beside an event (on a GPU
/// that threads emulate, mostly), the event is placed wrongly once.
double median_of_five(const std::function<double()>& measure) {
  std::array<double, 5> seconds{};
  std::ranges::generate(seconds, measure);
  std::ranges::sort(seconds);
  return seconds[2];
}

TEST_F(Gpu, APacedMessageTakesAtLeastItsStatedTime) {
  RunSettings settings;
  settings.link = "paced";
  Opened run("cuda", two_devices(), settings);
  Device& from = run.backend->device(0);
  Device& to = run.backend->device(1);
  const std::vector<float> message = numbers(2500000);  // 10 MB at 10 GB/s and 20 us
  const Tensor source = uploaded(from, message);
  Block* block = to.allocate(run.backend->receiving(0).queue(), bytes_of(message));
  const Op op;
  const double seconds = median_of_five([&] {
    const auto received = run.backend->receiving(0).receive(nullptr, block, bytes_of(message), op);
    run.backend->sending(0).send(from.record(kComputeQueue), source.block, bytes_of(message), op);
    return received.arrived->time_s() - received.departed->time_s();
  });
  EXPECT_GE(seconds, 1.02e-3 - 5e-6);
  from.finish();
  to.finish();
}

TEST_F(Gpu, PacedWorkLastsAsLongAsStated) {
  RunSettings settings;
  settings.pace = true;
  Opened run("cuda", two_devices(), settings);
  Device& device = run.backend->device(0);
  const double seconds = median_of_five([&] {
    const Event begin = device.record(kComputeQueue);
    device.pace(kComputeQueue, begin, 2e-3);
    const Event end = device.record(kComputeQueue);
    return end->time_s() - begin->time_s();
  });
  EXPECT_GE(seconds, 2e-3 - 5e-6);
  device.finish();
}

TEST_F(Gpu, AnImpossibleAllocationStopsTheRunAndNamesTheDeviceAndTheBytes) {
  Opened run("cuda", two_devices(), {});
  Device& device = run.backend->device(1);
  device.allocate(kComputeQueue, std::int64_t{1} << 45);
  EXPECT_THROW(device.finish(), SystemError);
  EXPECT_NE(run.control.reason().find("device 1 cannot allocate 35184372088832 bytes"),
            std::string::npos)
      << run.control.reason();
}

}  // namespace
}  // namespace penstock::cuda_test

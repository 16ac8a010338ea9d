// SPDX-License-Identifier: Apache-2.0
// What the CUDA backend decides without a GPU, the line it says where there is none, and, where
// there is one, its links and arithmetic against the host's.
#include "base/error.hpp"
#include "hw/backend.hpp"
#include "hw/cuda/base_chain.hpp"
#include "hw/cuda/layout.hpp"
#include "hw/cuda/mailbox.hpp"
#include "hw/cuda/module.hpp"
#include "hw/math.hpp"
#include "hw/stages.hpp"
#include "tests/hw/plan_rig.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <thread>

namespace penstock::cuda_test {
namespace {

using namespace cuda;

// --- partitions, GPUs, streams
// --------------------------------------------------------------------

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
// -----------------------------------------------------------------------------

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
// -------------------------------------------------------------------------

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

// --- the module
// -----------------------------------------------------------------------------------

bool module_built() { return probe_cuda().find("not built in") == std::string::npos; }
bool gpu_there() {
  const std::string line = probe_cuda();
  return module_built() && line.find("use --backend host") == std::string::npos &&
         line.find("cannot be loaded") == std::string::npos;
}

/// Two devices and a channel each way.
RunPlan two_devices(Transfers transfers = Transfers::overlapped) {
  RunPlan plan;
  plan.program.ops.end_device();
  plan.program.ops.end_device();
  plan.program.transfers = transfers;
  plan.channels = {{0, 1, false, 20e-6, 10e9}, {1, 0, true, 20e-6, 10e9}};
  return plan;
}

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

class Gpu : public testing::Test {
 protected:
  void SetUp() override {
    if (!gpu_there()) GTEST_SKIP() << probe_cuda();
  }
};

/// Backends of both kinds for one plan.
struct Opened {
  RunPlan plan;
  RunSettings settings;
  RunControl control{30};
  SingleProcess alone;
  std::unique_ptr<Backend> backend;

  Opened(const std::string& kind, RunPlan the_plan, RunSettings the_settings)
      : plan(std::move(the_plan)), settings(std::move(the_settings)) {
    const BackendRequest request{plan, settings, control, alone, {0, 1}};
    backend = kind == "cuda" ? open_cuda_backend(request) : open_host_backend(request);
    backend->start();
  }
};

std::vector<float> numbers(std::size_t n, int seed = 0) {
  std::vector<float> v(n);
  for (std::size_t i = 0; i < n; ++i)
    v[i] = std::sin(static_cast<float>(i) * 0.37F + static_cast<float>(seed));
  return v;
}

std::int64_t bytes_of(const std::vector<float>& v) {
  return static_cast<std::int64_t>(v.size() * sizeof(float));
}

Tensor uploaded(Device& device, const std::vector<float>& v) {
  const Tensor t{device.allocate(kComputeQueue, bytes_of(v))};
  device.upload(t, v.data(), bytes_of(v));
  return t;
}

std::vector<float> downloaded(Device& device, Tensor t, std::size_t n) {
  std::vector<float> v(n);
  device.download(v.data(), t, bytes_of(v));
  return v;
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

/// A calculation on device 0: makes tensors, calculates, returns results to compare.
using Calculation = std::function<std::vector<float>(Device&, Math&)>;

std::vector<float> on(const std::string& backend, const Calculation& calculate,
                      Precision precision = Precision::fp32) {
  RunSettings settings;
  settings.precision = backend == "cuda" ? precision : Precision::fp32;
  Opened run(backend, two_devices(), settings);
  Device& device = run.backend->device(0);
  std::vector<float> result = calculate(device, device.math());
  device.finish();
  return result;
}

/// The GPU gives the host's results to `tolerance` of their size, and the same bits twice.
void expect_as_on_host(const Calculation& calculate, float tolerance,
                       Precision precision = Precision::fp32) {
  const std::vector<float> host = on("host", calculate);
  const std::vector<float> gpu = on("cuda", calculate, precision);
  ASSERT_EQ(host.size(), gpu.size());
  double difference = 0;
  double size = 0;
  for (std::size_t i = 0; i < host.size(); ++i) {
    difference += std::pow(static_cast<double>(host[i]) - static_cast<double>(gpu[i]), 2);
    size += std::pow(static_cast<double>(host[i]), 2);
  }
  EXPECT_GT(size, 0);
  EXPECT_LE(std::sqrt(difference / size), static_cast<double>(tolerance));
  const std::vector<float> again = on("cuda", calculate, precision);
  EXPECT_EQ(std::memcmp(gpu.data(), again.data(), gpu.size() * sizeof(float)), 0);
}

TEST_F(Gpu, MatrixProductsOfEveryTranspositionAgreeWithTheHost) {
  for (const bool transpose_a : {false, true}) {
    for (const bool transpose_b : {false, true}) {
      SCOPED_TRACE(std::to_string(transpose_a) + std::to_string(transpose_b));
      expect_as_on_host(
          [=](Device& device, Math& math) {
            constexpr std::int64_t m = 96, n = 64, k = 160, batch = 3;
            Gemm shape{m, n, k, transpose_a, transpose_b};
            shape.lda = transpose_a ? m : k;
            shape.ldb = transpose_b ? k : n;
            shape.ldc = n;
            shape.alpha = 0.5F;
            shape.beta = 2;
            shape.batch = batch;
            shape.stride_a = m * k;
            shape.stride_b = n * k;
            shape.stride_c = m * n;
            const Tensor c = uploaded(device, numbers(batch * m * n, 3));
            math.gemm(shape, uploaded(device, numbers(batch * m * k, 1)),
                      uploaded(device, numbers(batch * n * k, 2)), c);
            return downloaded(device, c, batch * m * n);
          },
          1e-5F);
    }
  }
}

TEST_F(Gpu, LayerNormAndItsGradientsAgreeWithTheHost) {
  expect_as_on_host(
      [](Device& device, Math& math) {
        constexpr std::int64_t rows = 70, cols = 101;
        const auto make = [&](std::int64_t n, int seed) {
          return uploaded(device, numbers(static_cast<std::size_t>(n), seed));
        };
        const Tensor x = make(rows * cols, 1), gamma = make(cols, 2), beta = make(cols, 3);
        const Tensor mean = make(rows, 0), rstd = make(rows, 0), y = make(rows * cols, 0);
        const Tensor dgamma = make(cols, 5), dbeta = make(cols, 6), dx = make(rows * cols, 0);
        math.layer_norm(rows, cols, x, gamma, beta, y, mean, rstd);
        math.layer_norm_backward(rows, cols, y, x, gamma, mean, rstd, x, dx);
        math.layer_norm_backward_weight(rows, cols, y, x, mean, rstd, dgamma, dbeta);
        std::vector<float> all = downloaded(device, dx, rows * cols);
        for (const Tensor t : {dgamma, dbeta}) {
          const auto more = downloaded(device, t, cols);
          all.insert(all.end(), more.begin(), more.end());
        }
        return all;
      },
      1e-4F);
}

TEST_F(Gpu, AttentionGeluAndLossesAgreeWithTheHost) {
  expect_as_on_host(
      [](Device& device, Math& math) {
        constexpr std::int64_t rows = 64, keys = 32;
        const AttentionRows shape{rows, keys, true, 0.3F};
        const Tensor p = uploaded(device, numbers(rows * keys, 1));
        const Tensor d = uploaded(device, numbers(rows * keys, 2));
        const Tensor loss = uploaded(device, {0});
        const Tensor losses = uploaded(device, numbers(rows));
        const Tensor targets{device.allocate(kComputeQueue, rows * 4)};
        math.attention_softmax(shape, p);
        math.attention_softmax_backward(shape, p, d);
        math.gelu(rows * keys, d, d);
        math.gelu_backward(rows * keys, d, p, d);
        math.generate_tokens(
            {.seed = 7, .microbatch = 1, .sequences = 8, .seq_length = 8, .vocab_size = keys}, {},
            targets);
        math.cross_entropy(rows, keys, d, targets, losses, loss);
        math.cross_entropy_backward(rows, keys, targets, d);
        std::vector<float> all = downloaded(device, d, rows * keys);
        all.push_back(downloaded(device, loss, 1)[0]);
        return all;
      },
      1e-4F);
}

/// What a bf16 holds of each number, so that both precisions begin with the same.
std::vector<float> short_numbers(std::int64_t n, int seed) {
  std::vector<float> v = numbers(static_cast<std::size_t>(n), seed);
  for (float& x : v) x = std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) & 0xffff0000U);
  return v;
}

/// As working elements.
Tensor working(Device& device, const std::vector<float>& v) {
  const auto n = static_cast<std::int64_t>(v.size());
  const Tensor to{device.allocate(kComputeQueue, n * device.math().element_bytes())};
  device.math().round(n, uploaded(device, v), to);
  return to;
}

void append(std::vector<float>& all, Device& device, Tensor t, std::int64_t n) {
  const auto count = static_cast<std::size_t>(n);
  if (device.math().element_bytes() == 4) {
    const std::vector<float> more = downloaded(device, t, count);
    all.insert(all.end(), more.begin(), more.end());
    return;
  }
  std::vector<std::uint16_t> halves(count);
  device.download(halves.data(), t, 2 * n);
  for (const std::uint16_t h : halves)
    all.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(h) << 16));
}

constexpr struct {
  Precision precision;
  float tolerance;
} kBothPrecisions[] = {{Precision::fp32, 1e-5F}, {Precision::bf16, 1e-2F}};

TEST_F(Gpu, FusedAttentionAgreesWithTheHost) {
  // Lengths around tiles of 16, 32 and 64 rows; heads that fill a tile, that do not, and that are
  // no whole pieces of 16 bytes.
  const Attention shapes[] = {{2, 3, 150, 32, true},  {1, 2, 64, 64, true}, {1, 2, 65, 128, true},
                              {2, 2, 33, 40, true},   {3, 1, 16, 8, true},  {1, 3, 1, 16, true},
                              {1, 2, 97, 64, false},  {1, 2, 50, 5, true},  {1, 1, 31, 99, false},
                              {1, 1, 130, 128, true}, {2, 2, 48, 96, false}};
  std::size_t number = 0;
  for (const Attention& shape : shapes) {
    if ((kBrief && shape.rows() > 70) || is_left_out(number++)) continue;
    for (const auto& [precision, tolerance] : kBothPrecisions) {
      SCOPED_TRACE(fmt::format("{} of {}, {} heads of {}{}{}", shape.sequences, shape.seq_length,
                               shape.heads, shape.head_size, shape.causal ? ", causal" : "",
                               precision == Precision::bf16 ? ", bf16" : ""));
      const std::int64_t n = shape.rows() * shape.hidden();
      const auto forward_and_backward = [&](Device& device, Math& math) {
        const Tensor qkv = working(device, short_numbers(3 * n, 1));
        const Tensor dcontext = working(device, short_numbers(n, 2));
        const Tensor context = working(device, short_numbers(n, 3));
        const Tensor dqkv = working(device, short_numbers(3 * n, 4));
        const Tensor sums = uploaded(device, numbers(static_cast<std::size_t>(shape.sums())));
        const Tensor scratch = uploaded(device, numbers(static_cast<std::size_t>(shape.sums())));
        math.attention(shape, qkv, context, sums);
        math.attention_backward(shape, qkv, context, sums, dcontext, scratch, dqkv);
        std::vector<float> all;
        append(all, device, context, n);
        append(all, device, dqkv, 3 * n);
        return all;
      };
      expect_as_on_host(forward_and_backward, tolerance, precision);
    }
  }
}

/// A product with its epilogue, and what is beside it.
std::vector<float> with_epilogue(Device& device, Math& math, Epilogue::Kind kind, std::int64_t n,
                                 bool residual) {
  constexpr std::int64_t m = 48, k = 64;
  const bool gradient = kind == Epilogue::Kind::bias_gradient;
  Gemm shape{m, n, k, gradient, !gradient};
  shape.lda = gradient ? m : k, shape.ldb = gradient ? n : k, shape.ldc = n;
  shape.beta = gradient ? 1 : 0;
  shape.fp32_output = gradient;
  const auto made = [&](std::int64_t count, int seed) {
    return gradient ? uploaded(device, numbers(static_cast<std::size_t>(count), seed))
                    : working(device, short_numbers(count, seed));
  };
  const Tensor a = working(device, short_numbers(m * k, 1));
  const Tensor b = working(device, short_numbers(n * k, 2));
  const Tensor c = made(m * n, 3), bias = made(gradient ? m : n, 4), aux = made(m * n, 5);
  const bool with_aux = kind == Epilogue::Kind::bias_gelu || kind == Epilogue::Kind::gelu_backward;
  math.gemm_with(shape, a, b, c,
                 {kind, kind == Epilogue::Kind::gelu_backward ? Tensor{} : bias,
                  with_aux ? aux : Tensor{}, residual ? made(m * n, 6) : Tensor{}});
  std::vector<float> all;
  if (gradient) {
    all = downloaded(device, c, m * n);
    const std::vector<float> sums = downloaded(device, bias, m);
    all.insert(all.end(), sums.begin(), sums.end());
    return all;
  }
  append(all, device, c, m * n);
  if (with_aux) append(all, device, aux, m * n);
  return all;
}

TEST_F(Gpu, ProductsWithEpiloguesAgreeWithTheHost) {
  std::size_t number = 0;
  for (const auto kind : {Epilogue::Kind::bias, Epilogue::Kind::bias_gelu,
                          Epilogue::Kind::gelu_backward, Epilogue::Kind::bias_gradient}) {
    if (is_left_out(number++)) continue;
    for (const std::int64_t n : {std::int64_t{32}, std::int64_t{27}}) {  // 27: no auxiliary matrix
      for (const auto& [precision, tolerance] : kBothPrecisions) {
        for (const bool residual : {false, true}) {
          if (residual && kind != Epilogue::Kind::bias) continue;
          SCOPED_TRACE(fmt::format("epilogue {}, {} columns{}{}", static_cast<int>(kind), n,
                                   residual ? ", residual" : "",
                                   precision == Precision::bf16 ? ", bf16" : ""));
          expect_as_on_host(
              [&](Device& device, Math& math) {
                return with_epilogue(device, math, kind, n, residual);
              },
              tolerance, precision);
        }
      }
    }
  }
}

/// Every element kernel of `math` on arrays of n, each of them `offset` numbers into its block.
std::vector<float> element_by_element(Device& device, Math& math, std::int64_t n,
                                      std::int64_t offset) {
  const std::int64_t e = math.element_bytes();
  const auto fp32 = [&](int seed) {
    return uploaded(device, numbers(static_cast<std::size_t>(n + offset), seed)).at(4 * offset);
  };
  const auto short_ones = [&](int seed) {
    return working(device, short_numbers(n + offset, seed)).at(e * offset);
  };
  std::vector<float> all;
  const auto keep_fp32 = [&](Tensor t) {
    const auto more = downloaded(device, t, static_cast<std::size_t>(n));
    all.insert(all.end(), more.begin(), more.end());
  };
  for (const bool momentum : {false, true}) {
    const StepTensors t{fp32(1), fp32(2), short_ones(3), fp32(4), momentum ? fp32(5) : Tensor{}};
    math.sgd_step(n, t, {0.3, 0.5, momentum ? 0.9 : 0, 0.1});
    for (const Tensor x : {t.master_out, t.gradient}) keep_fp32(x);
    if (momentum) keep_fp32(t.first_moment);
    append(all, device, t.working_out, n);
  }
  StepTensors t{fp32(1), fp32(2), short_ones(3), fp32(4), fp32(5), fp32(6)};
  math.zero(4 * n, t.second_moment);
  math.adamw_step(n, t, {.learning_rate = 0.1}, 3);
  for (const Tensor x : {t.master_out, t.gradient, t.first_moment, t.second_moment}) keep_fp32(x);
  append(all, device, t.working_out, n);
  const Tensor x = short_ones(7), y = short_ones(8), clipped = fp32(9), sum = fp32(10);
  math.blend(n, 0.5F, x, -2, y, y);
  math.add_tensors(n, x, y, x);
  math.clip(n, 0.25F, clipped);
  math.accumulate(n, clipped, sum);
  for (const Tensor z : {x, y}) append(all, device, z, n);
  keep_fp32(sum);
  math.fill_uniform(n, 3, 4, x);
  append(all, device, x, n);
  return all;
}

TEST_F(Gpu, ElementKernelsAgreeWithTheHostWhateverTheAlignment) {
  std::size_t number = 0;
  for (const std::int64_t n : {3001, 3000}) {
    for (const std::int64_t offset : {0, 1, 8}) {
      if (is_left_out(number++)) continue;
      for (const auto& [precision, tolerance] : kBothPrecisions) {
        SCOPED_TRACE(fmt::format("{} numbers from {} on{}", n, offset,
                                 precision == Precision::bf16 ? ", bf16" : ""));
        expect_as_on_host([&](Device& d, Math& m) { return element_by_element(d, m, n, offset); },
                          tolerance, precision);
      }
    }
  }
}

TEST_F(Gpu, EmbeddingsAndStoredProbabilitiesAgreeWithTheHost) {
  for (const std::int64_t cols : {27, 32}) {
    for (const auto& [precision, tolerance] : kBothPrecisions) {
      SCOPED_TRACE(fmt::format("{}{}", cols, precision == Precision::bf16 ? ", bf16" : ""));
      expect_as_on_host(
          [&](Device& device, Math& math) {
            constexpr std::int64_t rows = 12, length = 6, vocabulary = 9;
            const Tensor tokens{device.allocate(kComputeQueue, rows * 4)};
            math.generate_tokens({.seed = 5,
                                  .microbatch = 1,
                                  .sequences = 2,
                                  .seq_length = length,
                                  .vocab_size = vocabulary},
                                 tokens, {});
            const Tensor table = working(device, short_numbers(vocabulary * cols, 1));
            const Tensor places = working(device, short_numbers(length * cols, 2));
            const Tensor y = working(device, short_numbers(rows * cols, 3));
            math.embedding(rows, cols, length, tokens, table, places, y);
            const auto sums = [&](std::int64_t n, int seed) {
              return uploaded(device, numbers(static_cast<std::size_t>(n), seed));
            };
            const Tensor dtable = sums(vocabulary * cols, 4), dplaces = sums(length * cols, 5);
            math.embedding_backward(rows, cols, length, tokens, y, dtable, dplaces);
            const Tensor p = working(device, short_numbers(2 * cols * cols, 6));
            const Tensor d = working(device, short_numbers(2 * cols * cols, 7));
            const AttentionRows shape{2 * cols, cols, true, 0.3F};
            math.attention_softmax(shape, p);
            math.attention_softmax_backward(shape, p, d);
            std::vector<float> all;
            for (const auto& [t, n] :
                 {std::pair{y, rows * cols}, {p, 2 * cols * cols}, {d, 2 * cols * cols}})
              append(all, device, t, n);
            for (const auto& [t, n] :
                 {std::pair{dtable, vocabulary * cols}, {dplaces, length * cols}}) {
              const auto more = downloaded(device, t, static_cast<std::size_t>(n));
              all.insert(all.end(), more.begin(), more.end());
            }
            return all;
          },
          tolerance, precision);
    }
  }
}

// --- whole runs
// -----------------------------------------------------------------------------------

RunOptions on_gpu(const char* link = "d2d") {
  RunOptions options = unpaced();
  options.backend = "cuda";
  options.settings.link = link;
  return options;
}

/// Runs the plan: every op of every device is there, and the weights are those of its reference.
void expect_right(const RunPlan& plan, const RunOptions& options) {
  const RecordedRun run = run_alone(plan, options);
  ASSERT_TRUE(run.complete) << run.stopped_because;
  EXPECT_EQ(run.weights_equal, true);
  const DependencyTable table(plan.program.ops, plan.program.placement,
                              plan.program.microbatches());
  EXPECT_TRUE(to_timeline(plan.program.ops, table, run).missing.empty());
}

/// All of these; with a sanitizer some, that differ most.
std::vector<std::string> schedules_to_run() {
  if (!kBrief) return executed_schedules();
  return {"gpipe", "pipedream", "pipedream-2bw", "interleaved-zb", "dualpipe", "chimera"};
}

TEST_F(Gpu, EveryScheduleEndsWithTheWeightsOfASequentialRun) {
  for (const std::string& name : schedules_to_run()) {
    SCOPED_TRACE(name);
    expect_right(plan_of({name, shape_of(name, 4, 7, 2)}), on_gpu());
  }
}

TEST_F(Gpu, NoLinkAndNoTransferSemanticsChangesTheWeights) {
  std::size_t number = 0;
  for (const char* name : {"1f1b", "dualpipe", "pipedream-2bw", "interleaved-1f1b", "zb-h1"}) {
    if (kBrief && name == std::string("pipedream-2bw")) break;
    for (const char* link : {"d2d", "pinned", "paced"}) {
      for (const Transfers transfers :
           {Transfers::overlapped, Transfers::free, Transfers::coupled, Transfers::blocking}) {
        RigSpec spec{name, shape_of(name, 4, 8, 2)};
        spec.transfers = transfers;
        spec.link = {.latency_s = 1e-5, .bytes_per_s = 1e9};
        if (!coupled_fits(spec) || is_left_out(number++)) continue;
        SCOPED_TRACE(std::string(name) + " " + link + " " + std::string(to_string(transfers)));
        expect_right(plan_of(spec), on_gpu(link));
      }
    }
  }
}

TEST_F(Gpu, TransformersEndWithTheWeightsOfASequentialRunInBothPrecisions) {
  std::size_t number = 0;
  for (const std::string& name : schedules_to_run()) {
    if (is_left_out(number++)) continue;
    for (const Precision precision : {Precision::fp32, Precision::bf16}) {
      for (const bool flash : {false, true}) {
        SCOPED_TRACE(name + (precision == Precision::bf16 ? " in bf16" : "") +
                     (flash ? " with flash attention" : ""));
        RunPlan plan = plan_of({name, shape_of(name, 2, 3, 2)});
        make_transformer(plan, in_turn(plan, {Recompute::full, Recompute::none}));
        plan.model.flash_attention = flash;
        RunOptions options = on_gpu();
        options.settings.precision = precision;
        expect_right(plan, options);
      }
    }
  }
}

TEST_F(Gpu, MoreStreamsThanHardwareQueuesDoNotHoldEachOtherUp) {
  std::size_t number = 0;
  for (const char* name : {"1f1b", "chimera", "dualpipe", "interleaved-1f1b"}) {
    if (is_left_out(number++)) continue;
    SCOPED_TRACE(name);
    expect_right(plan_of({name, shape_of(name, 8, 16, 2)}), on_gpu("pinned"));
  }
}

TEST_F(Gpu, AWrongWeightVersionIsNoticedThere) {
  const RunPlan plan = plan_of({"1f1b", {3, 4, 3, false, 0}});
  RunPlan wrong = plan;
  wrong.program.versions.kind = VersionRule::Kind::double_buffer;
  RunOptions options = on_gpu();
  options.reference = &plan;
  EXPECT_EQ(run_alone(wrong, options).weights_equal, false);
}

TEST_F(Gpu, APacedRunTakesAtLeastItsPredictedTime) {
  RigSpec spec{"1f1b", {4, 8, 2}};
  spec.costs.assign(4, unit_costs(1e-3, 2e-3));
  spec.link = {.latency_s = 1e-4, .bytes_per_s = 1e12};
  RunOptions options = on_gpu("paced");
  options.settings.pace = true;
  const Rig rig(spec);
  const RecordedRun run = run_alone(plan_of(spec), options);
  ASSERT_TRUE(run.complete) << run.stopped_because;
  const auto timeline = to_timeline(rig.program.ops, rig.table, run).timeline;
  EXPECT_GE(timeline.makespan_s, simulate_exact(rig.input()).makespan_s - 1e-4);
}

}  // namespace
}  // namespace penstock::cuda_test

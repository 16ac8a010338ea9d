// SPDX-License-Identifier: Apache-2.0
// DualPipe (DeepSeek-AI, "DeepSeek-V3 Technical Report", 2024, section 3.2.1) and DualPipeV (Sea AI
// Lab's "cut in half", in deepseek-ai/DualPipe): two opposite pipelines whose forwards and
// backwards run together, so that the communication of one hides behind the compute of the other.
//
// DualPipe: every device holds stage r and stage p-1-r; half of the microbatches enter at the first
// device, half at the last. DualPipeV folds that in the middle: 2p stages in a V on p devices, and
// the way back is the second pipeline. With h devices from an end to the middle (p/2, or p in the
// V), r steps from the end, n microbatches each way, "own" the route on which the device comes
// early and "other" the route on which it comes late:
//   2(h-r-1) F own;  (r+1) [F own, F other];  (h-r-1) [I W F other];
//   (n-2h+r+1) [(F own; B other) (F other; B own)], the first pair of the middle device apart;
//   (h-r-1) [B other, (F other; B own)];  (r+1) [B other, B own], their second half I;
//   (h-r-1) [W, I own];  (r+1) W, oldest first
// The outermost device idles (h-1)(F&B + B - 3W) when F = I >= W, and 2h+1 activations are held
// (the README's (PP/2 - 1)(F&B + B - 3W) and PP+1).
#include "schedules/catalog.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace penstock {
namespace {

/// One of the two routes through a device: the stage there and its first microbatch.
struct DualDirection {
  std::uint32_t stage = 0, first = 0;
};

/// The list of one device, written op by op; each route counts its own microbatches.
class DeviceList {
 public:
  enum Which : std::uint8_t { own, other };

  DeviceList(OpLists& order, DualDirection own_direction, DualDirection other_direction)
      : order_(order), directions_{own_direction, other_direction} {}

  void forward(Which direction) { order_.add_op(forward_op(direction)); }
  void backward(Which direction) {
    order_.add_op(op(OpKind::backward, direction, backwards_[direction]++));
  }
  /// Runs together: a forward of one route and a backward of the opposite one.
  void pair(Which direction) {
    Op first = forward_op(direction);
    first.flags = Op::paired;
    order_.add_op(first);
    backward(direction == own ? other : own);
  }
  /// A backward whose weight part waits for its turn.
  void backward_input(Which direction) {
    order_.add_op(op(OpKind::backward_input, direction, backwards_[direction]++));
    waiting_.push_back(order_[order_.size() - 1]);
  }
  /// The oldest weight part that waits.
  void weight() {
    Op next = waiting_[done_++];
    next.kind = OpKind::backward_weight;
    order_.add_op(next);
  }

 private:
  Op op(OpKind kind, Which direction, std::uint32_t k) const {
    return make_op(kind, directions_[direction].stage, directions_[direction].first + k);
  }
  Op forward_op(Which direction) { return op(OpKind::forward, direction, forwards_[direction]++); }

  OpLists& order_;
  std::array<DualDirection, 2> directions_;
  std::array<std::uint32_t, 2> forwards_{}, backwards_{};
  std::vector<Op> waiting_;
  std::size_t done_ = 0;
};

/// The eight steps of a device `r` steps from the end of half a pipeline of `h` devices, with `n`
/// microbatches each way. Precondition: n >= 2h, or there are not enough for the first steps.
void append_steps(DeviceList list, std::uint32_t h, std::uint32_t r, std::uint32_t n) {
  constexpr auto own = DeviceList::own, other = DeviceList::other;
  const std::uint32_t inner = h - r - 1;  // devices between this one and the middle
  for (std::uint32_t i = 0; i < 2 * inner; ++i) list.forward(own);
  for (std::uint32_t i = 0; i <= r; ++i) {
    list.forward(own);
    list.forward(other);
  }
  for (std::uint32_t i = 0; i < inner; ++i) {
    list.backward_input(other);
    list.weight();
    list.forward(other);
  }
  for (std::uint32_t i = 0; i < n + r + 1 - 2 * h; ++i) {
    if (i == 0 && inner == 0) {
      list.forward(own);
      list.backward(other);
    } else {
      list.pair(own);
    }
    list.pair(other);
  }
  for (std::uint32_t i = 0; i < inner; ++i) {
    list.backward(other);
    list.pair(other);
  }
  for (std::uint32_t i = 0; i < 2 * (r + 1); ++i) {
    const auto direction = i % 2 == 0 ? other : own;
    i <= r ? list.backward(direction) : list.backward_input(direction);
  }
  for (std::uint32_t i = 0; i < inner; ++i) {
    list.weight();
    list.backward_input(own);
  }
  for (std::uint32_t i = 0; i <= r; ++i) list.weight();
}

void generate_dualpipe(const ScheduleShape& shape, OpLists& order) {
  const std::uint32_t p = shape.depth, n = shape.microbatches_per_update / 2;
  for (std::uint32_t d = 0; d < p; ++d) {
    const DualDirection down{d, 0}, up{p - 1 - d, n};
    const bool first_half = d < p / 2;
    append_steps({order, first_half ? down : up, first_half ? up : down}, p / 2,
                 std::min(d, p - 1 - d), n);
    order.end_device();
  }
}

void generate_dualpipev(const ScheduleShape& shape, OpLists& order) {
  const std::uint32_t p = shape.depth;
  for (std::uint32_t d = 0; d < p; ++d) {
    append_steps({order, {d, 0}, {2 * p - 1 - d, 0}}, p, d, shape.microbatches_per_update);
    order.end_device();
  }
}

Refusal refuse_dualpipe(const ScheduleShape& shape) {
  const Refusal bidirectional = refuse_bidirectional("dualpipe", shape);
  const std::uint32_t m = shape.microbatches_per_update, least = 2 * shape.depth;
  if (!bidirectional.empty() || (m >= least && m % 2 == 0)) return bidirectional;
  return {fmt::format(
      "DualPipe sends half of the microbatches each way and needs two for every "
      "stage: microbatches must be even and at least 2p = {}, not {}; the nearest "
      "legal value is {}",
      least, m, m < least ? fmt::format("{}", least) : fmt::format("{} or {}", m - 1, m + 1))};
}

Refusal refuse_dualpipev(const ScheduleShape& shape) {
  const Refusal uneven = refuse_uneven("dualpipev", shape);
  const std::uint32_t m = shape.microbatches_per_update, least = 2 * shape.depth;
  if (!uneven.empty() || m >= least) return uneven;
  return {
      fmt::format("DualPipeV needs as many microbatches as virtual stages: microbatches is {}, "
                  "the nearest legal value is 2p = {}",
                  m, least)};
}

/// F&B is F + B here: what a pair saves is known to the engines only. The steps fit each other when
/// F = I and W is no longer than that.
double bubble_dualpipe(const ScheduleShape& shape, std::uint32_t h, std::uint32_t microbatches) {
  const StageTimes t = shape.time(0);
  const bool fit = t.forward == t.backward_input && t.backward_weight <= t.forward;
  if (h > 1 && !fit) return kNoClaim;
  const double pair = t.forward + t.backward();
  const double idle = (h - 1.0) * (pair + t.backward() - 3 * t.backward_weight);
  return idle / (idle + microbatches * pair);
}

double dualpipe_bubble(const ScheduleShape& shape) {
  return bubble_dualpipe(shape, shape.depth / 2, shape.microbatches_per_update);
}

double dualpipev_bubble(const ScheduleShape& shape) {
  return bubble_dualpipe(shape, shape.depth, 2 * shape.microbatches_per_update);
}

double dualpipe_peak(const ScheduleShape& shape, std::uint32_t) { return shape.depth + 1.0; }
double dualpipev_peak(const ScheduleShape& shape, std::uint32_t) { return 2.0 * shape.depth + 1; }

}  // namespace

Refusal refuse_bidirectional(std::string_view schedule, const ScheduleShape& shape) {
  const Refusal uneven = refuse_uneven(schedule, shape);
  const std::uint32_t p = shape.depth;
  if (!uneven.empty() || p % 2 == 0) return uneven;
  return {fmt::format("{} lets microbatches flow both ways through an even number of devices: "
                      "stages is {}, the nearest legal value is {}",
                      schedule, p, p == 1 ? "2" : fmt::format("{} or {}", p - 1, p + 1)),
          "stages"};
}

Schedule dualpipe() {
  return {.name = "dualpipe",
          .paper = "DeepSeek-V3 Technical Report, 2024, section 3.2.1",
          .summary =
              "half of the microbatches from each end, forwards and backwards of the two ways run "
              "together; flush",
          .bubble = "(p/2-1)(F&B+B-3W)",
          .stash = "p+1",
          .when =
              "When communication inside a stage (expert parallelism) is as long as its compute, "
              "so that overlapped pairs hide it, and two copies of the weights fit.",
          .generate = generate_dualpipe,
          .ideal_bubble = dualpipe_bubble,
          .refuse_shape = refuse_dualpipe,
          .peak = dualpipe_peak,
          .layout = Layout::mirrored,
          .chunks = {.least = 1, .most = 2, .usual = 1},
          .splits_backward = true,
          .pairs = true};
}

Schedule dualpipev() {
  return {
      .name = "dualpipev",
      .aliases = {"ScheduleDualPipeV", "dualpipe-v"},
      .paper = "deepseek-ai/DualPipe, 2025 (Sea AI Lab's cut in half)",
      .summary = "DualPipe folded in the middle: a V on p devices, one copy of the weights; flush",
      .bubble = "(p-1)(F&B+B-3W)",
      .stash = "2p+1",
      .when =
          "As DualPipe, with half as many devices and one copy of the weights: prefer it unless "
          "the devices must each hold a p-th of the model.",
      .generate = generate_dualpipev,
      .ideal_bubble = dualpipev_bubble,
      .refuse_shape = refuse_dualpipev,
      .peak = dualpipev_peak,
      .of_stage_time = true,
      .layout = Layout::snake,
      .chunks = {.least = 2, .most = 2, .usual = 2},
      .splits_backward = true,
      .pairs = true};
}

}  // namespace penstock

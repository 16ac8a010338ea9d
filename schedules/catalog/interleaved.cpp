// SPDX-License-Identifier: Apache-2.0
// Interleaved 1F1B (Narayanan et al., "Efficient Large-Scale Language Model Training on GPU
// Clusters Using Megatron-LM", SC'21, section 2.2): device d holds the stages d, p+d, ..., so the
// pipeline fills and drains in chunks, 1/v of a device's layers each. A device takes up N
// microbatches on its first chunk, the same ones on its second, and so on, then the next N; its
// backwards run in the same groups through the chunks in reverse, one after each forward, behind
// a warm-up of
//   K_d = min((v-1) N + 2(p-1-d), m v)        interleaved-1f1b, interleaved-1f1b-torch
//   K_d = min((v-1) N +  (p-1-d), m v)        interleaved-zb
// forwards. Groups that cover the pipeline (N >= p) leave an idle time of (p-1)(F+B) of a chunk.
//   Megatron: N is a setting, p when nothing is said. A last group smaller than p is refused: it
//     leaves bubbles, or blocks the pipeline for good (p = 4, m = 9, v = 3, N = 4).
//   PyTorch: floor(m/p) rounds of equal size N = m / rounds.
// PyTorch's interleaved zero-bubble splits the backward and defers the W's of device d by d: the
// idle time from a device's first to its last op is (p-1)(F+I-W) where W <= F (ZB-H1's rule: Qi et
// al., "Zero Bubble Pipeline Parallelism", ICLR'24, on chunks).
#include "schedules/catalog.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace penstock {
namespace {

/// What a device takes up next of one kind of op: a group of microbatches on one chunk, the same
/// group on the next chunk, and after the last chunk the next group.
class Turns {
 public:
  Turns(const ScheduleShape& shape, std::uint32_t group, std::uint32_t device, OpKind kind)
      : shape_(shape),
        group_(group),
        device_(device),
        kind_(kind),
        group_end_(std::min(group, shape.microbatches_per_update)) {}

  Op next() {
    const std::uint32_t chunk = kind_ == OpKind::forward ? chunk_ : shape_.chunks - 1 - chunk_;
    const Op op = make_op(kind_, chunk * shape_.depth + device_, microbatch_);
    if (++microbatch_ == group_end_) next_chunk();
    return op;
  }

 private:
  void next_chunk() {
    if (++chunk_ == shape_.chunks) {
      chunk_ = 0;
      group_begin_ = group_end_;
      group_end_ += std::min(group_, shape_.microbatches_per_update - group_end_);
    }
    microbatch_ = group_begin_;
  }

  const ScheduleShape& shape_;
  std::uint32_t group_, device_;
  OpKind kind_;
  std::uint32_t chunk_ = 0, microbatch_ = 0;
  std::uint32_t group_begin_ = 0, group_end_;
};

std::uint32_t ops_of_a_kind(const ScheduleShape& shape) {
  return shape.microbatches_per_update * shape.chunks;
}

void append_device(const ScheduleShape& shape, std::uint32_t group, std::uint32_t device,
                   std::uint32_t warmup, OpLists& order) {
  const std::uint32_t total = ops_of_a_kind(shape);
  Turns forward(shape, group, device, OpKind::forward);
  Turns backward(shape, group, device, OpKind::backward);
  for (std::uint32_t k = 0; k < warmup; ++k) order.add_op(forward.next());
  for (std::uint32_t k = 0; k < total; ++k) {
    if (warmup + k < total) order.add_op(forward.next());
    order.add_op(backward.next());
  }
  order.end_device();
}

/// The same with I and W for B; W's come `deferred` turns late.
void append_split_device(const ScheduleShape& shape, std::uint32_t group, std::uint32_t device,
                         std::uint32_t warmup, std::uint32_t deferred, OpLists& order) {
  const std::uint32_t total = ops_of_a_kind(shape);
  Turns forward(shape, group, device, OpKind::forward);
  Turns input(shape, group, device, OpKind::backward_input);
  Turns weight(shape, group, device, OpKind::backward_weight);
  for (std::uint32_t k = 0; k < warmup; ++k) order.add_op(forward.next());
  for (std::uint32_t k = 0; k < total; ++k) {
    if (warmup + k < total) order.add_op(forward.next());
    order.add_op(input.next());
    if (k >= deferred) order.add_op(weight.next());
  }
  for (std::uint32_t k = 0; k < std::min(deferred, total); ++k) order.add_op(weight.next());
  order.end_device();
}

/// Forwards ahead of the first backward: those of a group on all chunks but the last, and `apart`
/// for every device on the way to the last one.
std::uint32_t warmup(const ScheduleShape& shape, std::uint32_t group, std::uint32_t device,
                     std::uint32_t apart) {
  const std::uint32_t ahead = (shape.chunks - 1) * group + apart * (shape.depth - 1 - device);
  return std::min(ahead + shape.extra_warmup, ops_of_a_kind(shape));
}

/// At its first backward a device holds the warm-up and one more, if there is one.
double first_backward(const ScheduleShape& shape, std::uint32_t warmup) {
  return std::min(warmup + 1, ops_of_a_kind(shape));
}

// Megatron.

std::uint32_t megatron_group(const ScheduleShape& shape) {
  return shape.group == 0 ? shape.depth : shape.group;
}

/// With one chunk Megatron runs its schedule without interleaving, which knows no groups.
std::uint32_t megatron_warmup(const ScheduleShape& shape, std::uint32_t device) {
  if (shape.chunks == 1) return std::min(shape.depth - 1 - device, shape.microbatches_per_update);
  return warmup(shape, megatron_group(shape), device, 2);
}

void generate_megatron(const ScheduleShape& shape, OpLists& order) {
  const std::uint32_t group = shape.chunks == 1 ? shape.depth : megatron_group(shape);
  for (std::uint32_t d = 0; d < shape.depth; ++d)
    append_device(shape, group, d, megatron_warmup(shape, d), order);
}

double megatron_peak(const ScheduleShape& shape, std::uint32_t device) {
  return first_backward(shape, megatron_warmup(shape, device));
}

bool covers_pipeline(std::uint32_t p, std::uint32_t m, std::uint32_t group) {
  return p <= group && group <= m && (m % group == 0 || m % group >= p);
}

/// "the nearest legal value is 4", or "... values are 4 and 8", of those >= 1 that are `legal`.
template <class Legal>
std::string nearest_legal(std::uint32_t value, const Legal& legal) {
  std::uint32_t below = value, above = value;
  while (below > 0 && !legal(below)) --below;
  while (!legal(above)) ++above;
  if (below == 0) return fmt::format("the nearest legal value is {}", above);
  return fmt::format("the nearest legal values are {} and {}", below, above);
}

/// The group nearest to `group` with which m >= p microbatches are legal; m itself always is.
std::uint32_t nearest_group(std::uint32_t p, std::uint32_t m, std::uint32_t group) {
  const std::uint32_t from = std::clamp(group, p, m);
  for (std::uint32_t away = 0;; ++away) {
    if (away <= from && covers_pipeline(p, m, from - away)) return from - away;
    if (covers_pipeline(p, m, from + away)) return from + away;
  }
}

Refusal refuse_megatron(const ScheduleShape& shape) {
  const Refusal uneven = refuse_uneven("interleaved-1f1b", shape);
  if (!uneven.empty() || shape.chunks == 1) return uneven;
  const std::uint32_t p = shape.depth, m = shape.microbatches_per_update;
  const std::uint32_t group = megatron_group(shape);
  if (covers_pipeline(p, m, group)) return {};
  if (group < p) {
    return {fmt::format("interleaved-1f1b needs groups of at least as many microbatches as there "
                        "are stages, {}: group is {}, the nearest legal value is {}",
                        p, group, nearest_group(p, std::max(p, m), group)),
            "group"};
  }
  const auto legal = [&](std::uint32_t count) { return covers_pipeline(p, count, group); };
  return {
      fmt::format("interleaved-1f1b runs groups of {} microbatches, of which the last has to "
                  "be complete or have at least as many as there are stages, {}: microbatches "
                  "is {}, {}{}; interleaved-1f1b-torch and looped-bfs admit more",
                  group, p, m, nearest_legal(m, legal),
                  m < p ? "" : fmt::format("; or set group: {}", nearest_group(p, m, group)))};
}

// PyTorch.

std::uint32_t torch_rounds(const ScheduleShape& shape) {
  return std::max(1U, shape.microbatches_per_update / shape.depth);
}

std::uint32_t torch_group(const ScheduleShape& shape) {
  return shape.microbatches_per_update / torch_rounds(shape);
}

void generate_torch(const ScheduleShape& shape, OpLists& order) {
  const std::uint32_t group = torch_group(shape);
  for (std::uint32_t d = 0; d < shape.depth; ++d)
    append_device(shape, group, d, warmup(shape, group, d, 2), order);
}

void generate_zero_bubble(const ScheduleShape& shape, OpLists& order) {
  const std::uint32_t group = torch_group(shape);
  for (std::uint32_t d = 0; d < shape.depth; ++d)
    append_split_device(shape, group, d, warmup(shape, group, d, 1), d, order);
}

double torch_peak(const ScheduleShape& shape, std::uint32_t device) {
  return first_backward(shape, warmup(shape, torch_group(shape), device, 2));
}

/// The deferred W's keep as much as the shorter warm-up of later devices saves.
double zero_bubble_peak(const ScheduleShape& shape, std::uint32_t device) {
  return std::min(warmup(shape, torch_group(shape), device, 1) + 1 + device, ops_of_a_kind(shape));
}

double torch_bubble(const ScheduleShape& shape) {
  const bool fills = shape.chunks == 1 || shape.microbatches_per_update >= shape.depth;
  return fills ? fill_and_drain(shape) : kNoClaim;
}

double zero_bubble(const ScheduleShape& shape) {
  const StageTimes t = shape.time(0);
  if (shape.microbatches_per_update < shape.depth || t.backward_weight > t.forward) return kNoClaim;
  const double idle = (shape.depth - 1) * (t.forward + t.backward_input - t.backward_weight);
  return idle / (idle + ops_of_a_kind(shape) * (t.forward + t.backward()));
}

Refusal refuse_torch(std::string_view name, const ScheduleShape& shape) {
  const Refusal uneven = refuse_uneven(name, shape);
  if (!uneven.empty()) return uneven;
  const std::uint32_t p = shape.depth, m = shape.microbatches_per_update;
  const auto legal = [&](std::uint32_t count) { return count % std::max(1U, count / p) == 0; };
  if (legal(m)) return {};
  return {
      fmt::format("{} runs floor(m/p) rounds of equal size: microbatches is {} and does not "
                  "divide into {} rounds, {}",
                  name, m, torch_rounds(shape), nearest_legal(m, legal))};
}

Refusal refuse_interleaved_torch(const ScheduleShape& shape) {
  return refuse_torch("interleaved-1f1b-torch", shape);
}
Refusal refuse_interleaved_zb(const ScheduleShape& shape) {
  return refuse_torch("interleaved-zb", shape);
}

constexpr Chunks kAnyChunks{.least = 1, .most = kAnyNumber, .usual = 2};

}  // namespace

Schedule interleaved_1f1b() {
  return {.name = "interleaved-1f1b",
          .aliases = {"megatron-interleaved", "forward_backward_pipelining_with_interleaving"},
          .paper = "Megatron-LM, SC'21, section 2.2",
          .summary = "1F1B on v chunks per device, in groups of N microbatches; flush",
          .bubble = "(p-1)/(v m+p-1)",
          .stash = "min((v-1)N+2(p-1-d)+1, v m) chunks",
          .when =
              "When the bubble of 1F1B is large and links are fast: a bubble v times smaller for "
              "v times the messages and up to twice the activations.",
          .generate = generate_megatron,
          .ideal_bubble = fill_and_drain,
          .refuse_shape = refuse_megatron,
          .peak = megatron_peak,
          .chunks = kAnyChunks,
          .groups = true};
}

Schedule interleaved_1f1b_torch() {
  return {.name = "interleaved-1f1b-torch",
          .aliases = {"ScheduleInterleaved1F1B", "Interleaved1F1B"},
          .paper = "Megatron-LM, SC'21; torch.distributed.pipelining",
          .summary = "interleaved 1F1B in floor(m/p) equal rounds of N microbatches; flush",
          .bubble = "(p-1)/(v m+p-1), m >= p",
          .stash = "min((v-1)N+2(p-1-d)+1, v m) chunks",
          .when =
              "Interleaved 1F1B as PyTorch orders it; it also admits numbers of microbatches that "
              "the stages do not divide.",
          .generate = generate_torch,
          .ideal_bubble = torch_bubble,
          .refuse_shape = refuse_interleaved_torch,
          .peak = torch_peak,
          .chunks = kAnyChunks};
}

Schedule interleaved_zb() {
  return {.name = "interleaved-zb",
          .aliases = {"ScheduleInterleavedZeroBubble", "InterleavedZeroBubble"},
          .paper = "Zero Bubble, ICLR'24; torch.distributed.pipelining",
          .summary = "interleaved 1F1B with I and W for B, the W of device d deferred by d; flush",
          .bubble = "idle (p-1)(F+I-W) of a chunk, m >= p, W <= F",
          .stash = "min((v-1)N+p, v m) chunks",
          .when =
              "As PyTorch offers it: less idle than interleaved 1F1B, for more activations on the "
              "late devices.",
          .generate = generate_zero_bubble,
          .ideal_bubble = zero_bubble,
          .refuse_shape = refuse_interleaved_zb,
          .peak = zero_bubble_peak,
          .of_stage_time = true,
          .chunks = kAnyChunks,
          .splits_backward = true};
}

}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
// What a schedule is: a pure function from its shape to the compute order of every device, plus the
// rule of its weight versions. A new schedule is one file in catalog/, one line of the table in
// catalog.cpp, one test and one scenario.
#pragma once

#include "program/per_stage.hpp"
#include "program/program.hpp"

#include <functional>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace penstock {

struct BuildingBlock;  // schedules/blocks.hpp

/// What a schedule that looks at costs knows of one virtual stage: times in any one unit, and
/// activations in any one unit.
struct StageTimes {
  double forward = 1;
  double backward_input = 1;
  double backward_weight = 1;
  double activation = 1;              ///< kept from F to I, or to B
  double activation_after_input = 1;  ///< of it, kept on from I to W

  double backward() const { return backward_input + backward_weight; }
  bool operator==(const StageTimes&) const = default;
};

/// When torchgpipe recomputes activations in the backward.
enum class Checkpoint : std::uint8_t { always, except_last, never };

/// The shape a schedule is asked for. Microbatches are those of one replica.
struct ScheduleShape {
  std::uint32_t depth = 1;                    ///< p, devices of a pipeline
  std::uint32_t microbatches_per_update = 1;  ///< m
  std::uint32_t batches = 1;
  bool vertical_sync = false;      ///< PipeDream: every stage uses the version stage 0 used
  std::uint32_t extra_copies = 0;  ///< PipeDream's code keeps one more copy than the paper

  /// Replicas of each stage that take turns with the microbatches (PipeDream's 1F1B-RR): of a mesh
  /// Mesh::turns.
  PerStage<int> replicas = 1;

  std::uint32_t chunks = 1;  ///< v, virtual stages per device
  /// Interleaved 1F1B: microbatches of one chunk in a row (Megatron's
  /// microbatch_group_size_per_vp_stage); 0: p.
  std::uint32_t group = 0;
  std::uint32_t extra_warmup = 0;  ///< interleaved 1F1B: Megatron's 1 when it overlaps MoE traffic
  /// By virtual stage, for schedules that look at times; empty: F = I = W = 1 everywhere.
  std::vector<StageTimes> times{};
  double transfer = 0;  ///< time of a message between two devices, in the unit of `times`
  /// Activations that a device may hold, in multiples of 1F1B's largest peak (one_f_one_b_peak); 0:
  /// what the schedule takes when nothing is said.
  double memory_limit = 0;
  /// The same, for each device (the search of our own); empty: `memory_limit` for all.
  std::vector<double> memory_limits{};
  Checkpoint checkpoint = Checkpoint::except_last;
  bool stashing = true;    ///< PipeDream: without it an op uses the weights there are
  bool correction = true;  ///< PipeMare's T2: corrects the backward's weights, one more buffer

  /// Gradient accumulation around the pipeline: an update fills and drains it so many times, with
  /// an equal part of the microbatches each.
  std::uint32_t accumulation_steps = 1;

  std::uint32_t own_stages = 0;  ///< virtual stages where not every device has as many; 0: p v

  /// Of one accumulation step.
  ScheduleShape one_step() const;
  std::uint32_t stages() const { return own_stages > 0 ? own_stages : depth * chunks; }
  bool operator==(const ScheduleShape&) const = default;
  StageTimes time(std::uint32_t stage) const { return times.empty() ? StageTimes{} : times[stage]; }

  /// Microbatches of one batch, and of the run, on a replica of a stage.
  std::uint32_t per_batch(std::uint32_t stage) const;
  std::uint32_t total(std::uint32_t stage = 0) const { return per_batch(stage) * batches; }
  /// Forwards a replica of a stage runs ahead of its first backward, as many as there are
  /// replicas to feed behind it: floor((R - 1 - sum_{i<s} R_i) / R_s) with R_i replicas of stage i
  /// and R in all (PipeDream's runtime); p - 1 - s with equal widths.
  std::uint32_t warmup(std::uint32_t stage) const;
};

/// The unit of memory limits: the most activations that 1F1B holds on any device when the same
/// layers are one stage per device, the v consecutive virtual stages v d ... v d + v-1 on device d:
/// the largest of (p-d) times what those keep; p times that of a device when all are alike. Where
/// no stage keeps any activations each counts as one.
double one_f_one_b_peak(const ScheduleShape& shape);

/// How the weights of a schedule are updated.
using UpdateRule = VersionRule::Kind;

/// Why a schedule does not admit a shape, with the nearest legal values; empty when it does.
struct Refusal {
  std::string why;
  std::string_view key = "microbatches";  ///< the key of `pipeline` to change

  bool empty() const { return why.empty(); }
};

/// Which virtual stages live where on p devices.
enum class Layout : std::uint8_t {
  loop,      ///< stage s on device s mod p
  snake,     ///< there and back: s mod 2p, counted back from p on (a V with two chunks)
  mirrored,  ///< stage s on device s for the first half of a batch, on p-1-s for the second
};
inline constexpr std::string_view kLayoutNames[] = {"loop", "snake", "mirrored"};

/// Chunks per device that a schedule admits.
struct Chunks {
  std::uint32_t least = 1, most = 1;
  std::uint32_t usual = 1;  ///< when nothing is said
  std::uint32_t step = 1;
};
inline constexpr std::uint32_t kAnyNumber = std::numeric_limits<std::uint32_t>::max();

/// No claim for this shape.
inline constexpr double kNoClaim = std::numeric_limits<double>::quiet_NaN();

struct Schedule {
  std::string_view name;
  std::vector<std::string_view> aliases{};
  std::string_view paper;
  std::string_view summary;  ///< one line: order, flush, what it is for
  std::string_view bubble;   ///< formula of the bubble, where one is published
  std::string_view stash;    ///< microbatches stashed on stage s
  std::string_view when;     ///< one or two sentences: when to use it, and when not
  UpdateRule update = UpdateRule::flush;
  /// Appends the compute order of every device: of one accumulation step (m microbatches, if there
  /// is one step) when the schedule flushes, of the whole run otherwise.
  std::function<void(const ScheduleShape& shape, OpLists& order)> generate = nullptr;
  /// The bubble of equal stages and free transfers, of one flush; 0 in steady state without one.
  double (*ideal_bubble)(const ScheduleShape& shape) = nullptr;
  /// Why the schedule does not admit this shape, beyond its chunks; null: it admits every one.
  Refusal (*refuse_shape)(const ScheduleShape& shape) = nullptr;
  /// Activations of virtual stages that device d holds at most; null or kNoClaim: no claim.
  double (*peak)(const ScheduleShape& shape, std::uint32_t device) = nullptr;
  /// `ideal_bubble` is of the longest device alone, from its first op to its last (the zero-bubble
  /// papers' measure), not of the makespan.
  bool of_stage_time = false;
  Layout layout = Layout::loop;
  Chunks chunks{};
  /// The user's own: the only shape there is of it, and by virtual stage its position; else 0 and
  /// empty.
  std::uint32_t only_depth = 0, only_microbatches = 0;
  std::vector<std::uint32_t> positions{};
  bool splits_backward = false;  ///< I and W instead of B
  bool looks_at_costs = false;   ///< the order depends on ScheduleShape::times and the limits
  /// Memory limit when nothing is said (ScheduleShape::memory_limit); 0: it takes none.
  double usual_limit = 0;
  bool groups = false;       ///< takes ScheduleShape::group
  bool checkpoints = false;  ///< takes ScheduleShape::checkpoint
  bool corrects = false;     ///< takes ScheduleShape::correction
  bool pairs = false;        ///< overlaps an F and a B of its devices
  /// Fills in what the rule needs to know: the delays, or the versions of the order (listed).
  void (*list_versions)(const ScheduleShape& shape, const OpLists& order,
                        VersionRule& rule) = nullptr;
  /// The building block that is repeated for p devices; null: the schedule is made of none.
  std::function<BuildingBlock(std::uint32_t depth)> block = nullptr;
  /// One backward for all microbatches of an update; it carries the number of the last.
  bool whole_backward = false;
  /// Data parallelism: a replica is the whole model, and its gradients are reduced while the last
  /// backward goes on.
  bool whole_model = false;
  bool asynchronous = false;  ///< replicas update the servers' weights without waiting for others

  bool flushes() const { return update == UpdateRule::flush; }
  /// The compute order of every device: of all accumulation steps of one batch when the schedule
  /// flushes, of the whole run otherwise.
  OpLists order(const ScheduleShape& shape) const;
  void append_order(const ScheduleShape& shape, OpLists& order) const;
  /// The bubble of equal stages and free transfers; kNoClaim where none is claimed.
  double claimed_bubble(const ScheduleShape& shape) const;
  /// Why the schedule does not admit this shape.
  Refusal refuse(const ScheduleShape& shape) const;
};

/// Every schedule, in the order `penstock schedule list` prints them.
std::span<const Schedule> schedules();

/// The schedule with this name or alias (case and '_' or '-' do not matter); null when there is
/// none.
const Schedule* find_schedule(std::string_view name);

/// All names and aliases, for suggestions and completion.
std::vector<std::string> schedule_names();

/// Where virtual stages live. `widths` per position, `per_batch` microbatches of a batch on a
/// replica (mirrored).
Placement layout(Layout kind, std::vector<int> widths, std::uint32_t chunks,
                 std::uint32_t per_batch);

/// Where those of a schedule live.
Placement placement_of(const Schedule& schedule, const ScheduleShape& shape);

/// For generators: one op of a virtual stage.
inline Op make_op(OpKind kind, std::uint32_t stage, std::uint32_t microbatch) {
  return {.microbatch = microbatch, .stage = static_cast<std::uint16_t>(stage), .kind = kind};
}

/// For generators: `warmup` forwards, then one forward and one backward in turn, then the backwards
/// that are left, over microbatches 0 ... count-1 of stage `stage` (1F1B and its relatives).
void append_one_f_one_b(OpLists& order, std::uint32_t stage, std::uint32_t warmup,
                        std::uint32_t count);

/// The bubble (p-1) / (v m + p-1) of a pipeline that fills and drains once per batch.
double fill_and_drain(const ScheduleShape& shape);
/// No bubble in steady state.
double no_bubble(const ScheduleShape& shape);

}  // namespace penstock

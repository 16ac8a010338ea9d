// SPDX-License-Identifier: Apache-2.0
#include "scenarios/resolve.hpp"

#include "program/iterations.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>

namespace penstock {
namespace {

constexpr std::uint32_t kDeepest = 65'535;
constexpr std::int64_t kLargestMicrobatch = 1'000'000;  // that is worth looking for

bool too_deep(const ScheduleShape& shape) {
  return std::uint64_t{shape.depth} * shape.chunks > kDeepest;
}

void check_divided_microbatches(const Specification& spec, const Parallelism& job) {
  const PipelineKeys& keys = spec.pipeline;
  if (spec.layer_profile()) {
    keys.replication.refuse(
        "'split' needs costs by formula or given ones; measured ones are those of whole "
        "microbatches (leave out the model's 'measured')");
  }
  if (spec.schedule != nullptr && spec.schedule->asynchronous) {
    keys.replication.refuse(
        fmt::format("the replicas of '{}' wait for no other, so they cannot split a microbatch; "
                    "use replication: round-robin",
                    spec.schedule->name));
  }
  if (!job.mesh.divided || keys.microbatch_size.broken) return;
  for (const int width : job.mesh.width.values()) {
    if (job.microbatch_size % width == 0) continue;
    spec.diagnostics.add_error(
        keys.microbatch_size.there ? keys.microbatch_size.at : keys.replication.at,
        fmt::format("a microbatch of {} cannot be split among {} replicas; make "
                    "microbatch_size a multiple of {}",
                    job.microbatch_size, width, width));
    return;
  }
}

/// "; or microbatch_size: 2 or 4": the nearest with which that batch divides.
std::string fitting_sizes(const Parallelism& job, std::int64_t batch, std::int64_t replicas) {
  const std::int64_t size = job.microbatch_size;
  if (batch % replicas != 0 || job.mesh.divided) return "";
  const std::int64_t each = batch / replicas;
  if (size > kLargestMicrobatch || each > kLargestMicrobatch) return "";
  std::int64_t below = std::min(size, each), above = size;
  while (each % below != 0) --below;
  while (above < each && each % above != 0) ++above;
  return fmt::format("; or microbatch_size: {}{}", below,
                     each % above == 0 && above != below ? fmt::format(" or {}", above) : "");
}

/// What is wrong with a global batch of so many samples, of which a microbatch of all replicas has
/// `unit`; "" when it is sound.
std::string refuse_batch(const PipelineKeys& keys, const Parallelism& job, std::int64_t batch,
                         std::int64_t unit) {
  const std::int64_t size = job.microbatch_size;
  const std::uint32_t given = job.shape.microbatches_per_update;
  const std::string of =
      fmt::format("{} sample{} per microbatch{}", size, size == 1 ? "" : "s",
                  unit == size ? "" : fmt::format(" x {} replicas", unit / size));
  const std::int64_t microbatches = batch / unit;
  if (batch % unit != 0) {
    const std::int64_t below = microbatches * unit;
    return fmt::format(
        "{} samples per update are no multiple of {} ({}); the nearest that are: {}{}{}", batch,
        unit, of, below > 0 ? fmt::format("{} and ", below) : "", below + unit,
        fitting_sizes(job, batch, unit / size));
  }
  if (keys.microbatches.there && microbatches != given) {
    return fmt::format(
        "{} samples per update are {} microbatches ({}), but 'microbatches' says {}, a batch of "
        "{}; leave out one of the two",
        batch, microbatches, of, given, given * unit);
  }
  if (microbatches > std::numeric_limits<std::int32_t>::max())
    return fmt::format("a batch of {} microbatches is too large", microbatches);
  return "";
}

/// Per update, from global_batch_size where that is given.
std::uint32_t microbatches_of(const Specification& spec, const Parallelism& job) {
  const PipelineKeys& keys = spec.pipeline;
  const std::uint32_t given = job.shape.microbatches_per_update;
  const auto batch = keys.global_batch_size.value;
  const bool known = spec.schedule != nullptr && !keys.microbatches.broken &&
                     !keys.microbatch_size.broken && !keys.width.broken && !keys.stages.broken &&
                     !keys.replication.broken;
  if (!batch || !known) return given;
  Parallelism one = job;
  one.shape.microbatches_per_update = 1;
  const auto unit = static_cast<std::int64_t>(one.samples_per_update());
  const std::string wrong = refuse_batch(keys, job, *batch, unit);
  if (wrong.empty()) return static_cast<std::uint32_t>(*batch / unit);
  keys.global_batch_size.refuse(wrong);
  return given;
}

void note_single_microbatch(const Specification& spec, const ScheduleShape& shape) {
  const PipelineKeys& keys = spec.pipeline;
  const bool said = keys.microbatches.there;
  if (said || shape.microbatches_per_update > 1 || shape.depth == 1 || spec.schedule == nullptr ||
      !spec.schedule->flushes())
    return;
  spec.diagnostics.note(fmt::format(
      "{}: one microbatch per weight update, so the stages work one after the other",
      keys.global_batch_size.value ? "global_batch_size is a microbatch for every replica"
                                   : "neither 'microbatches' nor 'global_batch_size' is given"));
}

/// What replicas cannot do where a device has several stages.
void check_replicas(const Specification& spec, const Parallelism& job) {
  const Schedule& schedule = *spec.schedule;
  const bool divided = job.mesh.divided;
  if (job.shape.chunks == 1 && schedule.layout != Layout::mirrored) return;
  if (job.shape.replicas.alike() && !divided) return;
  spec.diagnostics.add_error(divided ? spec.pipeline.replication.at : spec.pipeline.width.at,
                             fmt::format("'{}' has several stages on a device: its replicas take "
                                         "turns, and width must be one number",
                                         schedule.name));
}

void check_step_sync(const Specification& spec, StepSync sync) {
  if (sync == StepSync::device || spec.schedule->flushes()) return;
  spec.pipeline.optimizer_sync.refuse(fmt::format(
      "'{}' never flushes, so its devices {}; use optimizer_sync: device", spec.schedule->name,
      sync == StepSync::post_validation ? "have no norm of all gradients to validate"
                                        : "cannot step all at once"));
}

/// Does the schedule take all this?
void check_schedule(const Specification& spec, const Parallelism& job) {
  const PipelineKeys& keys = spec.pipeline;
  const Schedule& schedule = *spec.schedule;
  const ScheduleShape& shape = job.shape;
  if (!shape.replicas.alike() && shape.vertical_sync) {
    keys.vertical_sync.refuse("'vertical_sync' needs as many replicas of every stage");
  }
  const bool shaped = depth_known(spec, shape) && !keys.microbatches.broken;
  const Refusal refused = shaped ? schedule.refuse(shape) : Refusal{};
  if (!refused.empty()) add_refusal(refused, spec, shape);
  if (!shape.stashing && (shape.vertical_sync || keys.weight_copies.there))
    keys.stashing.refuse(
        fmt::format("'stashing: none' keeps one copy of the weights, so there is "
                    "no '{}'",
                    shape.vertical_sync ? "vertical_sync" : "weight_copies"));
  if (!shape.stashing && !shape.replicas.alike())
    keys.stashing.refuse("'stashing: none' needs as many replicas of every stage");
  for (const char* key : {"vertical_sync", "stashing", "weight_copies"}) {
    if (keys.section.has(key) && schedule.update != UpdateRule::stash) {
      keys.section.refuse(key, fmt::format("'{}' has a meaning for pipedream only, not for '{}'",
                                           key, schedule.name));
    }
  }
  if (schedule.pairs && job.lowering.transfers == Transfers::coupled) {
    spec.transfers.refuse(
        fmt::format("'{}' overlaps a forward and a backward, whose messages 'coupled' cannot pair; "
                    "use overlapped or blocking",
                    schedule.name));
  }
  if (refused.empty()) check_replicas(spec, job);
  check_step_sync(spec, job.lowering.step_sync);
}

/// "16 or 32": the batches next to this one whose microbatches the schedule admits; "": none near.
std::string nearest_batches(const Specification& spec, ScheduleShape shape, std::int64_t batch) {
  constexpr std::uint32_t kFurthest = 4096;
  const std::uint32_t m = shape.microbatches_per_update;
  if (spec.schedule == nullptr || m == 0 || batch % m != 0) return "";
  const auto admits = [&](std::uint32_t count) {
    shape.microbatches_per_update = count;
    return spec.schedule->refuse(shape).empty();
  };
  std::vector<std::int64_t> batches;
  const std::uint32_t least = m > kFurthest ? m - kFurthest : 0;
  for (std::uint32_t below = m - 1; below > least && batches.empty(); --below)
    if (admits(below)) batches.push_back(batch / m * below);
  if (batches.empty() && least > 0 && admits(1)) batches.push_back(batch / m);
  for (std::uint32_t above = m + 1; above < m + kFurthest; ++above) {
    if (!admits(above)) continue;
    batches.push_back(batch / m * above);
    break;
  }
  return fmt::format("{}", fmt::join(batches, " or "));
}

}  // namespace

bool cluster_broken(const Specification& spec) {
  if (!spec.cluster_section) return false;
  return std::ranges::any_of(std::array{"devices", "nodes", "devices_per_node", "groups"},
                             [&](const char* key) { return spec.cluster_section->broken(key); });
}

bool depth_known(const Specification& spec, const ScheduleShape& shape) {
  const bool from_cluster = !spec.pipeline.stages.there && spec.cluster_key.there;
  return !spec.pipeline.stages.broken && !spec.pipeline_key.broken &&
         !(from_cluster && (!spec.cluster_section || cluster_broken(spec))) && !too_deep(shape);
}

bool mesh_known(const Specification& spec) {
  return !spec.pipeline.width.broken && std::ranges::none_of(kInnerAxes, [&](Axis axis) {
    return spec.pipeline.size(axis).broken;
  });
}

void add_refusal(const Refusal& refused, const Specification& spec, const ScheduleShape& shape) {
  const PipelineKeys& keys = spec.pipeline;
  const bool of_batch =
      refused.key == "microbatches" && !keys.microbatches.there && keys.global_batch_size.value;
  if (!of_batch) return keys.section.refuse(refused.key, refused.why);
  const std::uint32_t m = shape.microbatches_per_update;
  const std::int64_t at_once = keys.microbatch_size.value_or(1) * shape.replicas.at(0);
  if (*keys.global_batch_size.value % at_once != 0) return;  // refused: it has no microbatches
  const std::string nearest = nearest_batches(spec, shape, *keys.global_batch_size.value);
  keys.global_batch_size.refuse(
      fmt::format("{}; {} samples per update are {} microbatch{}: 'global_batch_size' must be {}",
                  refused.why, *keys.global_batch_size.value, m, m == 1 ? "" : "es",
                  nearest.empty() ? "another or left out" : nearest));
}

Parallelism parallelism_of(const Specification& spec, const PerStage<int>& width,
                           const ReductionRequest& reduction) {
  const PipelineKeys& keys = spec.pipeline;
  Parallelism out{.stack = spec.stack,
                  .schedule = spec.schedule,
                  .own_schedule = spec.own_schedule,
                  .shape = shape_of(spec),
                  .microbatch_size = keys.microbatch_size.value_or(1),
                  .sequence_parallel = keys.sequence_parallel.value_or(false),
                  .context_exchange = keys.context_exchange.value_or(ContextExchange::ring),
                  .tensor_overlap = keys.tensor_overlap.value_or(false),
                  .transfers_divided = keys.transfers_divided.value_or(false)};
  const bool known = depth_known(spec, out.shape);
  const bool divides = known && keys.divides_microbatches() && !keys.width.broken;
  out.mesh = {.width = width, .pipeline_first = keys.rank_order.value == RankOrder::pipeline_first};
  for (const Axis axis : kInnerAxes)
    out.mesh.size(axis) = static_cast<int>(keys.size(axis).value_or(1));
  out.mesh.divided = divides && out.mesh.replicated();
  set_experts(spec, out);
  out.shape.replicas = out.mesh.turns();
  out.lowering = {.transfers = spec.transfers.value_or(Transfers::overlapped),
                  .step_sync = keys.optimizer_sync.value_or(StepSync::device),
                  .detached_reductions = reduction.overlap == Overlap::next_batch,
                  .reduces_within = out.mesh.reduces_within(),
                  .pairs = keys.expert_overlap.value_or(false)};
  out.sharding = sharding_of(spec, out);
  out.lowering.gathers = out.sharding.gathers_in_first_forward();
  check_shares(spec, out);
  if (too_deep(out.shape))
    (out.shape.depth > kDeepest ? keys.stages : keys.chunks)
        .refuse(fmt::format("a pipeline has at most {} stages", kDeepest));
  if (divides) check_divided_microbatches(spec, out);
  out.shape.microbatches_per_update = microbatches_of(spec, out);
  note_single_microbatch(spec, out.shape);
  out.recompute = recompute_of(spec, out.shape, known);
  if (out.schedule != nullptr) check_schedule(spec, out);
  set_draws(spec, out);
  if (!spec.batches.there && out.schedule != nullptr && !out.schedule->flushes())
    out.shape.batches = steady_batches(
        out.shape.depth,
        out.schedule->update == UpdateRule::stash ? 1 : out.shape.microbatches_per_update,
        out.shape.replicas.values());
  return out;
}

}  // namespace penstock

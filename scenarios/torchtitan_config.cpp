// SPDX-License-Identifier: Apache-2.0
#include "scenarios/torchtitan_config.hpp"

#include "base/error.hpp"
#include "scenarios/torchtitan_flavors.hpp"
#include "scenarios/torchtitan_options.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <iterator>

namespace penstock {
namespace {

const TitanSchedule* titan_schedule_of(const Scenario& s) {
  const auto* found = std::ranges::find_if(kTitanSchedules, [&](const TitanSchedule& schedule) {
    return s.schedule->name == schedule.ours;
  });
  return found == std::end(kTitanSchedules) ? nullptr : found;
}

/// Returns how many layers the first and the last stage have less than torchtitan's rule would give
/// them, one for both; none: it never cuts them so.
std::optional<int> less_layers_of(const Scenario& s) {
  for (const int less : {1, 0}) {
    const auto split = titan_split(s.transformer->num_layers, s.shape.stages(), less, less);
    if (std::ranges::equal(split, s.layers)) return less;
  }
  return std::nullopt;
}

std::vector<Diagnostic> titan_refusals(const Scenario& s) {
  std::vector<Diagnostic> out;
  const auto refuse = [&](const std::string& key, const std::string& why) {
    out.push_back({{s.origin + ", " + key, 0, 0}, why, "", 1, 0});
  };
  if (!s.transformer || s.layer_profile) {
    refuse("model", "torchtitan's models have a flavor; this one is given by its costs");
    return out;
  }
  if (!titan_flavor_of(*s.transformer))
    refuse("model", fmt::format("no flavor of torchtitan's has these sizes (known here: {})",
                                titan_flavor_names()));
  const bool pipeline = s.shape.depth > 1;
  if (pipeline && titan_schedule_of(s) == nullptr)
    refuse("schedule", fmt::format("torchtitan has no schedule '{}'", s.schedule->name));
  if (pipeline && !less_layers_of(s))
    refuse("pipeline.split",
           fmt::format(
               "torchtitan cuts layers by its own rule, not as {}; of {} stages: {}",
               fmt::join(s.layers, " "), s.shape.stages(),
               fmt::join(titan_split(s.transformer->num_layers, s.shape.stages(), 1, 1), " ")));
  if (!s.mesh.width.alike() || s.mesh.divided)
    refuse("pipeline.width", "torchtitan replicates all stages alike");
  const Sharded shared = s.sharding.what;
  if (shared == Sharded::optimizer || shared == Sharded::gradients)
    refuse("pipeline.shard",
           "torchtitan divides weights, gradients and states (shard: weights), or nothing");
  const int context = s.mesh.size(Axis::context);
  if (s.mesh.size(Axis::ulysses) > 1)
    refuse("pipeline.ulysses", "torchtitan sends keys and values round, or gathers them");
  if (context > 1 && (!s.sharding.sharded() || s.sharding.group % context != 0))
    refuse("pipeline.shard",
           fmt::format("torchtitan's context ranks divide weights, too: shard: weights, in groups "
                       "of a multiple of {}",
                       context));
  if (s.mesh.size(Axis::context) > 1 && s.context_exchange == ContextExchange::all_to_all)
    refuse("pipeline.context_exchange", "torchtitan sends keys and values round, or gathers them");
  if (s.mesh.expert > 1)
    refuse("pipeline.expert",
           "how torchtitan divides experts whose weights are sharded is not known here");
  if (s.transformer && s.transformer->mtp_layers > 0)
    refuse("model.mtp_layers", "torchtitan predicts no further tokens");
  if (s.mesh.size(Axis::tensor) > 1 && !s.sequence_parallel)
    refuse("pipeline.sequence_parallel", "torchtitan's tensor parallelism has it always");
  if (s.sharding.what == Sharded::weights && s.sharding.lookahead != 1)
    refuse("pipeline.unshard_lookahead", "torchtitan gathers one layer ahead");
  const Recomputation again = s.recompute.at(0);
  const bool by_op =
      again.granularity == Recompute::selective && again.parts == LayerPart::every_second_product;
  if (!s.recompute.alike() || !(by_op || again == Recompute::none || again == Recompute::full))
    refuse("pipeline.recompute",
           "torchtitan recomputes all layers, none or every second product, of all stages alike");
  return out;
}

}  // namespace

std::string torchtitan_config(const Scenario& s) {
  if (auto wrong = titan_refusals(s); !wrong.empty()) throw InputError(std::move(wrong));
  const auto [name, flavor] = *titan_flavor_of(*s.transformer);
  const bool pipeline = s.shape.depth > 1;
  const std::int64_t context = s.mesh.size(Axis::context);
  const std::int64_t replicas = s.mesh.width.at(0);
  const bool sharded = s.sharding.sharded();
  const std::int64_t shards = sharded ? std::max<std::int64_t>(1, s.sharding.group / context) : 1;
  const auto samples = static_cast<std::int64_t>(s.samples_per_update());
  const std::int64_t steps = pipeline ? s.shape.accumulation_steps : 1;
  const std::int64_t local = pipeline ? samples / replicas / steps : s.microbatch_size;
  std::string out = fmt::format(
      "# {} GPUs: torchrun --nproc_per_node ... -m torchtitan.train --job.config_file THIS_FILE\n"
      "[model]\nname = \"{}\"\nflavor = \"{}\"\n\n[training]\nseq_len = {}\nlocal_batch_size = "
      "{}\nglobal_batch_size = {}\n{}\n[parallelism]\n",
      s.gpu_count(), name, flavor, s.transformer->seq_length, local, samples,
      s.transformer->compute_type == "fp32" ? "mixed_precision_param = \"float32\"\n" : "");
  const auto add = [&](const char* key, const auto& value) {
    out += fmt::format("{} = {}\n", key, value);
  };
  add("data_parallel_replicate_degree", replicas / shards);
  add("data_parallel_shard_degree", shards);
  if (sharded)
    add("fsdp_reshard_after_forward",
        s.sharding.gathering == Gathering::each_pass ? "\"always\"" : "\"never\"");
  add("tensor_parallel_degree", s.mesh.size(Axis::tensor));
  if (s.tensor_overlap) add("enable_async_tensor_parallel", true);
  add("context_parallel_degree", context);
  if (context > 1)
    add("context_parallel_rotate_method",
        s.context_exchange == ContextExchange::ring ? "\"alltoall\"" : "\"allgather\"");
  add("pipeline_parallel_degree", s.shape.depth);
  if (pipeline) {
    const int less = *less_layers_of(s);
    const std::int64_t all = s.transformer->num_layers + 2 * less;
    add("pipeline_parallel_schedule", fmt::format("\"{}\"", titan_schedule_of(s)->theirs));
    add("pipeline_parallel_microbatch_size", s.microbatch_size);
    add("pipeline_parallel_layers_per_stage",
        (all + s.shape.stages() - 1) / static_cast<std::int64_t>(s.shape.stages()));
    add("pipeline_parallel_first_stage_less_layers", less);
    add("pipeline_parallel_last_stage_less_layers", less);
  }
  const Recompute again = s.recompute.at(0).granularity;
  out += fmt::format("\n[activation_checkpoint]\nmode = \"{}\"\n",
                     kRecomputeNames[static_cast<std::size_t>(again)]);
  if (again == Recompute::selective) out += "selective_ac_option = \"op\"\n";
  return out;
}

}  // namespace penstock

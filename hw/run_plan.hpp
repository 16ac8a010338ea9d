// SPDX-License-Identifier: Apache-2.0
// Everything an executor needs, as one value that also travels as a file (`penstock export
// SCENARIO --to program`): the Program, what its stages cost and compute, the channels.
#pragma once

#include "models/collective_steps.hpp"
#include "models/sharding.hpp"
#include "models/stage_costs.hpp"
#include "models/training.hpp"
#include "program/program.hpp"
#include "program/transfer.hpp"

#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace penstock {

/// How the GPUs that are one device of the Program divide its work. Each of them is a rank of the
/// run; those of a device follow one another.
struct RankDivision {
  int tensor = 1;         ///< ranks that divide every layer (Megatron's tensor parallelism)
  bool sequence = false;  ///< they divide norms and messages, too (sequence parallelism)
  /// By position: replicas that divide every microbatch instead of taking turns (DAPPLE's), each of
  /// them so many tensor ranks; empty: one.
  std::vector<int> replicas = {};
  int expert = 1;  ///< ranks of a position, of all its replicas, that have all experts together
};

/// Seconds that ops of a stage on a device take longer for what its ranks exchange inside of them.
struct ExchangeSeconds {
  int device = 0;
  std::uint32_t stage = 0;
  bool stored = false;  ///< of microbatches of which nothing is recomputed
  double forward = 0, backward = 0, backward_input = 0, backward_weight = 0;
  double gathering = 0;  ///< of an F that gathers new weights (Op::gathers)
  /// Holds the seconds that experts compute in F, B and I, between two exchanges.
  double experts_forward = 0, experts_backward = 0, experts_backward_input = 0;
};

/// Seconds that an F and the backward that runs together with it take longer for what is exchanged
/// inside of both, where one computes meanwhile (expert parallelism).
struct PairExchangeSeconds {
  int device = 0;
  std::uint32_t stage = 0, backward_stage = 0;
  bool stored = false, backward_stored = false;
  bool input_alone = false;  ///< the backward is an I
  double seconds = 0;
};

/// A FIFO between two devices, and what a virtual clock takes its messages to cost.
struct Channel {
  int source = 0;
  int destination = 0;
  bool backward = false;
  double latency_s = 0;
  double bytes_per_s = 0;
  /// What moves in it: activations and their gradients (message); partial norms, which cost the
  /// latency (norm); gradients that are reduced, of replicas or mirrored devices, whose time is
  /// that of the reduction, and what replicas exchange with a server (reduction); what replicas
  /// that divide a stage, or have other experts, exchange inside of ops (reduction and backward).
  Transfer::Kind kind = Transfer::Kind::message;
};

/// What the stages compute.
enum class Compute : std::uint8_t {
  stand_in,     ///< two 32 x 32 linear layers; stated costs are the durations and sizes
  transformer,  ///< the real model
  linear,       ///< hw/closed_form_stages.hpp
  quadratic,
};
inline constexpr std::string_view kComputeNames[] = {"stand_in", "transformer", "linear",
                                                     "quadratic"};
constexpr std::string_view compute_name(Compute compute) {
  return kComputeNames[static_cast<int>(compute)];
}

/// One update of replicas that wait for no other, in the order in which they are made.
struct LoneUpdate {
  std::uint32_t replica = 0;
  std::uint32_t version = 0;  ///< of its weights: updates made before by all of them
};

/// A part of the gradients of a device that is reduced by itself. Of the parts of a stage, the
/// first holds the last of its gradients, which a backward completes first.
struct ReducedPart {
  double ready = 1;    ///< share of its stage's last backward's time after which it is there
  double share = 1;    ///< of the gradients
  double seconds = 0;  ///< on links of its own
  /// GradientBucket::kAllStages: there when all gradients of the device are.
  std::uint16_t stage = GradientBucket::kAllStages;
};

/// How REDUCE_GRAD is carried out: by collective_steps().
struct ReductionPlan {
  ReductionAlgorithm algorithm = ReductionAlgorithm::ring;
  int servers = 1;
  std::vector<std::vector<ReducedPart>> parts;  ///< by position; empty: there is no REDUCE_GRAD
  std::vector<int> gpus;   ///< of each rank, its number in the cluster; empty: that of the rank
  std::vector<int> nodes;  ///< of each rank; empty: all share one
};

struct RunPlan {
  std::string name;      ///< of the scenario
  std::string origin;    ///< file of the scenario, for messages; empty: that of the program
  std::string scenario;  ///< its resolved text, for the recording; may be empty
  Program program;
  std::vector<StageCosts> costs;  ///< per virtual stage
  std::vector<Channel> channels;  ///< every channel the Program's messages use, once
  RankDivision division;
  std::vector<ExchangeSeconds> exchange_s;           ///< of those that take time
  std::vector<PairExchangeSeconds> pair_exchange_s;  ///< of pairs that are not the sum of both
  ReductionPlan reduction;
  /// Says what replicas divide among them; nothing where an all-reduce gathers the weights.
  Sharding sharding;
  Compute compute = Compute::stand_in;
  TransformerSpec model;    ///< Compute::transformer only
  std::vector<int> layers;  ///< per virtual stage
  /// Holds the first biases of routers, by expert, so that these choose unevenly; empty: 0.
  std::vector<double> router_start;
  std::int64_t microbatch_size = 1;
  PerStage<Recomputation> recompute = Recompute::none;  ///< by virtual stage
  OptimizerSpec optimizer;
  TrainingSpec training;
  /// Program::asynchronous with replicas: from a simulated timeline, so that slow replicas are
  /// stale; empty: none was simulated.
  std::vector<LoneUpdate> lone_updates;
  std::shared_ptr<const std::string> text;  ///< of Data::text, read; no field of the file
};

/// Are its replicas asynchronous, each updating with the weights that it has?
inline bool waits_for_no_other(const RunPlan& plan) {
  return plan.program.asynchronous && plan.program.placement.replicated();
}

/// Seconds an op is stated to compute, together with the one it is paired with.
double duration_s(const RunPlan& plan, std::uint32_t g);
/// Seconds that it lasts longer on a device for what ranks exchange inside of it.
double exchange_s(const RunPlan& plan, int device, std::uint32_t g);

/// Replicas that are one device and divide its microbatches.
inline int replicas_of_device(const RunPlan& plan, int device) {
  const std::vector<int>& replicas = plan.division.replicas;
  return replicas.empty() ? 1 : replicas[plan.program.placement.position_of(device)];
}
inline int ranks_of_device(const RunPlan& plan, int device) {
  return plan.division.tensor * replicas_of_device(plan, device);
}
/// A rank's device, and its place among the ranks of that: the tensor ranks of a replica stand
/// together.
struct RankPlace {
  int device, place;
};
RankPlace place_of_rank(const RunPlan& plan, int rank);
int rank_at(const RunPlan& plan, int device, int place);
/// Ranks of the whole run.
inline int ranks_of(const RunPlan& plan) {
  return rank_at(plan, plan.program.placement.devices(), 0);
}
/// Do ranks share experts otherwise than all else, so that their gradients are reduced apart?
inline bool has_experts_apart(const RunPlan& plan) {
  return plan.compute == Compute::transformer && plan.model.experts &&
         (plan.division.expert > 1 || plan.division.tensor > 1);
}
/// Returns the ranks that have all experts of a layer together with this one, each the part of its
/// place in the group: ranks of a position that follow one another (program/mesh.hpp).
std::vector<int> expert_group(const RunPlan& plan, int rank);
/// Returns the ranks that have the same experts: one of each group of the position and, in mirrored
/// placements, of its mirror.
std::vector<int> expert_sharers(const RunPlan& plan, int rank);
/// Returns which part of a stage's weights a rank has, alike for all with the same: its place on
/// its device, and the ranks of that times its part of the experts.
int share_of_rank(const RunPlan& plan, int rank);
/// Returns the shares that ranks have of a stage, in ascending order.
std::vector<int> shares_of_stage(const RunPlan& plan, std::uint32_t stage);
/// Returns the same for all experts, as the sequential run has them.
inline int undivided_share(const RunPlan& plan, int device, int place) {
  return place +
         (has_experts_apart(plan) ? ranks_of_device(plan, device) * plan.division.expert : 0);
}
/// Is a device of the Program one rank?
inline bool one_rank_each(const RunPlan& plan) {
  return ranks_of(plan) == plan.program.placement.devices();
}

/// A part of a message of a device: `count` of its sequences from `first` on, and the rank at the
/// other end that has them, too.
struct MessagePart {
  int peer;
  std::int64_t first, count;
};
/// Returns the parts in which a rank exchanges its sequences of a microbatch with another device.
std::vector<MessagePart> message_parts(const RunPlan& plan, int rank, int other_device);

/// The stages whose weights a device holds.
std::vector<std::uint32_t> stages_on(const RunPlan& plan, int device);

/// Returns the microbatches whose gradients make an update of a stage, over all its replicas.
std::uint32_t microbatches_of_update(const Program& program, std::uint32_t stage);
/// Returns the means whose gradients are added for an update: losses are those of the parts of a
/// microbatch that the replicas of the last stage have.
std::uint32_t means_of_update(const RunPlan& plan, std::uint32_t stage);

/// Is the gradient of a stage reduced beside the next batch?
bool reduces_beside(const RunPlan& plan, std::uint32_t stage);

/// Returns the devices whose gradients are added for the step of one of them, which is among them:
/// the replicas of its stages and, in mirrored placements, of their mirror; it alone where there
/// are no others.
std::vector<int> adders_of(const RunPlan& plan, int device);

/// Elements of the gradients of a device, all its stages' one after the other.
struct GradientRange {
  std::int64_t first = 0, end = 0;
};
/// Returns the elements of each part of the gradients of a device whose stages, by number, have so
/// many. A part is within its stage; those of all stages have the rest of the last of them.
std::vector<GradientRange> ranges_of(
    const std::vector<ReducedPart>& parts,
    const std::vector<std::pair<std::uint32_t, std::int64_t>>& elements);
/// Returns the parts of a position's reduction; one where the plan has none.
std::vector<ReducedPart> parts_at(const RunPlan& plan, std::uint32_t position);

/// Returns the steps, of ranks, by which the gradients of these are reduced: of all replicas of
/// these devices, the tensor rank of this number. Where the replicas divide what they step, an
/// all-reduce is a reduce-scatter and an all-gather.
std::vector<CollectiveStep> reduction_steps(const RunPlan& plan, const std::vector<int>& devices,
                                            std::int64_t elements, int tensor_rank = 0,
                                            Collective what = Collective::all_reduce);
/// Returns the steps by which ranks with the same experts reduce their gradients.
std::vector<CollectiveStep> expert_reduction_steps(const RunPlan& plan, int rank,
                                                   std::int64_t elements);
/// Elements of the gradients of a device, all of experts that are apart or none.
struct ReducedRange {
  std::int64_t first, end;
  bool experts = false;
};
/// Gradients of a stage on a device, the first of them of experts that are apart.
struct StageElements {
  std::uint32_t stage;
  std::int64_t all, of_experts;
};
/// Returns what of the gradients of a device, whose stages have so many, each part reduces. Experts
/// are in the last part of their stage, which is complete when they are.
std::vector<std::vector<ReducedRange>> reduced_ranges(const std::vector<ReducedPart>& parts,
                                                      const std::vector<StageElements>& elements);
/// Returns the steps by which the tensor ranks of a rank's replica exchange inside of an op: round
/// a ring, as is predicted.
std::vector<CollectiveStep> exchange_steps(const RunPlan& plan, int rank, Collective what,
                                           std::int64_t elements);

/// The plan with the channels between ranks: of its messages, of what ranks of a device exchange,
/// of gradients that are reduced and of partial norms. Precondition for norms: the forward channels
/// that they follow are there.
RunPlan with_update_channels(RunPlan plan);

/// The plan with the channels by which replicas that wait for no other, on these devices, send
/// gradients to the server on device 0 and get weights back.
RunPlan with_server_channels(RunPlan plan, const std::vector<int>& devices);

/// The number of a channel that the plan has.
int channel_between(const RunPlan& plan, int from, int to, bool backward, Transfer::Kind kind);

/// Why no machine could hold so many layers of it, or its sizes are none; empty: sizes are sound.
std::string why_too_large(const TransformerSpec& spec, std::int64_t microbatch_size,
                          std::int64_t layers);

}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
// DAPPLE's latency model and planner: Fan et al., PPoPP'21, sections 3.2 and 4.
//
// A stage on r devices divides every microbatch among them. Messages between stages are stages of
// their own (F, B: the time of one message, no all-reduce). With M microbatches and the *pivot* Q,
// the stage that paces the steady phase,
//
//   T_w  = sum of F_s, s = 0..Q                              warm-up
//   T_s  = (M - 1) (F_Q + B_Q)                               steady
//   T_e  = max over s of AR_s + (s <= Q ? sum of B_a, a = s..Q : - sum of B_a, a = Q..s)   ending
//   T_PL = T_w + T_s + T_e
//
// Q starts at the last stage; going back, s takes its place where
// (M - 1)(F_s + B_s) > (M - 1)(F_Q + B_Q) + sum of F_a + B_a, s < a < Q.
//
// T_PL(j, g): the first j layers planned on the set g of devices, the rest one stage on the others.
// The planner goes from each (j, g), of which it keeps the best plan, to (j', g') by one more stage
// on m devices, placed by each of three policies: *fresh first* (machines not used yet, whose
// devices all-reduce over NVLink), *append first* (machines used in part), *scatter first* (evenly
// over all machines). O(states * layers * devices) evaluations.
//
// Messages and all-reduces as in the released planner (github.com/AlibabaPAI/DAPPLE): into one
// machine, the share that other machines send over the network between two devices, else NVLink;
// into several machines, all of it at the collectives' rate. All-reduce 2 (n-1)/n W over the rate
// of collectives between machines, inside a machine over floor(n/2) times that of NVLink.
#pragma once

#include "plan/plan.hpp"

#include <limits>
#include <span>

namespace penstock {

struct DappleCluster {
  int machines = 1, devices_per_machine = 1;
  double inside_bytes_per_s = 25e9;
  double between_bytes_per_s = 1e9;     ///< one message
  double collective_bytes_per_s = 3e9;  ///< a collective between machines

  int devices() const { return machines * devices_per_machine; }
  /// Returns whether the devices are on more than one machine.
  bool crosses(const std::vector<int>& devices) const;
  double transfer_s(const std::vector<int>& from, const std::vector<int>& to, double bytes) const;
  double all_reduce_s(const std::vector<int>& devices, double bytes) const;
};

/// The seconds of a stage: F and B for each microbatch, the all-reduce once per batch.
struct LatencyStage {
  double forward_s = 0, backward_s = 0, all_reduce_s = 0;
};

struct PipelineLatency {
  double warmup_s = 0, steady_s = 0, ending_s = 0;
  std::size_t pivot = 0;
  double total_s() const { return warmup_s + steady_s + ending_s; }
};

/// Returns T_PL of stages with their messages between them. Requires at least one stage.
PipelineLatency pipeline_latency(const std::vector<LatencyStage>& stages,
                                 std::int64_t microbatches);

/// A stage: the layers up to state `last`, on these devices.
struct DappleStage {
  int last = 0;
  std::vector<int> devices;
};

/// Returns the stages and messages of a plan. `states` is a chain, and its costs are those of one
/// microbatch.
std::vector<LatencyStage> latency_stages(const std::vector<LayerState>& states,
                                         std::span<const DappleStage> plan,
                                         const DappleCluster& cluster);

struct DappleOptions {
  std::int64_t microbatches = 1;
  bool straight = false;
  double memory_bytes = std::numeric_limits<double>::infinity();  ///< per device
  double state_share = 1;  ///< the bytes of weights, gradients and optimizer per byte of parameters
  std::size_t most_plans = 1;
};

struct DapplePlan {
  std::vector<DappleStage> stages;
  double latency_s = 0;  ///< T_PL
};

/// Returns plans over all devices that fit, best first. `states` is a chain, and its costs are
/// those of one microbatch.
std::vector<DapplePlan> search_dapple(const std::vector<LayerState>& states,
                                      const DappleCluster& cluster, const DappleOptions& options);

/// Returns the bytes per device of stage s: its state, and the activations of as many microbatches
/// as there are stages from it to the end (early backward).
double stage_memory(const std::vector<LayerState>& states, std::span<const DappleStage> stages,
                    std::size_t s, const DappleOptions& options);

enum class Placing : std::uint8_t { fresh_first, append_first, scatter_first };

/// Returns `count` more devices by a policy, and adds them to `used`, which has the number of used
/// devices of each machine. Returns none where the policy finds too few.
std::optional<std::vector<int>> place(const DappleCluster& cluster, Placing policy, int count,
                                      std::vector<int>& used);

}  // namespace penstock

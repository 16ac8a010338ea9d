// SPDX-License-Identifier: Apache-2.0
// PipeDream's optimizer: Narayanan et al., SOSP'19, section 3.1, as its released program computes
// it (github.com/msr-fiddle/pipedream, optimizer/optimizer_graph_hierarchical.py).
//
// Over the states of a model (plan/layer_states.hpp) and, level by level of the network, over
// numbers of workers. T(i,j) is the time of the layers i..j on one worker of the level; W(i,j)
// their parameters in bytes; B the level's bandwidth; n the workers of the level below.
//
//   one stage    A(i,j,m) = (T(i,j) + 4 (m-1)/m W(i,j) / B / n) / m
//   split        A(i,j,m) = min over k before j, r < m of
//                           max(A(i,k,m-r), (T(k+1,j) + 4 (r-1)/r W(k+1,j) / B) / r,
//                               2 out_k / (B r), 2 out_j / (B r))
//   next level   T(i,j) := A(i,j,width)
//
// out_j are the bytes sent on behind j, both ways; the last two terms are left out without
// transfers, and the last one at the end of the model. With a memory limit a stage keeps
// ceil((width - m) / r) microbatches and weight versions behind itself and may not be larger than
// the limit; the live copy is not counted. Unlike the paper, compute and all-reduce are added, and
// the split's all-reduce is not divided by n. Several levels of a graph with branches: k may stand
// beside i - 1; the program allows it, so does this. O(L^3 m^2) per level, O(L^2 m^2) at the top.
#pragma once

#include "plan/plan.hpp"

namespace penstock {

struct PipedreamOptions {
  std::vector<PlanLevel> levels;  ///< innermost first
  bool straight = false;
  bool transfers = true;
  double memory_bytes = 0;  ///< the memory of a device; 0: no limit
};

struct PipedreamPlan {
  struct Stage {
    int first = 0, last = 0;  ///< the states that it covers
    int replicas = 1;         ///< its replicas on all levels together
    std::vector<int> devices;
  };
  bool feasible = false;
  double time_per_stage_s = 0;
  double data_parallel_s = 0;  ///< seconds per minibatch where all workers have the whole model
  std::vector<Stage> stages;
};

/// Returns the plan of PipeDream's optimizer.
PipedreamPlan optimize_pipedream(const std::vector<LayerState>& states,
                                 const PipedreamOptions& options);

}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
// Profiles of PipeDream (Narayanan et al., SOSP'19; github.com/msr-fiddle/pipedream,
// graph/graph.py): the layers of a model as a graph, each measured on one GPU. DAPPLE's planner
// takes nearly the same format. A line is a layer, or, behind a tab or blank, an edge:
//
//   node4 -- Linear(1, 2) -- forward_compute_time=0.5, backward_compute_time=1,
//            activation_size=[8.0; 4.0], parameter_size=4.0 -- stage_id=1          (one line)
//   <tab>node4 -- node5
//
// Times are milliseconds per minibatch, sizes bytes; an activation of several tensors counts as
// their sum. What PipeDream's optimizer leaves out is left out: `Input` sources, whose time is that
// of loading data, and `__getitem__` outputs that nobody reads. A stage is a run of consecutive
// layers in the order they were executed in (the smallest id that may come next; `node2` is before
// `node10`), its time the sum of its layers' (SOSP'19, section 3.1), and it sends on every tensor
// that a later stage reads: its own and those that only pass through, each once.
#pragma once

#include "models/gradient_buckets.hpp"
#include "models/transformer.hpp"
#include "program/per_stage.hpp"
#include "program/vocabulary.hpp"

#include <string>
#include <vector>

namespace penstock {

struct ProfiledLayer {
  std::string id, description;
  double forward_s = 0, backward_s = 0;  ///< per minibatch of the profile
  double activation_bytes = 0;           ///< of its output
  double stash_bytes = 0;                ///< kept for the backward beside the output
  double parameter_bytes = 0;            ///< fp32
  int last_reader = -1;                  ///< the last layer that reads the output; -1: none
  std::vector<int> readers;              ///< all of them, ascending
  int line = 0;                          ///< where it stands in the file, 1-based
  bool view = false;  ///< its output takes no memory of its own: in place, View, Size, __getitem__

  double kept_bytes() const { return stash_bytes + (view ? 0 : activation_bytes); }
};

struct PipedreamProfile {
  std::vector<ProfiledLayer> layers;  ///< in execution order
  double input_bytes = 0;             ///< of the `Input` sources
  bool has_stages = false;            ///< stage ids were given; they are not used
  bool outputs_only = false;          ///< nobody said what layers keep beside their output
};

/// Reads a profile; `origin` names it in errors. Throws InputError with everything wrong with it.
PipedreamProfile parse_pipedream_profile(const std::string& text, const std::string& origin);

/// The same of a file with this text: a graph, or a table of layers (.csv).
PipedreamProfile parse_profile_file(const std::string& text, const std::string& path);

/// The same from a file. Throws InputError, also when it cannot be read.
PipedreamProfile load_pipedream_profile(const std::string& path);

/// Bytes that cross the cut before each layer, and behind the last one: tensors made before it that
/// are read behind it.
std::vector<double> profiled_cut_bytes(const PipedreamProfile& profile);

struct PipedreamUse {
  double scale = 1;  ///< microbatch in minibatches of the profile: times and activations go with it
  PerStage<bool> recompute = false;
  ParameterBytes bytes;  ///< per parameter
};

/// Costs of the stages when stage i holds `layers[i]` consecutive layers. Half of a backward
/// counts as I, half as W; STEP takes no time. Precondition: the numbers add up to the profile's
/// layers.
std::vector<StageCosts> profiled_stage_costs(const PipedreamProfile& profile,
                                             const std::vector<int>& layers,
                                             const PipedreamUse& use);

/// Layers per stage so that the slowest stage's F + B (F again where it recomputes), divided by the
/// stage's replicas, is as small as possible; among those splits, one that sends the fewest bytes.
/// Where `positions` gives several stages to a device, its cuts are then moved, a layer at a time,
/// as long as that makes the slower of two devices faster, which may leave a stage without layers.
/// Precondition: no more stages than layers.
std::vector<int> profiled_balanced_split(const PipedreamProfile& profile,
                                         const std::vector<int>& widths,
                                         const PerStage<bool>& recompute = false,
                                         const std::vector<std::uint32_t>& positions = {});

/// Gradients of the layers of each stage, for `gradient_buckets`.
std::vector<std::vector<LayerGradient>> profiled_stage_gradients(const PipedreamProfile& profile,
                                                                 const std::vector<int>& layers);

}  // namespace penstock

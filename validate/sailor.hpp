// SPDX-License-Identifier: Apache-2.0
// A configuration of Sailor's measurements as a scenario of abstract costs: what every stage takes
// and holds, from layer times that were measured on one node. `simulate` does the rest.
//
//   times     of a stage, the sum of its layers', of the slowest kind of GPU among its replicas;
//   1F1B messages  DeepSpeed's pipeline engine sends and receives one after the other with both
//   ends
//             waiting, in fp32: transfers are coupled, four times the bytes of fp16
//   update    a ring all-reduce of fp32 gradients over links as fast as the NICs were measured to
//             be, then STEP: a third of the profile's, which times PyTorch's Adam kernel by kernel;
//             a fused one reads and writes every tensor once instead of about three times
//   memory    of a rank: 18 bytes per parameter (models/transformer.hpp), activations
//             (Korthikanti et al., MLSys'23, equation 2), three times 2 b a s^2 / t bytes of
//             attention while a layer's backward runs (gradients of dropout's and softmax's output
//             and input), 14 bytes per logit on the last stage (fp16 2, fp32 4, softmax 4, their
//             gradient 4)
//   the rest  latency, what an update has beside this, how GPUs differ, what a process holds: by
//   the
//             stack `deepspeed-profiled`
#pragma once

#include "validate/sailor_files.hpp"

namespace penstock {

/// Everything a scenario is made of.
struct SailorData {
  TransformerSpec model;
  std::map<std::string, SailorProfile> profiles;  ///< by kind of GPU
  SailorNetwork network;
};

/// As YAML. Pipelines side by side are replicas, each stage as the slowest and fullest of them.
/// Throws InputError when the data lacks what the plan needs (times at its microbatch size and
/// tensor degree, layers, bandwidths).
std::string sailor_scenario(const SailorPlan& plan, const SailorData& data);

}  // namespace penstock

// A configuration of Sailor's measurements as a scenario of abstract costs: what every stage takes
// and holds, from layer times that were measured on one node. `simulate` does the rest.
//
//   times     of a stage, the sum of its layers', of the slowest kind of GPU among its replicas and
//             times the pace; 1F1B
//   messages  DeepSpeed's pipeline engine sends and receives one after the other with both ends
//             waiting, in fp32: transfers are coupled, four times the bytes of fp16, two latencies
//   pace      GPUs of one kind differ by a standard deviation `speed_spread`: with T_s the time
//             of a microbatch on stage s, w replicas and Phi the normal distribution, the slowest
//             takes x with prod_s Phi((x / T_s - 1) / speed_spread)^w = 1/2 (the median)
//   update    a ring all-reduce of fp32 gradients over links as fast as the NICs were measured to
//             be, then STEP: reduction_s + update_share * the profile's update
//   memory    of a rank: 18 bytes per parameter (models/transformer.hpp), activations
//             (Korthikanti et al., MLSys'23, equation 2), score_copies times 2 b a s^2 / t bytes of
//             attention while a layer's backward runs, logits_bytes per logit on the last stage,
//             and context_bytes that every process has
#pragma once

#include "validate/sailor_files.hpp"

namespace penstock {

/// What the layer profiles do not say: few, and meant for every model and kind of GPU.
/// Those marked "fitted" come from the calibration rows (`is_sailor_calibration`).
struct SailorParameters {
  double message_latency_s = 0.00033;  ///< fitted
  double reduction_s = 0.0057;         ///< every reduction, whatever its size; fitted
  double speed_spread = 0.0143;        ///< fitted
  /// The profile times PyTorch's Adam, kernel by kernel; runs use a fused one, which reads and
  /// writes every tensor once instead of about three times. Not fitted.
  double update_share = 1.0 / 3;
  double context_bytes = 4.41e9;  ///< CUDA context, fused kernels, NCCL and allocator; fitted
  double score_copies = 3;        ///< gradients of dropout's and softmax's output and input
  double logits_bytes = 14;       ///< fp16 logits 2, fp32 copy 4, softmax 4, their gradient 4
};

/// Everything a scenario is made of.
struct SailorData {
  TransformerSpec model;
  std::map<std::string, SailorProfile> profiles;  ///< by kind of GPU
  SailorNetwork network;
};

/// As YAML. Pipelines side by side are replicas, each stage as the slowest and fullest of them.
/// Throws InputError when the data lacks what the plan needs (times at its microbatch size and
/// tensor degree, layers, bandwidths).
std::string sailor_scenario(const SailorPlan& plan, const SailorData& data,
                            const SailorParameters& parameters = {});

/// How much more time the slowest GPU takes than the slowest stage on a GPU of mean speed, a factor
/// of at least 1 (the formula of `pace` above). Precondition: `stage_s` is positive.
double slowest_pace(const std::vector<double>& stage_s, int width, double spread);

/// Was this configuration used to fit the parameters?
bool is_sailor_calibration(const SailorPlan& plan, const std::string& model);

}  // namespace penstock

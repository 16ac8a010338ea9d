// How long an iteration of Megatron-style training takes, from few physical parameters.
//
// Op times per layer, microbatch and GPU, with n = b s tokens on t tensor-parallel GPUs:
//   device(F) = (24 n h^2 + 4 n s h) / t / (peak * gemm_efficiency) + bytes / memory_bandwidth
//               + 2 all-reduces of 2 n h bytes among the t GPUs
//   device(B) = 3 device(F) + ...: full recompute, then twice the products; 4 all-reduces
//   host(F) = launch_s + 2 collective_launch_s,   host(B) = 3 launch_s + 4 collective_launch_s
//   time = (device^k + host^k)^(1/k): the larger one, smoothly, as some kernels of a layer wait for
//          the host while others keep it waiting (k = sharpness)
// The LM head (2 n h V FLOPs forward, 4 n h V backward, not recomputed) is on the last stage. The
// schedule is not a formula: the 1F1B Program of these stages goes through the `exact` engine.
// After it come, per stage, the ring all-reduce of the gradients over the d replicas and the
// optimizer; the replicas of a node share its network.
//
// A *shape table* may scale layer and head times for each shape (h, s, heads, b, t): launch times
// differ between shapes by up to 30 % for no reason a formula knows (other kernels are chosen).
#pragma once

#include "sim/engine.hpp"
#include "validate/training_runs.hpp"

#include <array>
#include <map>
#include <memory>
#include <span>
#include <tuple>

namespace penstock {

inline constexpr std::size_t kTrainingParameters = 12;

struct TrainingParameterSpec {
  const char* name;
  const char* unit;
  double start, lowest, highest;  ///< what a fit starts from and stays within
  const char* meaning;
};
std::span<const TrainingParameterSpec, kTrainingParameters> training_parameters();

/// Values, in the order of `training_parameters()`.
struct TrainingParameters {
  std::array<double, kTrainingParameters> values;
  /// Where a fit starts: data sheets, and a guess where there is none.
  static TrainingParameters nominal();
};

/// What makes the kernels of a layer the same: hidden, sequence, heads, micro batch, tensor.
using LayerShape = std::array<int, 5>;
LayerShape shape_of(const TrainingRun& run);

struct ShapeFactors {
  double layer = 1, head = 1;
};
using ShapeTable = std::map<LayerShape, ShapeFactors>;

class TrainingModel {
 public:
  TrainingModel();
  ~TrainingModel();
  /// Seconds per iteration. Not thread-safe: Programs are kept for the next run of the same shape.
  double iteration_s(const TrainingRun& run, const TrainingParameters& parameters,
                     const ShapeFactors& factors = {});

 private:
  struct Pipeline;
  Pipeline& pipeline(const TrainingRun& run);
  std::map<std::pair<int, int>, std::unique_ptr<Pipeline>> pipelines_;  // (depth, microbatches)
};

}  // namespace penstock

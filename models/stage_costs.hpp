// What each virtual stage of a transformer costs on a device.
#pragma once

#include "base/vocabulary.hpp"
#include "models/device.hpp"
#include "models/transformer.hpp"

#include <functional>
#include <vector>

namespace penstock {

struct StageCostOptions {
  double microbatch_size = 1;  ///< sequences per microbatch
  Recompute recompute = Recompute::none;
};

/// Costs of the stages when stage i holds `layers[i]` consecutive layers, the first one also the
/// embedding and the last one the LM head. Precondition: the layers add up to the model's, and the
/// device has a peak rate for the model's number type.
std::vector<StageCosts> stage_costs(const TransformerSpec& model, const DeviceSpec& device,
                                    const std::vector<int>& layers,
                                    const StageCostOptions& options);

/// The same with a device of its own for every stage.
std::vector<StageCosts> stage_costs(const TransformerSpec& model,
                                    const std::vector<DeviceSpec>& devices,
                                    const std::vector<int>& layers,
                                    const StageCostOptions& options);

/// Parameters of a stage with these layers; a tied projection counts once where both copies meet.
std::int64_t stage_parameters(const TransformerSpec& model, int layers, bool first, bool last);

/// Layers per stage, all equal; empty when the stages do not divide the layers.
std::vector<int> even_split(int layers, int stages);

/// Layers per stage so that the slowest stage's F + B is as fast as possible; among those, the
/// split whose second, third ... slowest stages are fastest. Precondition: layers >= stages.
std::vector<int> balanced_split(const TransformerSpec& model, const DeviceSpec& device, int stages,
                                const StageCostOptions& options);

/// The same with a device of its own for every stage.
std::vector<int> balanced_split(const TransformerSpec& model,
                                const std::vector<DeviceSpec>& devices,
                                const StageCostOptions& options);

/// The same for any time of a stage with so many layers. Precondition: layers >= stages.
std::vector<int> balanced_split(int layers, int stages,
                                const std::function<double(int, bool first, bool last)>& time);

/// The same where time also depends on the stage: `time(layers, stage)`.
std::vector<int> balanced_split_by_stage(int layers, int stages,
                                         const std::function<double(int, int)>& time);

}  // namespace penstock

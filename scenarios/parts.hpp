// Readers of the parts of a scenario: each turns a checked section into its struct.
#pragma once

#include "scenarios/library.hpp"

namespace penstock {

/// Is this model given as costs (forward, backward ...) rather than by its shape?
bool is_abstract_model(const Section& model);

/// A transformer by shape; missing keys are reported.
TransformerSpec read_transformer(const Section& model, Diagnostics& diagnostics);

/// What a parameter costs; `single`: the defaults of fp32.
ParameterBytes read_parameter_bytes(const Section& model, bool single, Diagnostics& diagnostics);

/// The measured costs of a model by shape; none when it has no 'measured'.
std::optional<MeasuredModel> read_measured(const Section& model, Diagnostics& diagnostics);

/// How the chunks of a device share what a model's costs say of it.
struct StageShares {
  int devices = 0;                         ///< of a pipeline
  int chunks = 1;                          ///< of each device
  std::vector<std::uint32_t> device_of{};  ///< of each virtual stage, its position
  bool per_chunk = false;                  ///< costs are those of a chunk: `per: chunk`
};

/// Costs of virtual stages given explicitly; of those that recompute, B and I repeat F. One number,
/// or a list with one per device, is a device's and divided evenly among its chunks, but for what
/// is sent on (a microbatch's activations are as large wherever a model is cut) and the workspace
/// (of one layer); a list with one per virtual stage is taken as it is.
std::vector<StageCosts> read_abstract_costs(const Section& model, const StageShares& shares,
                                            const PerStage<Recompute>& recompute,
                                            Diagnostics& diagnostics);

/// A cluster; `devices_needed` when it does not say how many devices it has.
Cluster read_cluster(const Section& cluster, Library& library, int devices_needed,
                     Diagnostics& diagnostics);

}  // namespace penstock

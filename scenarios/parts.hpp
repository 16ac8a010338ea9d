// SPDX-License-Identifier: Apache-2.0
// Readers of the parts of a scenario: each turns a checked section into its struct.
#pragma once

#include "scenarios/library.hpp"

namespace penstock {

/// Is this model given as costs (forward, backward ...) rather than by its shape?
bool is_abstract_model(const Section& model);

/// A transformer by shape; missing keys are reported.
TransformerSpec read_transformer(const Section& model);

/// What a parameter costs; `single`: the defaults of fp32.
ParameterBytes read_parameter_bytes(const Section& model, bool single);

/// Returns the measured costs of a model by shape; none when it has no 'measured'.
std::optional<LayerProfile> read_layer_profile(const Section& model);

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
                                            const PerStage<Recomputation>& recompute);

/// A cluster; `devices_needed` when it does not say how many devices it has.
Cluster read_cluster(const Section& cluster, Library& library, int devices_needed);

/// The profile of PipeDream's of a model by layers; none, with diagnostics, when it cannot be had.
std::optional<PipedreamProfile> read_profile(const Section& model, Library& library);

/// `perturbations`: all but the names of links, which are known once the run's channels are.
/// `devices`: of the Program; 0: not known, so not checked.
PerturbationSpec read_perturbations(const Section& section, int devices, Transfers transfers);

/// Is this value of `schedule` not the name of a known one?
bool is_own_schedule(const Value& value);

/// A schedule of the user's own, proven to run: a table of torch.distributed.pipelining (FILE.csv)
/// or a building block (a map, or FILE.yaml). Null with everything that is wrong; what is worth
/// knowing is noted.
std::shared_ptr<const Schedule> read_own_schedule(const Value& value, Library& library,
                                                  Diagnostics& diagnostics);

/// What is wrong with the values of a scenario, or of a part of one, each by itself, whatever the
/// others are: a word that is no choice, a name that nobody knows, a file that is not there. What
/// does not go together (48 layers in 5 stages) is found when the scenario is resolved. Every file
/// that it names, and those that these name, is read on the way.
void check_values(const Value& scenario, Library& library, Diagnostics& diagnostics);

/// The schedule of this name; null, with a diagnostic, where there is none.
const Schedule* schedule_named(const Value& name, Diagnostics& diagnostics);

// The parts of a cluster: links, devices, nodes, and what joins the nodes.

/// The keys that a link and the edge of a graph have in common; what is not given is as in `start`.
LinkSpec read_wire(const Section& section, LinkSpec start = {});

/// The link at a key of `parent`: a bandwidth alone, or a map, which is then left in `section`.
LinkSpec read_link(const Section& parent, const std::string& key, const LinkSpec& start,
                   std::optional<Section>& section);

/// A link that has no keys but those of a wire.
LinkSpec read_plain_link(const Section& parent, const std::string& key, const LinkSpec& start);

/// The number of a device or GPU; -1 where the word is none below `limit`.
int number_below(int limit, const std::string& word);

/// Refuses these keys of a section, which may be missing.
void refuse_keys(const std::optional<Section>& section, std::initializer_list<const char*> keys,
                 const std::string& where);

/// The device of a cluster or of a group of nodes, its memory replaced where 'memory' says so.
void read_device_keys(const Section& section, Library& library, DeviceSpec& device);

/// The node of a cluster, or of a group of nodes that inherits the keys of its cluster.
NodeSpec read_node(const Section& section, const NodeSpec& start, Library& library);

/// What joins the nodes of this cluster, which is read but for it.
FabricSpec read_fabric(const Section& cluster, const Cluster& c);

}  // namespace penstock

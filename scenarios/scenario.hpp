// SPDX-License-Identifier: Apache-2.0
// A scenario: what is trained, on what, under which schedule; read strictly, resolved completely.
#pragma once

#include "models/collectives.hpp"
#include "models/documents.hpp"
#include "models/layer_profile.hpp"
#include "models/perturbation.hpp"
#include "models/pipedream_profile.hpp"
#include "models/routing.hpp"
#include "models/stage_costs.hpp"
#include "models/training.hpp"
#include "scenarios/document.hpp"
#include "schedules/lowering.hpp"
#include "sim/engine.hpp"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace penstock {

class Documents;

/// About what an op of a run takes in memory: in its Program, Timeline and dependencies.
inline constexpr double kBytesPerOp = 64;

/// How the work is divided: the schedule, its shape, the mesh of GPUs, and what these share.
struct Parallelism {
  StackSpec stack{};  ///< the software that runs it
  /// An all-reduce among the tensor ranks of a virtual stage.
  PerStage<CollectivePrice> tensor_sum{};
  /// An all-to-all among the replicas that divide the states of a virtual stage's weights.
  PerStage<CollectivePrice> matrix_exchange{};
  const Schedule* schedule = nullptr;
  std::shared_ptr<const Schedule> own_schedule{};  ///< where it is the user's own
  ScheduleShape shape{};
  LoweringOptions lowering{};
  Mesh mesh{};
  std::int64_t microbatch_size = 1;
  PerStage<Recomputation> recompute = Recompute::none;  ///< by virtual stage
  bool sequence_parallel = false;
  ContextExchange context_exchange = ContextExchange::ring;
  bool tensor_overlap = false;     ///< sequence parallelism's exchanges go beside products
  bool transfers_divided = false;  ///< tensor ranks send parts of messages, which are then gathered
  Sharding sharding{};             ///< of weights, gradients and states among their sharers
  OptimizerSpec::Kind optimizer_kind = OptimizerSpec::Kind::adamw;  ///< whose steps take time
  std::optional<RoutingSpec> routing{};      ///< of tokens to experts; none: to all as many
  std::optional<DocumentsSpec> documents{};  ///< in sequences; none: each is one

  /// The GPUs of a device of the Program.
  const std::vector<int>& gpus_of(int device) const {
    return mesh.gpus[static_cast<std::size_t>(device)];
  }
  /// Replicas of each position, whether they take turns or divide every microbatch.
  std::vector<int> widths() const { return mesh.widths(shape.depth); }
  std::vector<int> stage_widths() const;  ///< of the position of each virtual stage
  /// Of each virtual stage, how many replicas divide its microbatches.
  std::vector<int> stage_parts() const { return stage_parts(placement()); }
  std::vector<int> stage_parts(const Placement& where) const;
  /// GPUs of all stages.
  std::int64_t gpu_count() const { return mesh.ranks(shape.depth); }
  /// Devices of the Program, and where they are.
  Placement placement() const;
  std::int64_t devices() const { return mesh.devices(shape.depth); }
  /// Samples of one weight update (of stage 0, where the stages differ), over all replicas.
  double samples_per_update() const;
};

struct Scenario;

/// One `--set key=value`. Keys reach any place (`pipeline.stages`); a key without dots when it is
/// unique among all keys.
struct Override {
  std::string key, value;
  std::string option = {};  ///< the name of the option that stands for it, in messages; "": --set
};

/// Splits "key=value". Throws InputError.
Override parse_override(const std::string& text);

/// A value of a key as the code that chooses it has it, where `--set` gives text.
struct Setting {
  /// `key`: its full path, such as pipeline.stages.
  Setting(std::string key, const auto& value) : key(std::move(key)), value(to_value(value)) {}

  /// Returns it as `--set` takes it: "pipeline.stages=8".
  std::string text() const;

  std::string key;
  Value value;
};
using Settings = std::vector<Setting>;

/// A scenario read once and resolved many times, each time as load_scenario would. Models, clusters
/// and devices that it names are read when they are first needed, and not again. Thread-safe.
/// Precondition of what is asked of one: it was not made by default.
class ScenarioTemplate {
 public:
  ScenarioTemplate() = default;
  /// Throws InputError when the file cannot be read.
  explicit ScenarioTemplate(const std::string& path);
  /// All files are read through `documents`.
  ScenarioTemplate(const std::string& path, std::shared_ptr<Documents> documents);
  /// Of this text; `origin` names it in errors. Throws InputError when it is no YAML.
  ScenarioTemplate(const std::string& text, const std::string& origin);
  ScenarioTemplate(const std::string& text, const std::string& origin,
                   std::shared_ptr<Documents> documents);
  /// The same of what was read already.
  ScenarioTemplate(Value document, const std::string& origin);
  /// Throws InputError with everything that is wrong.
  Scenario resolve(const std::vector<Override>& overrides) const;
  /// The same with other values, which are not printed and read again.
  Scenario with(const Settings& settings) const;

  /// What was read; of a resolved scenario with its overrides and settings.
  const Value& document() const;
  /// The document as YAML.
  std::string text() const;

  /// What is wrong with values each by itself; reads every file that is named (parts.hpp).
  std::vector<Diagnostic> check(const std::vector<Override>& overrides) const;
  /// The same of nothing but this change.
  std::vector<Diagnostic> check_alone(const Override& change) const;

 private:
  struct Files;
  explicit ScenarioTemplate(std::shared_ptr<const Files> files) : files_(std::move(files)) {}
  template <class Changes>
  Scenario resolve_changed(const Changes& changes) const;

  std::shared_ptr<const Files> files_;
};

struct Scenario : Parallelism {
  /// What F of all stages takes, where the model gives times; none where they follow from its
  /// shape.
  std::optional<double> given_forward_s_per_sample() const;
  std::string name;
  std::string origin;       ///< the file it was read from
  ScenarioTemplate source;  ///< what it was made from, the overrides applied

  /// What of the real model is left out (model.missing): memory is at least, speed at best what
  /// results say; and what is left out that saves memory (model.missing_saves): it is at most that.
  /// Of kFrozenWeights time is at most that, too, as they have no gradients to compute.
  std::string missing, missing_saves;
  /// All that is left out; "" where nothing is.
  std::string left_out() const;
  /// None where what is left out decides whether the model fits, which it does here or does not.
  std::optional<bool> fits_in_truth(bool fits_here) const;
  std::optional<TransformerSpec> transformer;  ///< none: an abstract model, given as costs
  std::optional<LayerProfile> layer_profile;   ///< costs by measurement instead of by formula
  std::optional<PipedreamProfile> profile;     ///< costs by layers; then no transformer
  ReductionOptions reduction;
  Cluster cluster;
  std::vector<int> layers;        ///< per virtual stage; empty for an abstract model
  std::vector<StageCosts> costs;  ///< per virtual stage
  bool costs_per_chunk = false;   ///< given as those of each chunk (`per: chunk`)
  /// Op times by kind of device where not all are alike; no kinds where they are.
  UnlikeDevices unlike;
  /// Microbatches smaller than the device's efficiency curve was measured with.
  bool optimistic = false;
  std::optional<std::int64_t> samples_per_epoch;
  PerturbationSpec perturbations;
  double attended = 1;  ///< attention's work over that of whole sequences, the mean
  OptimizerSpec optimizer;
  TrainingSpec training;
  std::vector<std::string> overrides;   ///< the --set it was read with, "key=value"
  std::vector<std::string> file_notes;  ///< those of other tools' files, whatever the job is
  std::vector<std::string> notes;       ///< what the reader decided or left out, for the user

  /// As YAML, the overrides applied.
  std::string text() const { return source.text(); }
  /// Of the smallest of a device's GPUs; 0 where none is known.
  std::int64_t capacity_bytes(int device) const;
};

/// What draws of microbatches come to.
struct DrawnLoads {
  double mean_rows = 1, most_rows = 1;  ///< of the GPU with most tokens, over the mean of all
  double dropped = 0;                   ///< share of tokens' choices
  double mean_attended = 1, least_attended = 1, most_attended = 1;  ///< of a microbatch
};
/// Draws what differs from microbatch to microbatch, where the scenario has routing or documents,
/// and sets its costs: of each one, and the mean. `sample` 0 is what a scenario that is read has.
DrawnLoads draw_microbatches(Scenario& scenario, std::uint32_t sample);
/// Does another sample differ?
bool samples_differ(const Scenario& scenario);

/// Does a part of the gradients leave before all of a device's are there: within its stage's last
/// backward, or before those of another stage?
bool overlaps_reduction(const Scenario& scenario);

/// The stages' costs with the times that their reductions take on this cluster.
std::vector<StageCosts> with_reduction_times(std::vector<StageCosts> costs, const Parallelism& job,
                                             const Cluster& cluster,
                                             const ReductionOptions& options);

/// The job's shape with what its schedule may look at: the stages' times and activations, in
/// seconds and bytes (or 1 each, where the model says nothing of bytes), and the time of a message.
ScheduleShape told_shape(const Parallelism& job, const std::vector<StageCosts>& costs,
                         const Cluster& cluster);

/// Of each virtual stage, its position; where two positions have the same stages, the first.
std::vector<std::uint32_t> sharing_positions(const Placement& placement);

/// Reads, checks and resolves a scenario. Throws InputError with everything that is wrong.
Scenario load_scenario(const std::string& path, const std::vector<Override>& overrides = {});
Scenario parse_scenario(const std::string& text, const std::string& origin,
                        const std::vector<Override>& overrides = {});

/// The folder with the shipped models/ and scenarios/: $PENSTOCK_HOME, else share/penstock of the
/// installation around this program, else where it was built.
std::string data_folder();

/// Names of the shipped models, devices or clusters ("models", "models/devices" ...), sorted.
std::vector<std::string> shipped_names(const std::string& folder);

TransformerSpec load_model(const std::string& name);
/// What of a job that trains adapters alone is left out (model.missing_saves).
inline constexpr const char* kFrozenWeights = "frozen weights";
/// Another tool's model.
struct ForeignModel {
  TransformerSpec model;
  std::string missing;             ///< model.missing: what the real model has more
  std::vector<std::string> notes;  ///< of what the file says
};
/// Returns what a file of Hugging Face's or Megatron's says. Throws InputError.
ForeignModel foreign_model(const std::string& path);
DeviceSpec load_device(const std::string& name);
/// The names of the files of kernel times that are shipped.
std::vector<std::string> kernel_files();
/// Returns whether a device's `kernels` is a file of its own, as `penstock calibrate --device`
/// writes it, and not the name of a shipped one.
bool is_kernel_path(const std::string& name);
/// Throws InputError where there is no such file.
KernelTimes load_kernel_file(const std::string& name);
/// What kernels take on this device, as measured or, of another device, as assumed; none where it
/// names no file.
std::optional<KernelTimes> load_kernel_times(const DeviceSpec& device);
StackSpec load_stack(const std::string& name);
Cluster load_cluster(const std::string& name);
/// Or of a map such as "{base: dgx-h100, nodes: 4}"; errors say that it is from `origin`.
Cluster load_cluster(const std::string& name, const std::string& origin);

}  // namespace penstock

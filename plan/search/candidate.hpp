// SPDX-License-Identifier: Apache-2.0
// What the search chooses among: everything `pipeline` says in a scenario, and its schedule.
//
// Choices are made from coarse to fine: a *shape* (depth, width, tensor degree, microbatch size), a
// *family* (a shape with its schedule, chunks and arrangement of ranks on GPUs), a *candidate* (a
// family with the layers and the recomputation of every stage). The global batch is the same for
// all: microbatches = batch / (microbatch size * width).
#pragma once

#include "scenarios/scenario.hpp"
#include "schedules/checked_program.hpp"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace penstock {

struct Shape {
  int depth = 1;   ///< p, devices of a pipeline
  int width = 1;   ///< replicas
  int tensor = 1;  ///< GPUs of every device
  std::int64_t microbatch_size = 1;
  std::int64_t microbatches = 1;    ///< per update and replica
  bool sequence_parallel = false;   ///< of several tensor ranks
  Sharded sharded = Sharded::none;  ///< among several replicas
  int context = 1;                  ///< groups of GPUs that divide every sequence

  int gpus() const { return depth * width * tensor * context; }
  /// GPUs that hold the same weights and add up their gradients.
  int sharers() const { return width * context; }
  bool operator==(const Shape&) const = default;
};

/// How ranks are laid out on the GPUs of a cluster.
struct Arrangement {
  std::string placement = "fill-node";
  std::string rank_order = "data-first";

  bool operator==(const Arrangement&) const = default;
};

struct PlanFamily {
  Shape shape;
  const Schedule* schedule = nullptr;
  int chunks = 1;
  Arrangement arrangement{};
  /// Of schedules with checkpoints (torchgpipe), whose stages are not told apart.
  Checkpoint checkpoint = Checkpoint::never;

  /// Virtual stages, each with layers of its own.
  int stages() const;
  /// The shape as schedules see it, of one update.
  ScheduleShape schedule_shape() const;
  /// Does the schedule admit it? Not asked of costs.
  bool admitted() const;
  std::string describe() const;
};

struct Candidate {
  PlanFamily family;
  std::vector<int> layers;  ///< per virtual stage, each at least 1; counted as the problem does
  std::vector<Recomputation> recompute{};  ///< per virtual stage; empty: none, or by checkpoints
};

/// All that a plan says: a candidate's, or that of a published planner, whose stages may have
/// different numbers of replicas and GPUs of their own.
struct Choice {
  PlanFamily family;                       ///< its width: of the stage with the most replicas
  std::vector<int> layers;                 ///< per virtual stage, of the model; empty: balanced
  std::vector<Recomputation> recompute{};  ///< per virtual stage; empty: none, or by checkpoints
  std::vector<int> widths{};               ///< per stage; empty: all have the family's
  bool divided = false;       ///< the replicas of a stage divide each microbatch among them
  std::vector<int> placed{};  ///< GPUs, stage after stage; empty: as the family is arranged
  bool overlaps = false;      ///< gradients are reduced beside the last backward, bucket by bucket

  int gpus() const;
};

/// Values of each choice.
struct Axes {
  std::vector<const Schedule*> schedules;
  std::vector<int> depths, widths, tensors;
  std::vector<int> contexts{1};
  std::vector<std::int64_t> microbatch_sizes;
  std::vector<Recomputation> recomputes;  ///< of a stage, the least first
  bool single_layers = false;  ///< a stage that may recompute none or all may recompute some
  std::vector<bool> sequence_parallel;  ///< what is tried first before
  std::vector<Sharded> sharded;         ///< the same

  std::vector<int> chunks;
  std::vector<Arrangement> arrangements;
};

inline constexpr std::string_view kCheckpointNames[] = {"always", "except_last", "never"};

/// What a scenario's keys say of what a choice recomputes. `layers`: of `recompute_method: block`,
/// where stages recompute some of theirs; with it the others are `full`, too, of none or of all.
struct RecomputeKeys {
  PerStage<Recompute> recompute = Recompute::none;
  std::optional<PerStage<int>> layers{};
};
RecomputeKeys recompute_keys(const Choice& choice);

/// Of the axes, the least first, each once.
std::vector<Recomputation> recomputes_of(const Axes& axes);

/// What a schedule with checkpoints may do where stages may recompute so.
std::vector<Checkpoint> checkpoints_of(const std::vector<Recomputation>& stages);

/// Why a scenario with perturbations is not planned.
inline constexpr const char* kPlansAreUndisturbed =
    "plans are searched for an undisturbed run: leave the perturbations out (--set "
    "'perturbations={}'), and put them into the plan's scenario to see what they do to it";

/// What a plan makes of a key of the scenario that is planned.
enum class Treatment : std::uint8_t {
  chosen,        ///< by the search, or kept as a value of what it chooses
  kept,          ///< as it is given
  of_given_job,  ///< of the schedule that the job has: plans have its usual value, which is said
  refused,       ///< where it says anything
};
/// Returns the treatment of a key of `section`, "scenario" or "pipeline", by its name in the keys'
/// table; none: the search does not know the key, and refuses it.
std::optional<Treatment> treatment_of(std::string_view section, std::string_view key);

/// What is trained on what: a scenario without its choices.
class Problem {
 public:
  /// `document`: a scenario; its model, cluster, software, transfers, and of its pipeline what the
  /// search does not choose (optimizer_sync, reduction; context, sequence_parallel and
  /// shard where they are given) are taken over. `batch`: samples per update; 0:
  /// those of the scenario. `headroom`: share of the devices' memory that plans leave free. Throws
  /// InputError, also for what plans can neither choose nor keep (perturbations).
  Problem(Value document, std::string origin, std::int64_t batch, double headroom = 0);
  Problem(const std::string& text, const std::string& origin, std::int64_t batch,
          double headroom = 0)
      : Problem(parse_document(text, origin), origin, batch, headroom) {}

  const Value& document() const { return document_; }
  std::string text() const { return to_yaml(document_); }
  const std::string& origin() const { return origin_; }
  const Scenario& base() const { return base_; }
  std::int64_t batch() const { return batch_; }
  double headroom() const { return headroom_; }
  /// Ops of an update, on all devices, up to which a plan is looked at: what is longer cannot be
  /// simulated, or not in the time there is.
  std::int64_t most_ops() const { return most_ops_; }
  void set_most_ops(std::int64_t most) { most_ops_ = std::min(most, most_ops_); }
  /// Do candidates with sequence parallelism exchange beside products?
  bool tensor_overlap() const { return tensor_overlap_; }
  /// Do candidates with tensor ranks send parts of messages?
  bool transfers_divided() const { return transfers_divided_; }
  /// That the search can cut between: those of a long profile are joined until few are left.
  int layers() const { return static_cast<int>(joined_.size()); }
  /// The layers of the model in consecutive runs of layers of the search.
  std::vector<int> in_model(const std::vector<int>& runs) const;
  /// All of them.
  int layers_in_model() const;
  int gpus() const { return base_.cluster.devices(); }

  /// The scenario with only those groups of nodes whose GPUs are of this kind; none where its
  /// cluster does not say its groups.
  std::optional<Value> document_of_kind(const std::string& device) const;

  /// All values: depths up to the layers; widths, microbatch sizes that divide the batch; tensor
  /// degrees that divide the model, within a node; chunks up to the layers; the schedules that keep
  /// one version of the weights, with `asynchronous` all.
  Axes axes(bool asynchronous) const;

  Choice choice(const Candidate& candidate) const;
  /// The plan as a scenario. Throws InputError when it cannot be one, or has too many ops.
  Scenario resolve(const Choice& choice) const;
  Scenario resolve(const Candidate& candidate) const { return resolve(choice(candidate)); }
  /// Of what was simulated last: plans that differ in their layers only have the same.
  ProgramCache* programs() const { return programs_.get(); }
  /// The layers of its stages that `split: balanced` gives a plan, which knows unlike devices.
  std::vector<int> balanced(Choice choice) const;

  /// Gradients are reduced in rings, after the last backward.
  bool plain_reduction() const { return plain_reduction_; }
  /// May a plan choose to reduce gradients beside the last backward, which costs nothing to set up?
  /// Not where the scenario or its software says how.
  bool may_overlap(const PlanFamily& family) const;
  /// Does selective recomputation free memory? Not where flash attention keeps no probabilities.
  bool selective_frees() const;
  /// Can a model of this sequence length be divided so? Never among one.
  bool admits_sequence_parallel(int tensor) const;
  /// Can its context ranks divide every sequence, as Megatron does, into two pieces each?
  bool cuts_sequences(const Shape& shape) const;
  /// What the scenario says; none: the search chooses.
  std::optional<bool> sequence_parallel() const { return sequence_parallel_; }
  std::optional<Sharded> sharded() const { return sharded_; }
  /// Are updated weights gathered during the next forward?
  bool gathers_late() const { return gathers_late_; }
  /// The degree of context parallelism that the scenario says; none: the search chooses.
  std::optional<int> context() const { return context_; }
  /// Why the scenario itself cannot run, which others of its shape can; "": it can.
  const std::string& why_not_as_given() const { return why_not_as_given_; }
  void set_why_not_as_given(std::string why) { why_not_as_given_ = std::move(why); }
  /// Keys of the pipeline that all plans have as they are given.
  std::vector<std::string> kept_keys() const;
  /// Keys of the pipeline that belong to the job as given, such as its schedule's group.
  const std::vector<std::string>& left_out() const { return left_out_; }

 private:
  Settings settings(const Choice& choice) const;
  Scenario resolve(const Settings& settings) const;

  Value document_;
  std::string origin_;
  ScenarioTemplate scenario_;  ///< what all plans keep
  Scenario base_;
  std::int64_t batch_ = 0;
  double headroom_ = 0;
  std::vector<int> joined_;  ///< layers of the model in each layer of the search
  std::optional<bool> sequence_parallel_;
  std::optional<Sharded> sharded_;
  std::optional<int> context_;
  std::vector<std::string> left_out_;
  std::string why_not_as_given_;
  std::int64_t most_ops_ = 0;
  bool plain_reduction_ = true;
  bool tensor_overlap_ = false, transfers_divided_ = false, gathers_late_ = false;
  std::shared_ptr<ProgramCache> programs_ = std::make_shared<ProgramCache>();
};

/// Returns sequence parallelism and what is sharded among so many GPUs with the same weights, of
/// such a tensor degree and depth, where they mean something.
std::vector<std::pair<bool, Sharded>> sharings_of(const Problem& problem, const Axes& axes,
                                                  int sharers, int tensor, int depth);

/// What is not looked at as it takes too long to simulate, and what would help; "": all is.
std::string too_long_text(const Problem& problem, const Axes& axes);

/// Compute ops of an update, on all devices.
std::int64_t ops_of(const Shape& shape, int stages);

/// Calls `take` with each depth, width, tensor and context degree that fit on the GPUs.
void for_each_mesh(const Problem& problem, const Axes& axes,
                   const std::function<void(int, int, int, int)>& take);

/// All that fit on the GPUs, divide the batch and have no more ops than the problem allows.
std::vector<Shape> shapes_of(const Problem& problem, const Axes& axes);

/// Batches that a run needs for a steady state: one where the pipeline drains at every update.
std::uint32_t batches_of(const Choice& choice);

}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
// What the search chooses among: everything that `pipeline` has in a scenario, and the schedule.
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
  int width = 1;   ///< replicas of every stage
  int tensor = 1;  ///< GPUs of every device
  std::int64_t microbatch_size = 1;
  std::int64_t microbatches = 1;    ///< per update and replica
  bool sequence_parallel = false;   ///< requires several tensor ranks
  Sharded sharded = Sharded::none;  ///< requires several replicas
  int context = 1;                  ///< groups of GPUs that divide every sequence
  int expert = 1;                   ///< GPUs of a position that divide the experts of a layer

  /// Returns the GPUs of a position of the pipeline.
  int position_gpus() const { return width * tensor * context; }
  int gpus() const { return depth * width * tensor * context; }
  /// Returns the number of GPUs that hold the same weights and all-reduce their gradients.
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
  /// The checkpoints of a schedule that has them (torchgpipe), alike for all stages.
  Checkpoint checkpoint = Checkpoint::never;

  /// Returns the number of virtual stages that have layers of their own.
  int stages() const;
  /// Returns the shape of one update as schedules see it.
  ScheduleShape schedule_shape() const;
  /// Returns whether the schedule admits it, whatever the costs.
  bool admitted() const;
  std::string describe() const;
};

struct Candidate {
  PlanFamily family;
  std::vector<int> layers;  ///< per virtual stage, each at least 1; counted as the problem does
  std::vector<Recomputation> recompute{};  ///< per virtual stage; empty: none, or by checkpoints
};

/// A plan: that of a candidate, or of a published planner, whose stages may differ in their
/// replicas and name their GPUs.
struct Choice {
  PlanFamily family;        ///< its width is that of the stage with the most replicas
  std::vector<int> layers;  ///< layers of the model per virtual stage; empty: balanced
  std::vector<Recomputation> recompute{};  ///< per virtual stage; empty: none, or by checkpoints
  std::vector<int> widths{};               ///< per stage; empty: all have the family's
  bool divided = false;       ///< whether the replicas of a stage divide each microbatch among them
  std::vector<int> placed{};  ///< GPUs, stage after stage; empty: as the family is arranged
  /// whether gradients are reduced beside the last backward, bucket by bucket
  bool overlaps = false;

  int gpus() const;
};

/// The values of each choice that the search may take.
struct Axes {
  std::vector<const Schedule*> schedules;
  std::vector<int> depths, widths, tensors;
  std::vector<int> contexts{1};
  std::vector<std::int64_t> microbatch_sizes;
  std::vector<Recomputation> recomputes;  ///< those of a stage, the least first
  /// whether a stage that may recompute none or all layers may recompute some
  bool single_layers = false;
  std::vector<bool> sequence_parallel;  ///< what is tried first stands first
  std::vector<Sharded> sharded;         ///< what is tried first stands first

  std::vector<int> chunks;
  std::vector<Arrangement> arrangements;
};

inline constexpr std::string_view kCheckpointNames[] = {"always", "except_last", "never"};

/// The values of a scenario's keys about recomputation. Where stages recompute some of their
/// layers, `layers` has the number of each stage (`recompute_method: block`), and every stage is
/// `full`, with none, some or all of its layers.
struct RecomputeKeys {
  PerStage<Recompute> recompute = Recompute::none;
  std::optional<PerStage<int>> layers{};
};
/// Returns the values of the keys that make a choice recompute what it does.
RecomputeKeys recompute_keys(const Choice& choice);

/// Returns the recomputations of the axes, the least first, each once.
std::vector<Recomputation> recomputes_of(const Axes& axes);

/// Returns the checkpoints that a schedule may have where stages may have these recomputations.
std::vector<Checkpoint> checkpoints_of(const std::vector<Recomputation>& stages);

/// Why a scenario with perturbations is not planned.
inline constexpr const char* kPlansAreUndisturbed =
    "plans are searched for an undisturbed run: leave the perturbations out (--set "
    "'perturbations={}'), and put them into the plan's scenario to see what they do to it";

/// Why one is not whose microbatches differ, by `key`.
inline std::string plans_are_even(std::string_view key) {
  return "plans are searched for microbatches that are alike: leave '" + std::string(key) +
         "' out, and put it into the plan's scenario to see what it does to it";
}

/// How a plan treats a key of the scenario that is planned.
enum class Treatment : std::uint8_t {
  chosen,  ///< the search chooses its value, or keeps the given one among those it chooses
  kept,    ///< every plan has the value that is given
  /// it belongs to the job's schedule; plans have the usual value, which a note says
  of_given_job,
  refused,  ///< it is an error to give it
};
/// Returns the treatment of a key of `section`, "scenario" or "pipeline", by its name in the keys'
/// table; none: the search does not know the key, and refuses it.
std::optional<Treatment> treatment_of(std::string_view section, std::string_view key);

/// The problem of a search: a scenario without its choices, that is, which model is trained on
/// which cluster.
class Problem {
 public:
  /// Makes the problem of a scenario, of which it takes over the model, the cluster, the software,
  /// the transfers, and what the search does not choose of the pipeline (optimizer_sync, reduction;
  /// context, sequence_parallel and shard where they are given). `batch` is the
  /// number of samples per update, 0 that of the scenario; `headroom` is the share of the devices'
  /// memory that plans leave free. Throws InputError, also for what plans can neither choose nor
  /// keep (perturbations).
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
  /// Returns the most ops of an update, on all devices, that a plan may have; a longer one cannot
  /// be simulated, or not in the time there is.
  std::int64_t most_ops() const { return most_ops_; }
  void set_most_ops(std::int64_t most) { most_ops_ = std::min(most, most_ops_); }
  /// Returns whether candidates with sequence parallelism exchange beside products.
  bool tensor_overlap() const { return tensor_overlap_; }
  /// Returns whether each tensor rank sends its part of a message.
  bool transfers_divided() const { return transfers_divided_; }
  /// Returns the number of layers that the search can cut between; those of a long profile are
  /// joined into fewer.
  int layers() const { return static_cast<int>(joined_.size()); }
  /// Returns the numbers of the model's layers in consecutive runs of layers of the search.
  std::vector<int> in_model(const std::vector<int>& runs) const;
  /// Returns the number of the model's layers.
  int layers_in_model() const;
  int gpus() const { return base_.cluster.devices(); }

  /// Returns the scenario with only those groups of nodes whose GPUs are of this kind; none where
  /// its cluster does not list groups.
  std::optional<Value> document_of_kind(const std::string& device) const;

  /// Returns all values: depths up to the layers; widths and microbatch sizes that divide the
  /// batch; tensor degrees that divide the model, within a node; chunks up to the layers; the
  /// schedules that keep one version of the weights, or all with `asynchronous`.
  Axes axes(bool asynchronous) const;

  /// Returns the plan of a candidate.
  Choice choice(const Candidate& candidate) const;
  /// Returns the plan as a scenario. Throws InputError when it cannot be one, or has too many ops.
  Scenario resolve(const Choice& choice) const;
  Scenario resolve(const Candidate& candidate) const { return resolve(choice(candidate)); }
  /// Returns the programs that were made lately; plans that differ only in their layers have the
  /// same.
  ProgramCache* programs() const { return programs_.get(); }
  /// Returns the layers of the stages that `split: balanced` gives a plan; it takes unlike devices
  /// into account.
  std::vector<int> balanced(Choice choice) const;

  /// Returns whether gradients are reduced in rings, after the last backward.
  bool plain_reduction() const { return plain_reduction_; }
  /// Returns whether a plan may choose to reduce gradients beside the last backward: not where the
  /// scenario or its software says how they are reduced.
  bool may_overlap(const PlanFamily& family) const;
  /// Returns whether selective recomputation frees memory; it does not where flash attention keeps
  /// no probabilities.
  bool selective_frees() const;
  /// Returns what selective recomputation makes again: the modules that the scenario says, or those
  /// of a mixture of experts that cost little; core attention otherwise.
  LayerParts modules() const;
  /// Returns whether so many tensor ranks (more than one) can divide the sequences of the model.
  bool admits_sequence_parallel(int tensor) const;
  /// Returns whether the context ranks can divide every sequence into two pieces each, as Megatron
  /// does.
  bool cuts_sequences(const Shape& shape) const;
  /// Return what the scenario says; none where the search chooses.
  std::optional<bool> sequence_parallel() const { return sequence_parallel_; }
  std::optional<Sharded> sharded() const { return sharded_; }
  /// Returns whether updated weights are gathered during the next forward.
  bool gathers_late() const { return gathers_late_; }
  /// Returns the degree of context parallelism that the scenario says; none where the search
  /// chooses.
  std::optional<int> context() const { return context_; }
  /// Returns why the scenario itself cannot run although others of its model and cluster can; ""
  /// where it can.
  const std::string& why_not_as_given() const { return why_not_as_given_; }
  void set_why_not_as_given(std::string why) { why_not_as_given_ = std::move(why); }
  /// Returns the keys of the pipeline that all plans have as they are given.
  std::vector<std::string> kept_keys() const;
  /// Returns the keys of the pipeline that belong to the job as given, such as its schedule's
  /// group.
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

/// Returns a note on what is left out because it takes too long to simulate, and what would help;
/// "" where nothing is.
std::string too_long_text(const Problem& problem, const Axes& axes);

/// Returns the number of compute ops of an update, on all devices.
std::int64_t ops_of(const Shape& shape, int stages);

/// Calls `take` with each depth, width, tensor and context degree that fit on the GPUs.
void for_each_mesh(const Problem& problem, const Axes& axes,
                   const std::function<void(int, int, int, int)>& take);

/// Returns all shapes that fit on the GPUs, divide the batch and have no more ops than the problem
/// allows.
std::vector<Shape> shapes_of(const Problem& problem, const Axes& axes);

/// Returns how many batches a run needs for a steady state: one where the pipeline drains at every
/// update.
std::uint32_t batches_of(const Choice& choice);

}  // namespace penstock

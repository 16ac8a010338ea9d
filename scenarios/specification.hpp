// SPDX-License-Identifier: Apache-2.0
// A scenario as it is written: a field for each key of the table (keys.hpp), of its type and with
// its place in the file. What is wrong with a value by itself is reported when it is read; what
// does not go together is found by the functions that make the set-up from it (resolve.hpp).
#pragma once

#include "models/collectives.hpp"
#include "models/documents.hpp"
#include "models/placement.hpp"
#include "models/routing.hpp"
#include "models/training.hpp"
#include "scenarios/library.hpp"

#include <type_traits>

namespace penstock {

template <class T>
std::optional<T> read_as(const Section& from, std::string_view key) {
  if constexpr (std::is_same_v<T, std::int64_t>) return from.integer(key);
  if constexpr (std::is_same_v<T, double>) return from.number(key);
  if constexpr (std::is_same_v<T, bool>) return from.boolean(key);
  if constexpr (std::is_same_v<T, std::string>) return from.text(key);
  if constexpr (std::is_same_v<T, std::vector<double>>) return from.list(key);
  if constexpr (std::is_same_v<T, std::vector<LayerParts>>) {
    const auto sets = from.choice_sets(key);
    if (!sets) return std::nullopt;
    T parts(sets->size());
    for (std::size_t i = 0; i < parts.size(); ++i)
      parts[i].bits = static_cast<std::uint8_t>((*sets)[i]);
    return parts;
  }
  if constexpr (std::is_enum_v<T>) {
    if (const auto place = from.choice(key)) return static_cast<T>(*place);
  }
  if constexpr (requires { requires std::is_enum_v<typename T::value_type>; }) {
    T values;
    for (const int place : from.choices(key).value_or(std::vector<int>{}))
      values.push_back(static_cast<typename T::value_type>(place));
    if (!values.empty()) return values;
  }
  return std::nullopt;
}

/// What a key was given: nothing, a value, or something that was refused.
template <class T>
struct Given {
  Given(const Section& from, std::string_view key)
      : there(from.has(key)),
        broken(there && from.broken(key)),
        value(there ? read_as<T>(from, key) : std::nullopt),
        at(there ? from.at(key) : from.self()),
        diagnostics_(from.diagnostics()) {}

  T value_or(T otherwise) const { return value.value_or(std::move(otherwise)); }
  bool is_list() const { return at.kind == Value::Kind::list; }
  void refuse(const std::string& why) const { diagnostics_.add_error(at, why); }

  bool there, broken;
  std::optional<T> value;  ///< where it is well-formed
  const Value& at;         ///< where it stands; of a missing key, its section

 private:
  Diagnostics& diagnostics_;
};

using Integer = Given<std::int64_t>;
using Flag = Given<bool>;
using Numbers = Given<std::vector<double>>;  ///< one number, or a list
struct Anything {};                          ///< read on its own, such as a section
using Part = Given<Anything>;

enum class RankOrder { data_first, pipeline_first };
enum class Replication { round_robin, split };
enum class Split { even, balanced };
enum class Reshard { automatic, always, never };
enum class WeightCopies { paper, code };
enum class Stashing { all, none };
enum class Overlap { none, backward, next_batch };
/// The algorithm behind those that have flows: a ring's time, on no link.
inline constexpr auto kFormula = static_cast<ReductionAlgorithm>(std::size(kReductionNames));

struct ReductionKeys {
  const Section& section;
  Given<ReductionAlgorithm> algorithm{section, "algorithm"};
  Given<Overlap> overlap{section, "overlap"};
  Integer buckets{section, "buckets"};
  Given<double> bucket_size{section, "bucket_size"};
  Given<Gathering> gather{section, "gather"};
  Integer servers{section, "servers"};
};

struct PipelineKeys {
  const Section& section;
  Integer stages{section, "stages"};
  Integer chunks{section, "chunks"};
  Integer group{section, "group"};
  Numbers offload{section, "offload"};
  Numbers memory_limit{section, "memory_limit"};
  Given<Checkpoint> checkpoint{section, "checkpoint"};
  Flag correction{section, "correction"};
  Numbers width{section, "width"};
  Integer tensor{section, "tensor"};
  Integer context{section, "context"};
  Integer ulysses{section, "ulysses"};
  Given<ContextExchange> context_exchange{section, "context_exchange"};
  Integer expert{section, "expert"};
  Integer expert_tensor{section, "expert_tensor"};
  Given<ExpertExchange> expert_exchange{section, "expert_exchange"};
  Integer expert_sms{section, "expert_sms"};
  Flag narrow_dispatch{section, "narrow_dispatch"};
  Flag expert_overlap{section, "expert_overlap"};
  Flag sequence_parallel{section, "sequence_parallel"};
  Flag tensor_overlap{section, "tensor_overlap"};
  Flag transfers_divided{section, "transfers_divided"};
  Flag distributed_optimizer{section, "distributed_optimizer"};
  Given<Sharded> shard{section, "shard"};
  Integer shard_group{section, "shard_group"};
  Given<Reshard> reshard_after_forward{section, "reshard_after_forward"};
  Integer unshard_lookahead{section, "unshard_lookahead"};
  Integer microbatch_size{section, "microbatch_size"};
  Integer microbatches{section, "microbatches"};
  Integer global_batch_size{section, "global_batch_size"};
  Integer accumulation_steps{section, "accumulation_steps"};
  Given<std::vector<Recompute>> recompute{section, "recompute"};
  Given<std::vector<LayerParts>> recompute_modules{section, "recompute_modules"};
  Given<RecomputeMethod> recompute_method{section, "recompute_method"};
  Numbers recompute_layers{section, "recompute_layers"};
  Given<Split> split{section, "split"};
  Numbers split_layers{section, "split"};
  Given<StepSync> optimizer_sync{section, "optimizer_sync"};
  Given<RankOrder> rank_order{section, "rank_order"};
  Given<Replication> replication{section, "replication"};
  Given<PlacementPolicy> placement{section, "placement"};
  Numbers placement_gpus{section, "placement"};
  Flag vertical_sync{section, "vertical_sync"};
  Given<Stashing> stashing{section, "stashing"};
  Given<WeightCopies> weight_copies{section, "weight_copies"};

  Integer size(Axis inner) const { return {section, traits(inner).name}; }
  bool divides_microbatches() const {
    return replication.value_or(Replication::round_robin) == Replication::split;
  }
};

struct RoutingKeys {
  const Section& section;
  Given<RoutingSpec::Load> load{section, "load"};
  Given<double> exponent{section, "exponent"};
  Given<double> hot_share{section, "hot_share"};
  Integer hot_experts{section, "hot_experts"};
  Integer period{section, "period"};
  Numbers histogram{section, "histogram"};
  Given<double> drift{section, "drift"};
  Given<double> capacity_factor{section, "capacity_factor"};
  Flag pad_to_capacity{section, "pad_to_capacity"};
  Integer redundant_experts{section, "redundant_experts"};
  Integer seed{section, "seed"};
};

struct DocumentsKeys {
  const Section& section;
  Numbers lengths{section, "lengths"};
  Numbers weights{section, "weights"};
  Given<std::string> file{section, "file"};
  Given<DocumentsSpec::Division> context_division{section, "context_division"};
  Integer seed{section, "seed"};
};

struct TrainingKeys {
  const Section& section;
  Given<OptimizerSpec::Kind> optimizer{section, "optimizer"};
  Given<double> learning_rate{section, "learning_rate"};
  Given<double> momentum{section, "momentum"};
  Given<double> weight_decay{section, "weight_decay"};
  Integer warmup{section, "warmup"};
  Given<TrainingSpec::Decay> decay{section, "decay"};
  Given<double> final_rate{section, "final_rate"};
  Given<double> clip{section, "clip"};
  Integer rescheduled{section, "rescheduled"};
  Flag discounted{section, "discounted"};
  Flag predicted{section, "predicted"};
  Flag error_feedback{section, "error_feedback"};
  Integer updates{section, "updates"};
  Given<std::string> data{section, "data"};
  Given<double> held_out{section, "held_out"};
  Integer evaluate_every{section, "evaluate_every"};
  Integer evaluation_microbatches{section, "evaluation_microbatches"};
  Given<TrainingSpec::Problem> problem{section, "problem"};
  Integer seed{section, "seed"};
};

/// The model: by shape (and perhaps measured), by costs of its stages, or by layers (a profile).
struct ModelSpecification {
  Section section;
  bool by_costs = false, by_layers = false;
  std::optional<TransformerSpec> transformer{};
  std::optional<LayerProfile> measured{};
  std::optional<PipedreamProfile> profile{};
  ParameterBytes profile_bytes{};
};

/// The stack of a job whose costs follow from its model's shape and that names none.
inline constexpr const char* kUsualStack = "megatron";
/// The same as a value of the scenario.
Value usual_stack(const Value& scenario);

/// Points into the document it was read from.
struct Specification {
  Specification(const Value& document, const std::string& folder, Documents& documents,
                Diagnostics& diagnostics);
  Specification(const Specification&) = delete;

  Diagnostics& diagnostics;  ///< to which all that does not go together is reported
  Section section;
  Given<std::string> name{section, "name"};
  Part model_key{section, "model"}, cluster_key{section, "cluster"};
  Part schedule_key{section, "schedule"}, pipeline_key{section, "pipeline"};
  Part routing_key{section, "routing"}, documents_key{section, "documents"};
  Part perturbations{section, "perturbations"}, training_key{section, "training"};
  Given<Transfers> transfers{section, "transfers"};
  Integer batches{section, "batches"};
  Integer samples_per_epoch{section, "samples_per_epoch"};
  Integer most_ops{section, "most_ops"};
  Section pipeline_section;
  PipelineKeys pipeline{pipeline_section};
  /// What reading the files it names left to say.
  const std::vector<std::string>& notes_of_files() const { return library.notes(); }

  Library library;
  std::optional<ModelSpecification> model;  ///< none: missing, or not found
  StackSpec stack;  ///< the usual one of a model by shape where the scenario names none
  std::optional<Section> cluster_section;
  std::shared_ptr<const Schedule> own_schedule;
  const Schedule* schedule = nullptr;  ///< null: missing, or unknown
  Section reduction_section;
  ReductionKeys reduction{reduction_section};
  Section routing_section;
  RoutingKeys routing{routing_section};
  Section documents_section;
  DocumentsKeys documents{documents_section};
  std::string lengths_file;  ///< that `documents.file` names; empty where it names none
  std::string lengths_text;  ///< what it says
  Section training_section;
  TrainingKeys training{training_section};
  std::string training_text;  ///< the file that `data` names, absolute; empty where it names none
  Diagnostics cluster_problems;
  Cluster cluster;  ///< of no devices where it has as many as are needed

  bool by_costs() const { return model && model->by_costs; }
  bool by_layers() const { return model && model->by_layers; }
  /// Times do not follow from a shape.
  bool given_costs() const { return by_costs() || by_layers(); }
  const TransformerSpec* transformer() const {
    return model && model->transformer ? &*model->transformer : nullptr;
  }
  const LayerProfile* layer_profile() const {
    return model && model->measured ? &*model->measured : nullptr;
  }
};

}  // namespace penstock

#include "scenarios/tensor.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace penstock {
namespace {

/// What a tensor degree must divide: how many, and of what.
using Divided = std::vector<std::pair<std::int64_t, const char*>>;

Divided divided_by_tensor(const TransformerSpec& model, bool sequence) {
  Divided parts{{model.num_attention_heads, "attention heads"}};
  if (model.num_query_groups != model.num_attention_heads)
    parts.emplace_back(model.num_query_groups, "key/value heads");
  parts.emplace_back(model.ffn_hidden_size, "columns of the MLP (ffn_hidden_size)");
  if (sequence) parts.emplace_back(model.seq_length, "tokens of a sequence (sequence_parallel)");
  return parts;
}

/// The legal degrees next to one that is not: those that divide the greatest common divisor.
std::string nearest_degrees(const Divided& parts, std::int64_t degree) {
  std::int64_t common = 0;
  for (const auto& part : parts) common = std::gcd(common, part.first);
  if (degree > common) return fmt::format("the largest that does is {}", common);
  std::int64_t below = degree, above = degree;
  while (common % below != 0) --below;
  while (common % above != 0) ++above;
  return fmt::format("the nearest that do are {} and {}", below, above);
}

void check_division(const Section& pipeline, const TransformerSpec& model, int degree,
                    bool sequence, Diagnostics& diagnostics) {
  const Divided parts = divided_by_tensor(model, sequence);
  std::vector<std::string> undivided;
  for (const auto& [count, what] : parts) {
    if (count % degree != 0) undivided.push_back(fmt::format("{} {}", count, what));
  }
  if (undivided.empty()) return;
  diagnostics.add(pipeline.at("tensor"),
                  fmt::format("a tensor degree of {} does not divide the model's {}; {}", degree,
                              fmt::join(undivided, " and "), nearest_degrees(parts, degree)));
}

/// Megatron cuts a sequence into 2c pieces, of which each rank has one of the first half and one of
/// the second, so that causal attention is as much work for all.
void check_context(const Section& pipeline, const TransformerSpec& model, const Mesh& mesh,
                   bool sequence, Diagnostics& diagnostics) {
  if (mesh.context == 1) return;
  const std::int64_t ranks = sequence ? mesh.tensor : 1;
  if (model.seq_length % (2 * ranks * mesh.context) == 0) return;
  const std::int64_t most = model.seq_length / (2 * ranks);
  std::int64_t below = std::min<std::int64_t>(mesh.context, most);
  while (below > 1 && model.seq_length % (2 * ranks * below) != 0) --below;
  diagnostics.add(
      pipeline.at("context"),
      fmt::format(
          "a context degree of {} does not cut a sequence of {} tokens into two equal pieces "
          "per rank{}; the next lower one that does is {}",
          mesh.context, model.seq_length,
          ranks > 1 ? fmt::format(" that {} tensor ranks can divide", ranks) : "",
          std::max<std::int64_t>(below, 1)));
}

/// Costs that are given or measured say nothing of a part of a stage.
void refuse_given_costs(const Section& pipeline, const Scenario& scenario, bool abstract,
                        Diagnostics& diagnostics) {
  if (!abstract && !scenario.measured) return;
  const auto refuse = [&](std::string_view name) {
    const std::string key(name);
    const char* why = abstract ? "needs a model by shape; this one gives its costs per device"
                               : "needs costs by formula; measured ones are those of whole stages "
                                 "(leave out the model's 'measured')";
    diagnostics.add(pipeline.at(key), fmt::format("'{}' {}", key, why));
  };
  for (const Axis axis : kInnerAxes)
    if (scenario.mesh.size(axis) > 1) refuse(words(axis).name);
  if (scenario.transfers_divided) refuse("transfers_divided");
  if (scenario.distributed_optimizer) refuse("distributed_optimizer");
}

bool shape_known(const Section& model) {
  const auto fine = [&](const char* key) { return model.has(key) && !model.broken(key); };
  return fine("num_attention_heads") && fine("hidden_size") && fine("seq_length") &&
         !model.broken("num_query_groups") && !model.broken("ffn_hidden_size");
}

}  // namespace

void read_tensor(const Section& pipeline, const std::optional<Section>& model, bool abstract,
                 Scenario& scenario, Diagnostics& diagnostics) {
  scenario.mesh.tensor = static_cast<int>(pipeline.integer("tensor").value_or(1));
  scenario.mesh.context = static_cast<int>(pipeline.integer("context").value_or(1));
  // Ranks that have the same weights and other tokens reduce their gradients.
  scenario.lowering.divided = scenario.lowering.divided || scenario.mesh.context > 1;
  scenario.sequence_parallel = pipeline.boolean("sequence_parallel").value_or(false);
  scenario.distributed_optimizer = pipeline.boolean("distributed_optimizer").value_or(false);
  scenario.transfers_divided = pipeline.boolean("transfers_divided").value_or(false);
  if (scenario.sequence_parallel && scenario.mesh.tensor == 1 && !pipeline.broken("tensor")) {
    diagnostics.add(pipeline.at("sequence_parallel"),
                    "'sequence_parallel' divides what tensor parallelism leaves whole: it needs a "
                    "'tensor' of 2 or more");
  }
  if (scenario.transfers_divided && scenario.mesh.tensor == 1 && !pipeline.broken("tensor") &&
      scenario.transformer && !scenario.measured) {
    diagnostics.add(pipeline.at("transfers_divided"),
                    "'transfers_divided' divides messages among tensor ranks: it needs a 'tensor' "
                    "of 2 or more");
  }
  if (scenario.distributed_optimizer && scenario.mesh.sharers() == 1 && !pipeline.broken("width")) {
    scenario.distributed_optimizer = false;  // as Megatron-LM does
    scenario.notes.push_back(
        "distributed_optimizer changes nothing: it divides the optimizer's state among replicas, "
        "and there is one");
  }
  const bool asynchronous = scenario.schedule != nullptr && scenario.schedule->asynchronous;
  if (scenario.distributed_optimizer && asynchronous) {
    diagnostics.add(pipeline.at("distributed_optimizer"),
                    fmt::format("'{}' has parameter servers, which keep the optimizer's state",
                                scenario.schedule->name));
  }
  if (scenario.distributed_optimizer && !scenario.mesh.width.alike()) {
    diagnostics.add(pipeline.at("distributed_optimizer"),
                    "'distributed_optimizer' needs as many replicas of every stage");
  }
  refuse_given_costs(pipeline, scenario, abstract, diagnostics);
  if (!scenario.transformer || scenario.measured || !shape_known(*model)) return;
  check_division(pipeline, *scenario.transformer, scenario.mesh.tensor, scenario.sequence_parallel,
                 diagnostics);
  check_context(pipeline, *scenario.transformer, scenario.mesh, scenario.sequence_parallel,
                diagnostics);
}

void note_tensor(Scenario& scenario) {
  if (scenario.mesh.tensor == 1) return;
  const TransformerSpec& model = *scenario.transformer;
  const std::int64_t rows = model.vocab_rows({scenario.mesh.tensor, false}) * scenario.mesh.tensor;
  if (rows != model.vocab_size) {
    scenario.notes.push_back(
        fmt::format("the vocabulary of {} is padded to {}, a multiple of 128 x tensor {}",
                    model.vocab_size, rows, scenario.mesh.tensor));
  }
  const Cluster& cluster = scenario.cluster;
  const bool nodes = !cluster.link && !cluster.network && cluster.nodes > 1;
  if (nodes && cluster.devices_per_node % scenario.mesh.tensor != 0) {
    scenario.notes.push_back(
        fmt::format("the {} GPUs of a stage span nodes of {}: every layer's all-reduces cross the "
                    "network",
                    scenario.mesh.tensor, cluster.devices_per_node));
  }
}

StageCostOptions cost_options(const Scenario& scenario) {
  return {.microbatch_size = static_cast<double>(scenario.microbatch_size),
          .recompute = scenario.recompute,
          .tensor = {scenario.mesh.tensor, scenario.sequence_parallel, scenario.transfers_divided},
          .context = scenario.mesh.context,
          .optimizer_shards = scenario.distributed_optimizer ? scenario.mesh.sharers() : 1};
}

}  // namespace penstock

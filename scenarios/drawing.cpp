// SPDX-License-Identifier: Apache-2.0
// What differs from microbatch to microbatch: which experts its tokens go to, and how long its
// documents are. Each microbatch of a stage is drawn, and its ops cost what the stage's costs are
// for its loads: the mean over the stage's layers of the GPU that gets most of a layer's tokens.
// What a device keeps of a microbatch follows the tokens of its own GPU.
#include "base/numbers.hpp"
#include "base/units.hpp"
#include "scenarios/resolve.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <sstream>

namespace penstock {
namespace {

constexpr double kMostExponent = 100, kMostDrift = 10;

template <class Key>
void refuse_unless(const Key& key, bool meant, const char* of) {
  if (key.there && !meant) key.refuse(fmt::format("has a meaning with {} only", of));
}

/// Refuses what is listed of experts and cannot be.
void check_histogram(const RoutingKeys& keys, const Experts& experts) {
  const std::vector<double> counts = keys.histogram.value_or({});
  if (keys.histogram.broken) return;
  const double sum = std::accumulate(counts.begin(), counts.end(), 0.0);
  if (counts.size() != static_cast<std::size_t>(experts.count))
    return keys.histogram.refuse(
        fmt::format("'histogram' lists {} experts, a layer has {}", counts.size(), experts.count));
  if (sum <= 0) return keys.histogram.refuse("no expert of 'histogram' has any tokens");
  const auto most = std::ranges::max_element(counts);
  if (*most > sum / experts.top_k * (1 + 1e-6))
    keys.histogram.refuse(fmt::format(
        "expert {} has {} of all choices, but a token has {} different experts, so that "
        "none has more than {}",
        most - counts.begin(), format_percent(*most / sum), experts.top_k,
        format_percent(1.0 / experts.top_k)));
}

/// Refuses keys that this load does not have, and values that nothing can be.
void check_routing(const RoutingKeys& keys, const RoutingSpec& routing, const Experts& experts,
                   const Mesh& mesh) {
  using Load = RoutingSpec::Load;
  const Load load = routing.load;
  const bool bursts = load == Load::burst, rotates = load == Load::rotating;
  const bool hot = load == Load::hot_experts || load == Load::hot_rank || load == Load::spread ||
                   rotates || bursts;
  const char* const kHot = "load: hot-experts, hot-rank, spread, rotating or burst";
  refuse_unless(keys.exponent, load == Load::zipf, "load: zipf");
  refuse_unless(keys.hot_share, hot, kHot);
  refuse_unless(keys.hot_experts, hot, kHot);
  refuse_unless(keys.period, rotates || bursts, "load: rotating or burst");
  refuse_unless(keys.histogram, load == Load::histogram, "load: histogram");
  refuse_unless(keys.seed, routing.drawn(),
                "load: zipf, hot-experts, rotating or burst, or with drift: nothing else is drawn");
  if (load == Load::histogram && !keys.histogram.there)
    keys.section.refuse("load: histogram needs the tokens of each expert ('histogram')");
  if (load == Load::histogram && keys.histogram.there) check_histogram(keys, experts);
  if (routing.exponent > kMostExponent)
    keys.exponent.refuse(fmt::format("'exponent' must be at most {}", kMostExponent));
  if (routing.drift > kMostDrift)
    keys.drift.refuse(fmt::format("'drift' must be at most {}: it is of logarithms", kMostDrift));
  for (const Integer* key : {&keys.hot_experts, &keys.redundant_experts})
    if (key->value_or(0) > experts.count)
      key->refuse(fmt::format("a layer has {} experts, got {}", experts.count, *key->value));
  if (keys.capacity_factor.value && *keys.capacity_factor.value <= 0)
    keys.capacity_factor.refuse("'capacity_factor' must be more than 0; leave it out to drop none");
  if (routing.padded && !keys.capacity_factor.there)
    keys.pad_to_capacity.refuse("'pad_to_capacity' pads to 'capacity_factor', which is missing");
  if (routing.redundant > 0 && mesh.expert <= 1)
    keys.redundant_experts.refuse(
        "a second place is on another GPU: 'redundant_experts' needs pipeline.expert of 2 or more");
}

RoutingSpec routing_of(const RoutingKeys& keys) {
  const auto count = [](const Integer& key) {
    return static_cast<int>(std::min<std::int64_t>(key.value_or(0), 1'000'000'000));
  };
  RoutingSpec r;
  r.load = keys.load.value_or(keys.histogram.there ? RoutingSpec::Load::histogram : r.load);
  r.exponent = keys.exponent.value_or(r.exponent);
  r.hot_share = keys.hot_share.value_or(r.hot_share);
  r.hot_experts = count(keys.hot_experts);
  r.period = count(keys.period);
  r.histogram = keys.histogram.value_or({});
  r.drift = keys.drift.value_or(0);
  r.capacity_factor = keys.capacity_factor.value_or(0);
  r.padded = keys.pad_to_capacity.value_or(false);
  r.redundant = count(keys.redundant_experts);
  r.seed = static_cast<std::uint64_t>(keys.seed.value_or(1));
  return r;
}

/// Reads a file of lengths: a line for each, which may say how often it comes up.
void read_lengths(const Specification& spec, DocumentsSpec& documents) {
  std::istringstream lines(spec.lengths_text);
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    std::ranges::replace(line, ',', ' ');
    std::istringstream words(line.substr(0, line.find('#')));
    std::vector<std::string> parts;
    for (std::string word; words >> word;) parts.push_back(word);
    if (parts.empty()) continue;
    const auto length = parse_number<std::int64_t>(parts[0]);
    const auto often =
        parts.size() > 1 ? parse_number<std::int64_t>(parts[1]) : std::optional<std::int64_t>(1);
    if (parts.size() > 2 || !length || *length < 1 || !often || *often < 0) {
      spec.documents.file.refuse(
          fmt::format("{}:{}: must be a length in tokens, or 'length count', got '{}'",
                      printable(spec.lengths_file), number, printable(line)));
      return;
    }
    documents.lengths.push_back(static_cast<double>(*length));
    documents.weights.push_back(static_cast<double>(*often));
  }
  if (documents.lengths.empty())
    spec.documents.file.refuse(fmt::format("{} has no lengths", printable(spec.lengths_file)));
}

DocumentsSpec documents_of(const Specification& spec) {
  const DocumentsKeys& keys = spec.documents;
  DocumentsSpec d;
  d.division = keys.context_division.value_or(d.division);
  d.seed = static_cast<std::uint64_t>(keys.seed.value_or(1));
  if (keys.file.there == keys.lengths.there) {
    keys.section.refuse("'documents' needs either 'lengths' or a 'file' of them");
    return d;
  }
  if (keys.file.there) {
    refuse_unless(keys.weights, false, "lengths");
    if (!spec.lengths_file.empty()) read_lengths(spec, d);
  } else {
    d.lengths = keys.lengths.value_or({});
    d.weights = keys.weights.value_or({});
  }
  if (keys.lengths.broken || keys.weights.broken) return d;
  for (const double length : d.lengths)
    if (length < 1 || length != std::floor(length)) {
      keys.lengths.refuse(fmt::format("a document has a whole number of tokens, got {:g}", length));
      break;
    }
  if (keys.weights.there && d.weights.size() != d.lengths.size())
    keys.weights.refuse(fmt::format("'weights' lists {} lengths, 'lengths' {}", d.weights.size(),
                                    d.lengths.size()));
  else if (!d.weights.empty() && std::accumulate(d.weights.begin(), d.weights.end(), 0.0) <= 0)
    (keys.file.there ? keys.file.refuse("no length of it comes up")
                     : keys.weights.refuse("no length has a weight of more than 0"));
  return d;
}

/// Reports what cannot differ by microbatch in this job.
void check_job(const Specification& spec, const Parallelism& job, const Part& key) {
  if (spec.given_costs() || spec.layer_profile())
    return key.refuse(
        "what differs by microbatch follows from a model's shape, and this one's costs are given "
        "or "
        "measured");
  const Schedule* schedule = job.schedule;
  if (schedule == nullptr) return;
  if (schedule->whole_backward)
    key.refuse(
        fmt::format("'{}' has one backward for all microbatches of an update: what differs "
                    "by microbatch is not modelled there",
                    schedule->name));
  if (schedule->checkpoints && job.shape.checkpoint != Checkpoint::always)
    key.refuse(
        fmt::format("'{}' stores some microbatches and recomputes others; what else differs "
                    "by microbatch needs checkpoint: always",
                    schedule->name));
}

/// Returns the microbatches of the run, of all replicas.
double run_microbatches(const Parallelism& job) {
  return double(job.shape.microbatches_per_update) * job.shape.batches * job.mesh.most();
}

/// Reports what would take minutes to draw.
void check_draws(const Specification& spec, const Parallelism& job, const TransformerSpec& model,
                 const DocumentsSpec& documents) {
  constexpr double kMost = 1e8;
  double tokens = 0, often = 0;
  for (std::size_t i = 0; i < documents.lengths.size(); ++i) {
    // As many weights as lengths, or an error has been reported.
    const double weight = i < documents.weights.size() ? documents.weights[i] : 1;
    tokens += weight * documents.lengths[i];
    often += weight;
  }
  const double drawn = run_microbatches(job) * static_cast<double>(job.microbatch_size) *
                       (1 + static_cast<double>(model.seq_length) * often / std::max(1.0, tokens));
  if (drawn > kMost)
    spec.documents_key.refuse(
        fmt::format("the run would draw about {:.2g} documents, more than {:.0g}: simulate fewer "
                    "microbatches, batches or replicas",
                    drawn, kMost));
}

}  // namespace

void set_draws(const Specification& spec, Parallelism& job) {
  const TransformerSpec* model = spec.transformer();
  // An empty map says nothing: `--set 'routing={}'` takes it out.
  const auto given = [](const Part& key) {
    return key.there && !key.broken && !key.at.entries.empty();
  };
  if (given(spec.routing_key)) {
    check_job(spec, job, spec.routing_key);
    if (model != nullptr && model->experts) {
      job.routing = routing_of(spec.routing);
      check_routing(spec.routing, *job.routing, *model->experts, job.mesh);
      const double drawn =
          run_microbatches(job) / job.mesh.most() * model->num_layers * model->experts->count;
      if (job.routing->drift > 0 && drawn > 1e9)
        spec.routing.drift.refuse(fmt::format(
            "the run would draw {:.2g} steps of experts: simulate fewer microbatches", drawn));
    } else if (model != nullptr) {
      spec.routing_key.refuse("the model has no experts (num_experts)");
    }
  }
  if (!given(spec.documents_key)) return;
  check_job(spec, job, spec.documents_key);
  const DocumentsSpec documents = documents_of(spec);
  if (model == nullptr) return;
  if (!model->flash_attention)
    spec.documents_key.refuse(
        "without flash attention all pairs of a sequence are computed, whatever its documents are: "
        "it needs model.flash_attention: true");
  if (job.mesh.divided)
    spec.documents_key.refuse(
        "replicas that split each microbatch (replication: split) would have "
        "different documents of it, which is not modelled");
  if (documents.division == DocumentsSpec::Division::sequences &&
      (job.mesh.size(Axis::context) == 1 || job.context_exchange == ContextExchange::all_to_all))
    spec.diagnostics.note(
        "documents.context_division changes nothing: no context ranks divide sequences");
  check_draws(spec, job, *model, documents);
  job.documents = documents;
}

bool samples_differ(const Scenario& s) {
  return s.documents || (s.routing && s.routing->drawn()) || s.perturbations.jitter;
}

namespace {

/// Returns 1 for a load that differs from it by rounding alone, so that balanced loads cost to the
/// last bit what they did.
double snapped(double load) { return std::abs(load - 1) < 1e-9 ? 1 : load; }

/// What each microbatch and device has of its own, in steps of a quarter of a per cent, so that few
/// costs stand for many.
double stepped(double load) {
  constexpr double kSteps = 400;
  return std::exp(std::round(kSteps * std::log(load)) / kSteps);
}

/// The layers of a stage that have experts, numbered as in the model; those that predict further
/// tokens follow.
std::vector<int> routed_layers(const TransformerSpec& model, const LayerSpan& stage) {
  std::vector<int> layers;
  for (int layer = stage.begin; layer < stage.end(); ++layer)
    if (model.has_experts(layer)) layers.push_back(layer);
  for (int i = 0; stage.last && i < model.mtp_layers; ++i)
    if (model.has_experts(model.num_layers - 1)) layers.push_back(model.num_layers + i);
  return layers;
}

/// What the microbatches of the run are, stage by stage.
class Draw {
 public:
  Draw(Scenario& scenario, std::uint32_t sample)
      : scenario_(scenario),
        sample_(sample),
        placement_(scenario.placement()),
        round_(placement_.round()),
        costs_(scenario) {
    slots_ = scenario.shape.microbatches_per_update * scenario.shape.batches;
    if (scenario.documents) draw_documents();
  }

  DrawnLoads draw() {
    const std::vector<LayerSpan> stages = spans_of_stages(scenario_.layers);
    for (std::uint32_t s = 0; s < stages.size(); ++s) draw_stage(s, stages[s]);
    if (parts_ > 0) {
      loads_.mean_rows = rows_sum_ / parts_;
      loads_.dropped = dropped_sum_ / parts_;
    }
    scenario_.attended = loads_.mean_attended;
    return loads_;
  }

 private:
  void draw_documents() {
    const auto& model = *scenario_.transformer;
    const int context = scenario_.mesh.size(Axis::context);
    const bool whole = scenario_.context_exchange == ContextExchange::all_to_all;
    attended_.resize(std::size_t{slots_} * round_);
    double sum = 0;
    loads_.least_attended = 1e300;
    loads_.most_attended = 0;
    for (std::uint32_t r = 0; r < round_; ++r) {
      DocumentStream stream(*scenario_.documents, model.seq_length,
                            (std::uint64_t{sample_} << 32) + r);
      for (std::uint32_t slot = 0; slot < slots_; ++slot) {
        std::vector<Pieces> sequences;
        for (std::int64_t i = 0; i < scenario_.microbatch_size; ++i)
          sequences.push_back(stream.next());
        const Attended drawn =
            penstock::attended(model, sequences, scenario_.documents->division, context, whole);
        attended_[slot * round_ + r] = stepped(drawn.slowest);
        sum += drawn.mean;
        loads_.least_attended = std::min(loads_.least_attended, drawn.mean);
        loads_.most_attended = std::max(loads_.most_attended, drawn.mean);
      }
    }
    loads_.mean_attended = snapped(sum / static_cast<double>(attended_.size()));
  }

  /// Replicas that exchange tokens in a layer wait for the one whose attention takes longest.
  double attended_by(std::uint32_t microbatch, bool with_others) const {
    if (!with_others) return attended_[microbatch];
    const Mesh& mesh = scenario_.mesh;
    const auto together = static_cast<std::uint32_t>(
        std::max(1, mesh.expert * mesh.expert_tensor / mesh.replica_gpus()));
    const std::uint32_t slot = microbatch / round_ * round_;
    const std::uint32_t first = microbatch % round_ / together * together;
    const auto at = attended_.begin() + slot;
    return *std::max_element(at + first, at + std::min(first + together, round_));
  }

  /// By microbatch of a replica, the means over a stage's layers.
  struct StageLoad {
    double rows = 0, received = 0, skew = 0;
    std::vector<double> of_gpu{};
  };

  std::vector<StageLoad> routed(const std::vector<int>& layers) {
    const Mesh& mesh = scenario_.mesh;
    const int gpus = std::max(1, mesh.expert);
    const int node = std::clamp(scenario_.cluster.devices_per_node / mesh.expert_tensor, 1, gpus);
    // Who gets a token once gets it however many of its experts are there.
    const auto visits = [&](double share) {
      return 1 - std::pow(1 - std::min(1.0, share), mesh.routing.per_token);
    };
    const auto received = [&](const RoutedLoad& load) {
      if (!mesh.routing.once_per_node) return load.most;
      // GPUs of a node pass copies on.
      const double members = node < gpus ? static_cast<double>(node) / gpus : 1.0 / gpus;
      return visits((node < gpus ? load.of_node : load.most) * members) / visits(members);
    };
    std::vector<StageLoad> stage(slots_);
    const auto n = static_cast<double>(layers.size());
    for (const int layer : layers) {
      const std::vector<RoutedLoad> loads = routed_loads(
          *scenario_.routing, *scenario_.transformer->experts, gpus, node, layer, sample_, slots_);
      for (std::uint32_t slot = 0; slot < slots_; ++slot) {
        const RoutedLoad& load = loads[slot];
        StageLoad& sum = stage[slot];
        sum.rows += load.most / n;
        sum.received += received(load) / n;
        sum.skew += load.skew / n;
        sum.of_gpu.resize(load.of_gpu.size());
        for (std::size_t g = 0; g < load.of_gpu.size(); ++g) sum.of_gpu[g] += load.of_gpu[g] / n;
        rows_sum_ += load.most;
        dropped_sum_ += load.dropped;
        loads_.most_rows = std::max(loads_.most_rows, load.most);
        ++parts_;
      }
    }
    return stage;
  }

  /// Returns the rows of the experts of that GPU of a device which has most.
  double own_rows(const StageLoad& load, int device) const {
    const Mesh& mesh = scenario_.mesh;
    const std::size_t each = scenario_.gpus_of(device).size();
    const std::size_t first = mesh.divided ? 0 : std::size_t{placement_.replica_of(device)} * each;
    double most = 0;
    for (std::size_t i = first; i < first + each; ++i)
      most = std::max(
          most, load.of_gpu[i / static_cast<std::size_t>(mesh.expert_tensor) % load.of_gpu.size()]);
    return most;
  }

  void draw_stage(std::uint32_t s, const LayerSpan& span) {
    const std::vector<int> layers =
        scenario_.routing ? routed_layers(*scenario_.transformer, span) : std::vector<int>();
    const std::vector<StageLoad> loads = layers.empty() ? std::vector<StageLoad>() : routed(layers);
    auto drawn = std::make_shared<DrawnCosts>();
    const bool with_experts = !routed_layers(*scenario_.transformer, span).empty();
    std::map<Uneven, std::uint32_t> known;
    const auto place_of = [&](const Uneven& uneven) {
      const auto [found, added] =
          known.try_emplace(uneven, static_cast<std::uint32_t>(drawn->passes.size()));
      if (added) drawn->passes.push_back(costs_.of(s, uneven));
      return found->second;
    };
    Uneven mean{0, 0, 0, 0};
    const std::uint32_t microbatches = slots_ * round_;
    for (std::uint32_t m = 0; m < microbatches; ++m) {
      Uneven here;
      Uneven kept;
      if (!loads.empty()) {
        const StageLoad& load = loads[m / round_];
        here = {snapped(load.rows), snapped(load.received), snapped(1 + load.skew) - 1};
        kept.rows = stepped(own_rows(load, placement_.device_of(s, m)));
      }
      if (!attended_.empty())
        here.attended = attended_by(m, scenario_.mesh.expert > 1 && with_experts);
      drawn->times.push_back(place_of(here));
      drawn->held.push_back(place_of(kept));
      mean.rows += here.rows / microbatches;
      mean.received += here.received / microbatches;
      mean.skew += here.skew / microbatches;
      mean.attended += here.attended / microbatches;
    }
    mean = {snapped(mean.rows), snapped(mean.received), mean.skew, snapped(mean.attended)};
    set_costs(s, mean, std::move(drawn));
  }

  void set_costs(std::uint32_t s, const Uneven& mean, std::shared_ptr<DrawnCosts> drawn) {
    StageCosts& costs = scenario_.costs[s];
    const bool alike = drawn->passes.size() == 1;
    static_cast<PassCosts&>(costs) = alike ? drawn->passes[0] : costs_.of(s, mean);
    // FLOPs of the model are those of its tokens, whoever has them.
    const PassCosts flops = costs_.of(s, {.attended = loads_.mean_attended});
    const auto set_flops = [&](PassCosts& pass) {
      for (std::size_t kind = 0; kind < pass.ops.size(); ++kind) {
        pass.ops[kind].flops = flops.ops[kind].flops;
        pass.ops[kind].again_flops = flops.ops[kind].again_flops;
      }
    };
    set_flops(costs);
    for (PassCosts& pass : drawn->passes) set_flops(pass);
    costs.drawn = alike ? nullptr : std::move(drawn);
  }

  Scenario& scenario_;
  std::uint32_t sample_;
  Placement placement_;
  std::uint32_t round_, slots_ = 0;
  UnevenCosts costs_;
  std::vector<double> attended_;  // by microbatch; empty: all of each sequence
  DrawnLoads loads_;
  double rows_sum_ = 0, dropped_sum_ = 0, parts_ = 0;
};

}  // namespace

DrawnLoads draw_microbatches(Scenario& scenario, std::uint32_t sample) {
  if (!scenario.routing && !scenario.documents) return {};
  return Draw(scenario, sample).draw();
}

void note_draws(const Specification& spec, const Scenario& scenario, const DrawnLoads& loads) {
  if (scenario.routing) {
    std::string text = fmt::format(
        "routing: the GPU that gets most tokens of a layer gets {:.2f} times the mean, at most "
        "{:.2f}",
        loads.mean_rows, loads.most_rows);
    if (loads.dropped > 0)
      text += fmt::format("; {} of tokens' choices are dropped (capacity_factor {:g})",
                          format_percent(loads.dropped), scenario.routing->capacity_factor);
    spec.diagnostics.note(std::move(text));
  }
  if (scenario.documents)
    spec.diagnostics.note(
        fmt::format("documents: attention has {:.3f} of the pairs of whole sequences, {:.3f} to "
                    "{:.3f} by microbatch",
                    loads.mean_attended, loads.least_attended, loads.most_attended));
}

}  // namespace penstock

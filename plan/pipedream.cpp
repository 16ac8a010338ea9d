// SPDX-License-Identifier: Apache-2.0
#include "plan/pipedream.hpp"

#include "base/units.hpp"
#include "plan/planners.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace penstock {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

/// Time of the layers behind state i - 1 up to state j on one group of workers.
class Spans {
 public:
  explicit Spans(std::size_t n) : n_(n), times_(n * n, kNever) {}
  double& at(std::size_t i, std::size_t j) { return times_[i * n_ + j]; }
  double at(std::size_t i, std::size_t j) const { return times_[i * n_ + j]; }

 private:
  std::size_t n_;
  std::vector<double> times_;
};

/// The recurrence on one level.
class Level {
 public:
  Level(const std::vector<LayerState>& states, const Spans& spans, const PipedreamOptions& options,
        std::size_t level)
      : states_(states),
        spans_(spans),
        options_(options),
        workers_(static_cast<std::size_t>(options.levels[level].width)),
        bandwidth_(options.levels[level].bytes_per_s),
        below_(level == 0 ? 1 : options.levels[level - 1].width),
        begins_(level + 1 == options.levels.size() ? 1 : states.size()),
        times_(begins_ * states.size() * workers_, kNever),
        choices_(times_.size()) {
    for (std::size_t i = 0; i < begins_; ++i)
      for (std::size_t j = i; j < states_.size(); ++j) one_stage(i, j);
    for (std::size_t j = 1; j < states_.size(); ++j)
      for (const int k : states_[j].states_before.members()) split(static_cast<std::size_t>(k), j);
  }

  double time(std::size_t i, std::size_t j) const { return times_[row(j, workers_) + i]; }
  std::size_t workers() const { return workers_; }

  struct Part {
    std::size_t first, last;
    int replicas;
  };
  /// The stages of i..j on all workers. Precondition: its time is finite.
  std::vector<Part> parts(std::size_t i, std::size_t j) const {
    std::vector<Part> found;
    for (std::size_t m = workers_;;) {
      const Choice& c = choices_[row(j, m) + i];
      found.push_back({c.split < 0 ? i : static_cast<std::size_t>(c.split) + 1, j, c.replicas});
      if (c.split < 0) break;
      m -= static_cast<std::size_t>(c.replicas);
      j = static_cast<std::size_t>(c.split);
    }
    std::ranges::reverse(found);
    return found;
  }

 private:
  struct Choice {
    std::int32_t split = -1;  // the state before the last stage; -1: one stage
    std::int32_t replicas = 0;
  };

  /// Where the cells of the layers up to j on m workers begin, one for each begin i: the innermost
  /// loop runs over i.
  std::size_t row(std::size_t j, std::size_t m) const { return (j * workers_ + m - 1) * begins_; }

  double parameters(std::size_t i, std::size_t j) const {
    return states_[j].parameter_bytes - (i == 0 ? 0 : states_[i - 1].parameter_bytes);
  }
  double stash(std::size_t i, std::size_t j) const {
    return states_[j].activation_bytes - (i == 0 ? 0 : states_[i - 1].activation_bytes) +
           parameters(i, j);
  }
  double reduction(std::size_t i, std::size_t j, double replicas) const {
    return 4 * (replicas - 1) * parameters(i, j) / (bandwidth_ * replicas);
  }
  /// Whether a stage of r replicas fits that is the last of m workers.
  bool fits(std::size_t i, std::size_t j, std::size_t m, std::size_t r) const {
    if (options_.memory_bytes <= 0) return true;
    const double kept = std::ceil(static_cast<double>(workers_ - m) / static_cast<double>(r));
    return kept * stash(i, j) <= options_.memory_bytes;
  }

  void one_stage(std::size_t i, std::size_t j) {
    const std::size_t most = options_.straight ? 1 : workers_;
    for (std::size_t m = 1; m <= most; ++m) {
      if (!fits(i, j, m, m)) continue;
      const auto replicas = static_cast<double>(m);
      times_[row(j, m) + i] = (spans_.at(i, j) + reduction(i, j, replicas) / below_) / replicas;
      choices_[row(j, m) + i] = {-1, static_cast<int>(m)};
    }
  }

  /// Time of the last stage k+1..j on r workers, and of its messages.
  double last_stage(std::size_t k, std::size_t j, std::size_t r) const {
    const auto replicas = static_cast<double>(r);
    const double time = (spans_.at(k + 1, j) + reduction(k + 1, j, replicas)) / replicas;
    if (!options_.transfers) return time;
    const double in = 2 * states_[k].cut_bytes / (bandwidth_ * replicas);
    const bool end = j + 1 == states_.size();
    return std::max({time, in, end ? 0 : 2 * states_[j].cut_bytes / (bandwidth_ * replicas)});
  }

  /// Plans of i..j whose last stage begins behind k, for every i up to k.
  void split(std::size_t k, std::size_t j) {
    const std::size_t most = options_.straight ? 1 : workers_ - 1;
    for (std::size_t r = 1; r <= most; ++r) {
      const double last = last_stage(k, j, r);
      for (std::size_t m = r + 1; m <= workers_; ++m)
        if (fits(k + 1, j, m, r)) split_off(k, j, m, r, last);
    }
  }

  void split_off(std::size_t k, std::size_t j, std::size_t m, std::size_t r, double last) {
    const double* before = &times_[row(k, m - r)];
    double* best = &times_[row(j, m)];
    Choice* choice = &choices_[row(j, m)];
    for (std::size_t i = 0; i <= std::min(k, begins_ - 1); ++i) {
      const double time = std::max(before[i], last);
      if (time >= best[i]) continue;
      best[i] = time;
      choice[i] = {static_cast<int>(k), static_cast<int>(r)};
    }
  }

  const std::vector<LayerState>& states_;
  const Spans& spans_;
  const PipedreamOptions& options_;
  std::size_t workers_;
  double bandwidth_, below_;
  std::size_t begins_;         // states that stages may begin behind
  std::vector<double> times_;  // least time per stage
  std::vector<Choice> choices_;
};

Spans measured_spans(const std::vector<LayerState>& states) {
  Spans spans(states.size());
  for (std::size_t i = 0; i < states.size(); ++i)
    for (std::size_t j = i; j < states.size(); ++j)
      spans.at(i, j) = states[j].time_s() - (i == 0 ? 0 : states[i - 1].time_s());
  return spans;
}

Spans level_spans(const Level& level, std::size_t n) {
  Spans spans(n);
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = i; j < n; ++j) spans.at(i, j) = level.time(i, j);
  return spans;
}

double data_parallel_time(const std::vector<LayerState>& states,
                          const std::vector<PlanLevel>& levels) {
  double time = states.back().time_s();
  double below = 1;
  for (const PlanLevel& level : levels) {
    const double m = level.width;
    time =
        (time + 4 * (m - 1) * states.back().parameter_bytes / (level.bytes_per_s * m) / below) / m;
    below = m;
  }
  return time;
}

/// The stages of states i..j on `groups` of the devices of level `level`, each group the first of
/// whose devices is given.
void add_stages(const std::vector<Level>& levels, std::size_t level, std::size_t i, std::size_t j,
                const std::vector<int>& groups, std::vector<PipedreamPlan::Stage>& stages) {
  int size = 1;  // devices of a worker of this level
  for (std::size_t l = 0; l < level; ++l) size *= static_cast<int>(levels[l].workers());
  int used = 0;
  for (const Level::Part& part : levels[level].parts(i, j)) {
    std::vector<int> workers;
    for (const int group : groups)
      for (int r = 0; r < part.replicas; ++r) workers.push_back(group + (used + r) * size);
    used += part.replicas;
    if (level > 0) {
      add_stages(levels, level - 1, part.first, part.last, workers, stages);
      continue;
    }
    stages.push_back({static_cast<int>(part.first), static_cast<int>(part.last),
                      static_cast<int>(workers.size()), workers});
  }
}

}  // namespace

PipedreamPlan optimize_pipedream(const std::vector<LayerState>& states,
                                 const PipedreamOptions& options) {
  std::vector<Spans> spans{measured_spans(states)};
  spans.reserve(options.levels.size() + 1);
  std::vector<Level> levels;
  levels.reserve(options.levels.size());
  for (std::size_t l = 0; l < options.levels.size(); ++l) {
    levels.emplace_back(states, spans[l], options, l);
    if (l + 1 < options.levels.size()) spans.push_back(level_spans(levels[l], states.size()));
  }
  PipedreamPlan plan;
  plan.data_parallel_s = data_parallel_time(states, options.levels);
  plan.time_per_stage_s = levels.back().time(0, states.size() - 1);
  plan.feasible = plan.time_per_stage_s != kNever;
  if (plan.feasible) add_stages(levels, levels.size() - 1, 0, states.size() - 1, {0}, plan.stages);
  return plan;
}

namespace {

/// What a stage takes per minibatch by itself: compute over its replicas.
PlannedStage stage_of(const PipedreamPlan::Stage& from, const std::vector<LayerState>& states) {
  PlannedStage stage;
  stage.first_layer = from.first;
  stage.last_layer = from.last;
  stage.replicas = from.replicas;
  stage.devices = from.devices;
  const auto last = static_cast<std::size_t>(from.last);
  const double before =
      from.first == 0 ? 0 : states[static_cast<std::size_t>(from.first) - 1].time_s();
  stage.time_s = (states[last].time_s() - before) / from.replicas;
  stage.first_name = states[static_cast<std::size_t>(from.first)].name;
  stage.last_name = states[last].name;
  return stage;
}

std::string limit_of(const Plan& plan) {
  const auto slowest = std::ranges::max_element(plan.stages, {}, &PlannedStage::time_s);
  const auto number = slowest - plan.stages.begin();
  if (slowest->time_s >= plan.time_per_stage_s * (1 - 1e-9))
    return fmt::format("stage {}: compute", number);
  return fmt::format("messages or all-reduce; slowest compute is stage {} with {}", number,
                     format_time(slowest->time_s));
}

/// Time and memory grow with the square of the states, below the top level with the cube.
std::size_t most_states(const std::vector<PlanLevel>& levels) {
  constexpr double kMostOnTop = 4'000, kMostBelow = 1'800, kMostCells = 6e7;
  double most = levels.size() > 1 ? kMostBelow : kMostOnTop;
  for (std::size_t l = 0; l + 1 < levels.size(); ++l)
    most = std::min(most, std::sqrt(kMostCells / levels[l].width));
  return static_cast<std::size_t>(most);
}

}  // namespace

PlanResult plan_pipedream(const PlanRequest& request) {
  const auto size = static_cast<double>(request.microbatch_size);
  const std::size_t most = most_states(request.levels);
  PlanResult result;
  std::vector<LayerState> states = request.model->states(size, most);
  if (states.empty()) {
    states = request.model->chain(size, Recompute::none);
    result.notes.push_back(fmt::format(
        "its branches can be cut in more than {} ways: only the {} cuts of the execution order "
        "were searched",
        most, states.size()));
  }
  result.single_device_s = states.back().time_s();
  const PipedreamPlan found = optimize_pipedream(
      states,
      {request.levels, request.straight, request.transfers, request.memory_bytes.value_or(0)});
  if (!found.feasible) {
    result.infeasible_because =
        fmt::format("no split into stages keeps what it stashes within {} on every device",
                    format_bytes(request.memory_bytes.value_or(0)));
    return result;
  }
  Plan plan;
  plan.planner = "pipedream";
  plan.schedule = "pipedream";
  plan.microbatch_size = request.microbatch_size;
  for (const PipedreamPlan::Stage& stage : found.stages)
    plan.stages.push_back(stage_of(stage, states));
  plan.time_per_stage_s = found.time_per_stage_s;
  plan.throughput_samples_per_s = size / found.time_per_stage_s;
  plan.speedup = result.single_device_s / found.time_per_stage_s;
  plan.data_parallel_speedup = result.single_device_s / found.data_parallel_s;
  plan.limited_by = limit_of(plan);
  result.plans.push_back(std::move(plan));
  return result;
}

}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
// Bounds of a family whose order of ops is known, over all its cuts.
#include "plan/search/bound.hpp"
#include "plan/search/linear_program.hpp"
#include "schedules/order_run.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <span>

namespace penstock {
namespace {

constexpr double kUnbounded = std::numeric_limits<double>::infinity();
constexpr double kLongest = 1e9;  // seconds
constexpr double kWhole = 1e-6;   // what is so near to an integer is one

/// A number of a stage of n layers is at least `by_layer` n, with the embedding or the LM head so
/// much more.
struct Linear {
  double by_layer = 0, first = 0, last = 0;
};

/// What recomputing a layer adds to its backward, and what is kept of it until I and until W.
struct LayerUse {
  double extra_s, until_input, until_weights;
};

struct OrderCosts {
  std::array<Linear, kOpParts> part_s;
  Linear end_s;                       ///< reduction and optimizer step
  Linear state;                       ///< bytes
  Linear until_input, until_weights;  ///< bytes beside the layers'
  std::vector<LayerUse> uses;         ///< by level of recomputation, the first one is none
  double message_s = 0, capacity = kUnbounded;
};

/// How many layers each stage has, and how many of them recompute as each level says.
struct RealCut {
  std::vector<double> layers;                  ///< [stage]
  std::vector<std::vector<double>> recompute;  ///< [stage][level - 1]
};

/// The linear program of all cuts, and its branches.
class CutProgram {
 public:
  CutProgram(const OrderCosts& costs, const OpLists& order, std::size_t stages,
             const std::vector<std::vector<Share>>& shares, std::size_t microbatches, int layers,
             double enough_s, std::int64_t most_ops)
      : costs_(costs),
        shares_(shares),
        run_(order, stages, microbatches),
        stages_(stages),
        levels_(costs.uses.size() - 1),
        variables_(1 + stages_ * (1 + levels_)),
        enough_s_(enough_s),
        most_ops_(most_ops) {
    std::vector<double> time(variables_, 0), most(variables_, layers);
    time[0] = 1;
    most[0] = std::min(enough_s, kLongest);
    LinearProgram program(std::move(time), std::move(most));
    std::vector<double> all(variables_, 0);
    for (std::size_t s = 0; s < stages_; ++s) all[layers_at(s)] = -1;
    program.add_row(all, static_cast<double>(stages_) - layers);
    for (std::size_t s = 0; s < stages_ && levels_ > 0; ++s) {
      std::vector<double> row(variables_, 0);
      row[layers_at(s)] = -1;
      for (std::size_t r = 0; r < levels_; ++r) row[again_at(s, r)] = 1;
      program.add_row(row, 1);
    }
    for (std::size_t d = 0; d < shares.size(); ++d) {
      OpPath work{std::vector<OpParts>(stages_), 0, d};
      for (const Share& share : shares[d]) work.times[share.stage].fill(share.microbatches);
      add_path(program, work);
      add_memory(program, d, order.of_device(static_cast<int>(d)));
    }
    find_sums();
    push(std::move(program));
  }

  /// Branch and bound, the least first.
  void run() {
    constexpr std::size_t kMostOpen = 100;  // each has all rows
    for (bool root = true; !open_.empty() && open_.front().value_s < whole_s_; root = false) {
      if (ops_ >= most_ops_ || open_.size() > kMostOpen) return;
      const Node least = pop();
      const std::vector<double> values = least.program.values();
      const std::optional<Branch> branch = branch_of(values);
      if (!branch || root) good_.push_back(cut_of(values));
      if (!branch) {
        whole_s_ = std::min(whole_s_, least.value_s);
        continue;
      }
      for (const double sign : {1.0, -1.0}) {
        LinearProgram half = least.program;
        std::vector<double> row(variables_, 0);
        for (const std::size_t v : *branch->sum) row[v] = sign;
        half.add_row(row, sign * (sign > 0 ? std::floor(branch->value) : std::ceil(branch->value)));
        push(std::move(half));
      }
    }
  }

  double time_s() const {
    return std::min({open_.empty() ? kUnbounded : open_.front().value_s, whole_s_, enough_s_});
  }
  std::int64_t ops() const { return ops_; }

  /// Those found on the way and the next that would have been looked into.
  std::vector<RealCut> good() {
    constexpr int kNext = 4;
    for (int i = 0; i < kNext && !open_.empty(); ++i)
      good_.push_back(cut_of(pop().program.values()));
    return std::move(good_);
  }

 private:
  struct Node {
    double value_s;
    LinearProgram program;

    bool operator>(const Node& other) const { return value_s > other.value_s; }
  };
  /// What is no integer, and should be.
  struct Branch {
    const std::vector<std::size_t>* sum;
    double value;
  };

  // Variables: the time; the layers of each stage but one; of these, for every level of
  // recomputation, those that recompute so.
  static std::size_t layers_at(std::size_t s) { return 1 + s; }
  std::size_t again_at(std::size_t s, std::size_t r) const { return 1 + stages_ + s * levels_ + r; }

  double beside(const Linear& number, std::size_t s) const {
    return (s == 0 ? number.first : 0) + (s + 1 == stages_ ? number.last : 0);
  }
  double of_one(const Linear& number, std::size_t s) const {
    return number.by_layer + beside(number, s);
  }

  /// The time is no less than that of a path and of the end of its device.
  void add_path(LinearProgram& program, const OpPath& path) const {
    std::vector<double> row(variables_, 0);
    row[0] = -1;
    double one_s = path.messages * costs_.message_s;
    for (std::size_t s = 0; s < stages_; ++s) {
      for (std::size_t part = 0; part < kOpParts; ++part) {
        row[layers_at(s)] += path.times[s][part] * costs_.part_s[part].by_layer;
        one_s += path.times[s][part] * of_one(costs_.part_s[part], s);
      }
      for (std::size_t r = 0; r < levels_; ++r)
        row[again_at(s, r)] = path.times[s][kInputPart] * costs_.uses[r + 1].extra_s;
    }
    for (const Share& share : shares_[path.device]) {
      row[layers_at(share.stage)] += costs_.end_s.by_layer;
      one_s += of_one(costs_.end_s, share.stage);
    }
    program.add_row(row, -one_s);
  }

  /// A device holds no more than it can whenever it holds most.
  void add_memory(LinearProgram& program, std::size_t d, std::span<const Op> ops) const {
    if (costs_.capacity == kUnbounded) return;
    const auto add = [&](bool until_weights, const Linear& kept, double LayerUse::*bytes) {
      for (const std::vector<int>& held : most_held(ops, shares_[d], until_weights)) {
        std::vector<double> row(variables_, 0);
        double one = 0;
        for (std::size_t c = 0; c < held.size(); ++c) {
          const std::size_t s = shares_[d][c].stage;
          const double of_layer = costs_.uses.front().*bytes;
          row[layers_at(s)] = costs_.state.by_layer + held[c] * of_layer;
          one += of_one(costs_.state, s) + held[c] * (of_layer + beside(kept, s));
          for (std::size_t r = 0; r < levels_; ++r)
            row[again_at(s, r)] = held[c] * (costs_.uses[r + 1].*bytes - of_layer);
        }
        program.add_row(row, costs_.capacity - one);
      }
    };
    add(false, costs_.until_input, &LayerUse::until_input);
    add(true, costs_.until_weights, &LayerUse::until_weights);
  }

  /// Branches on the layers of a device, then on those of a stage, then on those that recompute.
  void find_sums() {
    for (const auto& here : shares_) {
      auto& sum = sums_[0].emplace_back();
      for (const Share& share : here) sum.push_back(layers_at(share.stage));
    }
    for (std::size_t v = 1; v < variables_; ++v) sums_[v <= stages_ ? 1 : 2].push_back({v});
  }

  /// Of the first kind that has any the farthest from an integer.
  std::optional<Branch> branch_of(const std::vector<double>& values) const {
    std::optional<Branch> out;
    double farthest = kWhole;
    for (const auto& kind : sums_) {
      for (const auto& sum : kind) {
        double value = 0;
        for (const std::size_t v : sum) value += values[v];
        const double away = std::abs(value - std::round(value));
        if (away <= farthest) continue;
        farthest = away;
        out = Branch{&sum, value};
      }
      if (out) break;
    }
    return out;
  }

  void push(LinearProgram program) {
    const double value_s = cut_off(program);
    if (value_s >= enough_s_) return;
    open_.push_back({value_s, std::move(program)});
    std::ranges::push_heap(open_, std::greater{});
  }
  Node pop() {
    std::ranges::pop_heap(open_, std::greater{});
    Node least = std::move(open_.back());
    open_.pop_back();
    return least;
  }

  /// Adds the longest chains of ops of its solution until none takes longer than that says. Returns
  /// its value.
  double cut_off(LinearProgram& program) {
    constexpr int kMostRounds = 60;
    constexpr double kEnough = 1e-3, kRounding = 1e-7, kMultiplicationsPerOp = 50;
    double value_s = 0;
    for (int round = 0; round < kMostRounds && (round == 0 || ops_ < most_ops_); ++round) {
      const double before = program.work();
      value_s = program.solve() * (1 - kRounding);
      ops_ += static_cast<std::int64_t>((program.work() - before) / kMultiplicationsPerOp);
      if (value_s >= enough_s_) break;
      const std::vector<double> values = program.values();
      run_.run_order(durations(values), costs_.message_s);
      if (!run_.stuck().empty()) break;
      const std::vector<double>& ends = run_.ends();
      ops_ += run_.ops();
      bool longer = false;
      for (std::size_t d = 0; d < ends.size(); ++d) {
        double end = ends[d];
        for (const Share& share : shares_[d])
          end += of_one(costs_.end_s, share.stage) +
                 costs_.end_s.by_layer * values[layers_at(share.stage)];
        if (end <= value_s * (1 + kEnough)) continue;
        add_path(program, run_.path_to(d));
        longer = true;
      }
      if (!longer) break;
    }
    return value_s;
  }

  std::vector<OpParts> durations(const std::vector<double>& values) const {
    std::vector<OpParts> out(stages_);
    for (std::size_t s = 0; s < stages_; ++s) {
      for (std::size_t part = 0; part < kOpParts; ++part)
        out[s][part] =
            of_one(costs_.part_s[part], s) + costs_.part_s[part].by_layer * values[layers_at(s)];
      for (std::size_t r = 0; r < levels_; ++r)
        out[s][kInputPart] += values[again_at(s, r)] * costs_.uses[r + 1].extra_s;
    }
    return out;
  }

  RealCut cut_of(const std::vector<double>& values) const {
    RealCut out;
    for (std::size_t s = 0; s < stages_; ++s) {
      out.layers.push_back(1 + values[layers_at(s)]);
      auto& again = out.recompute.emplace_back();
      for (std::size_t r = 0; r < levels_; ++r) again.push_back(values[again_at(s, r)]);
    }
    return out;
  }

  const OrderCosts& costs_;
  const std::vector<std::vector<Share>>& shares_;
  OrderRun run_;
  std::size_t stages_, levels_, variables_;
  double enough_s_, whole_s_ = kUnbounded;  // the least of a node whose numbers are integers
  std::int64_t most_ops_, ops_ = 0;
  std::array<std::vector<std::vector<std::size_t>>, 3> sums_;
  std::vector<Node> open_;
  std::vector<RealCut> good_;
};

/// Layers nearest to a cut of real numbers, all of them.
std::vector<int> whole_layers(const RealCut& cut, int layers) {
  std::vector<int> out;
  std::vector<std::size_t> by_rest(cut.layers.size());
  std::iota(by_rest.begin(), by_rest.end(), std::size_t{0});
  for (const double n : cut.layers) out.push_back(std::max(1, static_cast<int>(n + kWhole)));
  std::ranges::sort(by_rest, std::greater{}, [&](std::size_t s) { return cut.layers[s] - out[s]; });
  int given = std::accumulate(out.begin(), out.end(), 0);
  for (std::size_t i = 0; given < layers; ++i, ++given) ++out[by_rest[i % out.size()]];
  // A solution may have too many where they cost nothing.
  for (; given > layers; --given) --*std::ranges::max_element(out);
  return out;
}

bool only_computes(const OpLists& order) {
  for (int d = 0; d < order.devices(); ++d)
    for (const Op& op : order.of_device(d))
      if (!is_compute(op.kind) || op.has(Op::stored)) return false;
  return true;
}

}  // namespace

/// What recomputing a layer adds at least, whether its backward is a B or an I and a W: one may
/// hide what the other does not.
double Bounds::added_to_both_s(const PlanFamily& family, std::size_t level) {
  const int layers = problem_.layers(), longest = layers - family.stages() + 1;
  const std::vector<Level> all = levels(family);
  StageTable &none = *all.front().time, &again = *all[level].time;
  double least =
      steps_.single_layers() ? least_added_s(family.shape, &StagePart::input_s) : kUnbounded;
  for (int n = 1; n <= longest; ++n)
    for (const int first : {0, std::min(1, layers - n), layers - n})
      for (double StagePart::*part : {&StagePart::input_s, &StagePart::backward_s})
        least = std::min(least, (again.part(first, n).*part - none.part(first, n).*part) / n);
  return std::max(0.0, least);
}

OrderBound Bounds::of_order(const PlanFamily& family, double enough_s, std::int64_t most_ops) {
  const Schedule& schedule = *family.schedule;
  if (schedule.looks_at_costs) return by_lives(family, enough_s, most_ops);
  const auto stages = static_cast<std::size_t>(family.stages());
  const auto m = static_cast<std::size_t>(family.shape.microbatches);
  const bool known = schedule.flushes() && !schedule.checkpoints && !schedule.whole_model;
  if (understood_ < Understood::orders || !known || stages < 2 ||
      static_cast<std::int64_t>(3 * stages * m) > most_ops)
    return {};
  OpLists order;
  schedule.generate(family.schedule_shape(), order);
  if (!only_computes(order)) return {};

  const int layers = problem_.layers(), longest = layers - static_cast<int>(stages) + 1;
  const std::vector<Level> all = levels(family);
  const auto linear = [&](StageTable& of, const auto& number) {
    Linear out{kUnbounded, kUnbounded, kUnbounded};
    for (int n = 1; n <= longest; ++n)
      out.by_layer = std::min(out.by_layer, number(of.lightest(n)) / n);
    for (int n = 1; n <= longest; ++n) {
      out.first = std::min(out.first, number(of.part(0, n)) - n * out.by_layer);
      out.last = std::min(out.last, number(of.part(layers - n, n)) - n * out.by_layer);
    }
    return out;
  };
  /// What a stage with the embedding or the LM head keeps beside its layers, however it recomputes.
  const auto kept_beside = [&](double StagePart::*bytes) {
    Linear least{0, kUnbounded, kUnbounded};
    for (const Level& level : all) {
      const Linear of = linear(*level.held, [&](const StagePart& part) { return part.*bytes; });
      least.first = std::min(least.first, of.first);
      least.last = std::min(least.last, of.last);
    }
    return least;
  };
  StageTable& time = *all.front().time;
  for (int n = 1; n <= longest; ++n)
    if (time.part(0, n).saving_s > 0) return {};
  OrderCosts costs{
      .part_s = {linear(time, [](const StagePart& part) { return part.forward_s; }),
                 linear(time, [](const StagePart& part) { return part.input_s; }),
                 linear(time,
                        [](const StagePart& part) { return part.backward_s - part.input_s; })},
      .end_s = linear(time,
                      [&](const StagePart& part) {
                        return part.step_s + reduce_s(family, part.reduced_bytes);
                      }),
      .state = linear(time, [](const StagePart& part) { return part.static_bytes; }),
      .until_input = kept_beside(&StagePart::activation_bytes),
      .until_weights = kept_beside(&StagePart::weight_input_bytes),
      .uses = {},
      .message_s = least_message_s(time),
      .capacity = capacity_};
  for (const LevelUse& use : level_uses(family)) {
    const std::size_t level = costs.uses.size();
    const double added_s = level == 0 ? 0 : std::min(use.extra_s, added_to_both_s(family, level));
    costs.uses.push_back({added_s, use.bytes, use.late_bytes});
  }

  constexpr std::size_t kMostNumbers = 250;
  if (stages * costs.uses.size() > kMostNumbers) return {};
  const auto shares = shares_of(family);
  CutProgram program(costs, order, stages, shares, m, layers, enough_s, most_ops);
  program.run();
  OrderBound out{.time_s = program.time_s(), .ops = program.ops()};
  for (const RealCut& cut : program.good()) {
    Candidate& good = out.good.emplace_back(Candidate{family, whole_layers(cut, layers)});
    for (std::size_t s = 0; s < stages; ++s) {
      // As much of the last level that any layer has, which frees most.
      double again = 0;
      std::size_t last = 0;
      for (std::size_t r = 0; r < cut.recompute[s].size(); ++r) {
        again += cut.recompute[s][r];
        if (cut.recompute[s][r] > kWhole) last = r + 1;
      }
      const int n = static_cast<int>(std::ceil(again - kWhole));
      const bool in_part = steps_.single_layers() && last > 0 && n < good.layers[s];
      good.recompute.push_back(in_part ? Recomputation::block(n) : all[last].recompute);
    }
  }
  return out;
}

}  // namespace penstock

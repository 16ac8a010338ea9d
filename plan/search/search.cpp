// SPDX-License-Identifier: Apache-2.0
#include "plan/search/search.hpp"

#include "plan/search/answers.hpp"
#include "plan/search/moves.hpp"
#include "plan/search/order_trials.hpp"
#include "plan/search/overfull.hpp"
#include "plan/search/published.hpp"
#include "plan/search/uniform.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

namespace penstock {
namespace {

constexpr double kUnlimited = std::numeric_limits<double>::infinity();
constexpr std::size_t kBeforeConfirmations = 25, kBetweenConfirmations = 100;

using Node = SearchNode;
using Queue = SearchQueue;

class Search {
 public:
  Search(const Problem& problem, const Axes& axes, const SearchOptions& options)
      : problem_(problem),
        axes_(axes),
        options_(options),
        steps_(axes),
        recomputes_(steps_.whole()),
        moves_(problem, steps_),
        bounds_(problem, axes),
        kept_(problem),
        answers_(problem, options),
        orders_(problem, options, steps_, bounds_, kept_,
                {[this] { return more_evaluations(); },
                 [this](const Candidate& cut, bool sample) { try_cut(cut, sample); }}) {}

  SearchResult run() {
    take_up_starts();
    make_shapes();
    try_usual_ones();
    while (step()) report();
    try_other_schedules();
    orders_.look_into(represented_);
    improve_best();
    out_.cuts_of_searched_orders = orders_.look_there_and_back(left_);
    confirm_alternatives();
    try_usual_where_others_are_best();
    balance_alternatives();
    overlap_reductions();
    leave_rest();
    finish();
    return std::move(out_);
  }

  /// Only what the options begin with.
  SearchResult judge_starts() {
    take_up_starts();
    finish();
    return std::move(out_);
  }

 private:
  double cost(double time_s, double memory_bytes, const Shape& shape) const {
    return cost_of(options_.objective, time_s, memory_bytes, shape.gpus());
  }
  double cost(const Judgement& judgement, const Choice& choice) const {
    return cost_of(options_.objective, judgement.iteration_time_s, judgement.memory_bytes,
                   choice.gpus());
  }
  double best() const { return kept_.empty() ? kUnlimited : kept_.best().cost; }
  bool hopeless(double bound) const { return is_hopeless(bound, best()); }
  double throughput(const Judgement& judgement) const {
    return static_cast<double>(problem_.batch()) / judgement.iteration_time_s;
  }

  void take_up_starts() {
    for (const Start& start : options_.starts) {
      StartResult& result = out_.starts.emplace_back();
      try {
        result.judgement = answers_.judgement_of(problem_.resolve(start.choice));
        result.why_not = result.judgement.why;
        if (!result.judgement.fits) continue;
        result.throughput_samples_per_s = throughput(result.judgement);
        const auto with_batch = with_batch_of(problem_, start.choice);
        const bool same = with_batch && with_batch->family.shape == start.choice.family.shape;
        if (same || options_.other_batches)
          keep(start.choice, result.judgement, start.from);
        else if (with_batch)
          take_up(*with_batch, start.from);
      } catch (const InputError& error) {
        result.why_not = error.what();
      } catch (const SystemError& error) {
        result.why_not = error.what();
      }
    }
  }

  void take_up(const Choice& choice, const std::string& from) {
    const Judgement judgement = answers_.judgement_of(problem_.resolve(choice));
    if (judgement.fits) keep(choice, judgement, from);
  }

  void improve_best() {
    const auto had_all_cuts = [&] {
      return represented_.empty() && left_.empty() && kept_.best().from.empty();
    };
    bool better = !kept_.empty() && !had_all_cuts();
    while (better && !takes_too_long(kept_.best().choice.family)) {
      const FoundPlan plan = kept_.best();
      better = moves_.improve(
          plan, [&](const Choice& choice) { return improves(choice, plan.from, best()); });
    }
  }

  /// Of unlike devices, whose stages were cut as if they were alike.
  void balance_alternatives() {
    if (problem_.base().cluster.groups.empty()) return;
    const std::vector<FoundPlan> found = kept_.all();
    for (const FoundPlan& plan : found)
      if (plan.from.empty())
        moves_.balances_layers(
            plan, [&](const Choice& choice) { return improves(choice, plan.from, plan.cost); });
  }

  /// Of the best plans, which may reduce their gradients beside the backward.
  void overlap_reductions() {
    constexpr std::size_t kTried = 3;
    std::vector<FoundPlan> found = kept_.all();
    if (found.size() > kTried) found.resize(kTried);
    for (const FoundPlan& plan : found) {
      if (plan.choice.overlaps || !problem_.may_overlap(plan.choice.family)) continue;
      Choice overlapped = plan.choice;
      overlapped.overlaps = true;
      improves(overlapped, plan.from, plan.cost);
    }
  }

  /// Keeps the plan when it costs less.
  bool improves(const Choice& choice, const std::string& from, double than) {
    if (out_.moves >= options_.most_moves || answers_.elapsed_s() > options_.most_seconds)
      return false;
    ++out_.moves;
    try {
      const Scenario scenario = problem_.resolve(choice);
      Judgement judgement =
          answers_.per_batch(relaxed(scenario, problem_.plain_reduction(), problem_.programs()),
                             scenario.samples_per_update());
      if (judgement.engine.empty()) {
        if (!judgement.fits) return false;
        const bool slower =
            options_.objective != Objective::memory && is_hopeless(cost(judgement, choice), than);
        if (slower || !answers_.affordable()) return false;
        answers_.spend(choice.family);
        judgement = answers_.judgement_of(scenario);
      }
      if (!judgement.fits || is_hopeless(cost(judgement, choice), than)) return false;
      keep(choice, judgement, from);
      return true;
    } catch (const InputError&) {
      return false;  // this schedule cannot run it
    } catch (const SystemError&) {
      return false;
    }
  }

  /// Files what was made under what becomes of it; in the queue when it is worth a look.
  void file(Tally& tally, Node::Level level, const Candidate& candidate, const Bound& bound,
            const std::vector<bool>& more = {}, bool sample = false) {
    ++tally.made;
    const double least = cost(bound.time_s, bound.memory_bytes, candidate.family.shape);
    if (!bound.fits && more.empty()) {
      ++tally.too_large;
    } else if (hopeless(least)) {
      ++tally.worse;
    } else {
      queue_.push({level, least, next_++, candidate, bound.memory_bytes, least, more, sample});
    }
  }

  void make_shapes() {
    if (recomputes_.empty()) return;
    for (const Shape& shape : shapes_of(problem_, axes_))
      file(out_.shapes, Node::shape, {{.shape = shape}, {}}, bounds_.bound_of(shape));
  }

  /// What people run: all GPUs, one stage per device, the least microbatch, for every depth and
  /// tensor degree. The search may take long to come to what fits.
  void try_usual_ones() {
    const auto usual = std::ranges::find(axes_.schedules, "1f1b", &Schedule::name);
    const bool one_stage = std::ranges::find(axes_.chunks, 1) != axes_.chunks.end();
    if (usual == axes_.schedules.end() || !one_stage || recomputes_.empty()) return;
    for_each_mesh(problem_, axes_, [&](int p, int w, int t, int c) {
      if (p * w * t * c == problem_.gpus() && more_evaluations()) try_usual(**usual, p, w, t, c);
    });
    confirm_at_ += out_.evaluations;  // others first
  }

  void try_usual(const Schedule& schedule, int p, int w, int t, int c) {
    for (const std::int64_t b : axes_.microbatch_sizes) {
      if (problem_.batch() % (b * w) != 0) continue;
      const auto [sequence, shared] = sharings_of(problem_, axes_, w * c, t, p).front();
      const Shape shape{p, w, t, b, problem_.batch() / (b * w), sequence, shared, c};
      if (ops_of(shape, p) > problem_.most_ops()) continue;
      if (!problem_.cuts_sequences(shape)) return;
      Candidate candidate{{shape, &schedule, 1, axes_.arrangements.front()}, {}};
      const PlanFamily family = candidate.family;
      if (p > problem_.layers() || !family.admitted()) return;
      const Bound bound = bounds_.bound_of(family, &candidate);
      if (!bound.fits || candidate.layers.empty()) return;
      const double least = cost(bound.time_s, bound.memory_bytes, family.shape);
      ++out_.cuts.made;
      evaluate({Node::cut, least, next_++, candidate, bound.memory_bytes, least, {}, true});
      return;
    }
  }

  /// The best plan's shape and order of ranks under the other schedules, whose families may never
  /// have been opened: no plan is beaten by its own with another schedule.
  void try_other_schedules() {
    if (kept_.empty() || !kept_.best().from.empty()) return;
    const PlanFamily best = kept_.best().choice.family;
    for (const Schedule* schedule : axes_.schedules) {
      const auto chunks = static_cast<int>(schedule->chunks.usual);
      const bool asked = std::ranges::find(axes_.chunks, chunks) != axes_.chunks.end();
      if (schedule == best.schedule || schedule->checkpoints || !asked) continue;
      try_family({best.shape, schedule, chunks, best.arrangement});
    }
    while (answers_.confirms() && !relaxed_.empty() && !hopeless(relaxed_.top().estimate))
      confirm(take_node(relaxed_));
  }

  /// 1F1B in the best shapes of other schedules, where it is slower than they are: what is shown of
  /// it is to be its best.
  void try_usual_where_others_are_best() {
    constexpr std::size_t kTried = 4;
    const auto usual = std::ranges::find(axes_.schedules, "1f1b", &Schedule::name);
    const bool one_stage = std::ranges::find(axes_.chunks, 1) != axes_.chunks.end();
    if (usual == axes_.schedules.end() || !one_stage || kept_.empty()) return;
    const std::vector<FoundPlan> found = kept_.all();
    double known = kUnlimited;
    for (const FoundPlan& plan : found)
      if (plan.choice.family.schedule == *usual) known = std::min(known, plan.cost);
    std::vector<Shape> tried;
    for (const FoundPlan& plan : found) {
      const PlanFamily& family = plan.choice.family;
      if (tried.size() == kTried || plan.cost >= known) break;
      if (family.shape.depth == 1 || std::ranges::find(tried, family.shape) != tried.end())
        continue;
      tried.push_back(family.shape);
      const auto candidate = fitted({family.shape, *usual, 1, family.arrangement});
      if (!candidate || !improves(problem_.choice(*candidate), "", known)) continue;
      for (const FoundPlan& now : kept_.all())
        if (now.choice.family.schedule == *usual) known = std::min(known, now.cost);
    }
  }

  /// Its balanced cut, recomputing what it must to fit.
  std::optional<Candidate> fitted(const PlanFamily& family) {
    if (family.stages() > problem_.layers() || !family.admitted() || takes_too_long(family) ||
        ops_of(family.shape, family.stages()) > problem_.most_ops())
      return std::nullopt;
    Candidate candidate{family, {}};
    bounds_.bound_of(family, &candidate);
    if (candidate.layers.empty()) candidate.layers = even_split(problem_.layers(), family.stages());
    if (candidate.layers.empty()) return std::nullopt;
    if (!problem_.base().cluster.groups.empty()) follow_unlike_devices(candidate);
    candidate.recompute = bounds_.least_recompute(candidate);
    if (!bounds_.make_fit(candidate)) return std::nullopt;
    return candidate;
  }

  void try_family(const PlanFamily& family) {
    const auto candidate = fitted(family);
    if (!candidate) return;
    const Bound bound = bounds_.bound_of(*candidate);
    const double least = cost(bound.time_s, bound.memory_bytes, family.shape);
    if (hopeless(least)) return;
    ++out_.cuts.made;
    evaluate({Node::cut, least, next_++, *candidate, bound.memory_bytes, least, {}, true});
  }

  bool more_evaluations() {
    out_.out_of_time = answers_.elapsed_s() > options_.most_seconds * 2 / 3;
    return out_.evaluations < options_.most_evaluations && !out_.out_of_time;
  }

  static double least(const Queue& queue) { return queue.empty() ? kUnlimited : queue.top().bound; }

  /// Opens what has the least bound; false when nothing is worth it. All cuts of families come
  /// after all that is left of others.
  bool step() {
    const double least_open = std::min(least(queue_), least(rest_));
    const bool confirmable =
        answers_.confirms() && !relaxed_.empty() && !hopeless(relaxed_.top().estimate);
    const bool confirm_now = confirmable && out_.evaluations >= confirm_at_ &&
                             answers_.confirmed() < options_.most_confirmations / 2;
    const bool open = !hopeless(least_open);
    if (confirm_now || (confirmable && (!open || relaxed_.top().estimate <= least_open))) {
      confirm(take_node(relaxed_));
      return true;
    }
    if (!open || !more_evaluations()) return confirm_last();
    if (out_.evaluations >= orders_at_) {
      orders_at_ *= 4;
      orders_.look_into(represented_);
      return true;  // what was open may be proven worse by what was found
    }
    const Node node = take_node(hopeless(least(queue_)) ? rest_ : queue_);
    switch (node.level) {
      case Node::shape: open_shape(node.candidate.family.shape); break;
      case Node::schedule: open_arrangements(node.candidate.family); break;
      case Node::family: open_family(node); break;
      case Node::all_cuts: open_all_cuts(node); break;
      default: evaluate(node);
    }
    return true;
  }

  /// At the end, the best of what is only bounded.
  bool confirm_last() {
    if (!answers_.confirms() || relaxed_.empty() || hopeless(relaxed_.top().estimate)) return false;
    confirm(take_node(relaxed_));
    return true;
  }

  /// Of what is proven worse than the best those that nothing known is cheaper, smaller and simpler
  /// than, two at least; others where there are too few plans to compare.
  void confirm_alternatives() {
    constexpr std::size_t kLeast = 2, kMostToRun = 4;
    std::vector<Node> nodes;
    for (; !relaxed_.empty(); relaxed_.pop()) nodes.push_back(relaxed_.top());
    // What might be the plan to run, however many are listed.
    for (std::size_t n = 0; answers_.confirms() && n < kMostToRun; ++n) {
      const auto node = std::ranges::find_if(nodes, [&](const Node& open) { return to_run(open); });
      if (node == nodes.end()) break;
      const Node chosen = *node;
      nodes.erase(node);
      confirm(chosen);
    }
    for (std::size_t n = 0; answers_.confirms() && (n < kLeast || kept_.size() < options_.top);
         ++n) {
      auto node = std::ranges::find_if(nodes, [&](const Node& open) { return alternative(open); });
      if (node == nodes.end() && kept_.size() < options_.top) node = nodes.begin();
      if (node == nodes.end()) break;
      const Node chosen = *node;
      nodes.erase(node);
      confirm(chosen);
    }
    for (const Node& node : nodes) relaxed_.push(node);
  }

  bool to_run(const Node& node) const {
    const std::string& software = problem_.base().stack.name;
    const FoundPlan* known = kept_.to_run();
    return known != nullptr && as_good(node.estimate, best()) &&
           simplicity(problem_.choice(node.candidate), software) <
               simplicity(known->choice, software);
  }

  bool alternative(const Node& node) const {
    return node.estimate <= KeptPlans::kSlowest * best() &&
           !kept_.dominated(node.estimate, node.memory_bytes, problem_.choice(node.candidate));
  }

  void open_shape(const Shape& shape) {
    ++out_.shapes.opened;
    for (const Schedule* schedule : axes_.schedules)
      for (const int v : axes_.chunks)
        if (shape.depth * v <= problem_.layers()) open_schedule({shape, schedule, v, {}});
  }

  void open_schedule(PlanFamily family) {
    if (!family.schedule->checkpoints) return open_schedule_as(family);
    for (const Checkpoint checkpoint : checkpoints_of(recomputes_)) {
      family.checkpoint = checkpoint;
      open_schedule_as(family);
    }
  }

  void open_schedule_as(const PlanFamily& family) {
    if (!family.admitted() || ops_of(family.shape, family.stages()) > problem_.most_ops()) {
      ++out_.families.made;
      ++out_.families.refused;
      return;
    }
    const Bound bound = bounds_.rough(family);
    const double least = cost(bound.time_s, bound.memory_bytes, family.shape);
    const Node node{Node::schedule, least, next_++, {family, {}}, bound.memory_bytes, least};
    hopeless(least) ? dispose(node) : queue_.push(node);
  }

  void open_arrangements(const PlanFamily& family) {
    Candidate candidate{family, {}};
    const Bound bound = bounds_.bound_of(family);
    for (const Arrangement& arrangement : axes_.arrangements) {
      const bool one_order = family.shape.width == 1 || family.shape.depth == 1;
      if (one_order && arrangement.rank_order != "data-first") continue;  // the same ranks
      candidate.family.arrangement = arrangement;
      if (takes_too_long(family) && bound.fits) {
        leave_family(bound, candidate.family);
      } else {
        file(out_.families, Node::family, candidate, bound);
      }
    }
  }

  bool takes_too_long(const PlanFamily& family) const {
    return options_.order_takes_too_long(*family.schedule, family.stages(),
                                         family.shape.microbatches);
  }

  void leave_family(const Bound& bound, const PlanFamily& family) {
    ++out_.families.made;
    const double least = cost(bound.time_s, bound.memory_bytes, family.shape);
    if (hopeless(least)) {
      ++out_.families.worse;
    } else {
      left_.push_back({least, family});
    }
  }

  /// With the layers given, does whatever recomputes more take longer? The starts of all ops are
  /// maxima of sums of durations, of one order; without a flush the answer is a difference of two,
  /// and measured durations have noise.
  bool more_takes_longer(const PlanFamily& family) const {
    return !family.schedule->looks_at_costs && family.schedule->flushes() &&
           options_.objective != Objective::memory && !problem_.base().layer_profile;
  }

  /// Ways to recompute for which each cut is looked into; more than `most_cuts`: too many.
  double recompute_choices(const PlanFamily& family) const {
    if (family.schedule->checkpoints || more_takes_longer(family)) return 1;
    const int longest = problem_.layers() - family.stages() + 1;
    return std::pow(steps_.choices(longest), family.stages());
  }

  void open_family(Node node) {
    ++out_.families.opened;
    const PlanFamily& family = node.candidate.family;
    const int layers = problem_.layers(), stages = family.stages();
    bounds_.bound_of(family, &node.candidate);
    if (!node.candidate.layers.empty()) file_some(node.candidate);
    file_balanced(family);
    if (count_cuts(layers, stages, options_.most_cuts) <= options_.most_cuts) {
      node.level = Node::all_cuts;
      rest_.push(std::move(node));
      return;
    }
    ++out_.represented;
    represented_.push_back({node.bound, family});
    const std::vector<int> even = even_split(layers, stages);
    if (!even.empty() && even != node.candidate.layers) file_some(Candidate{family, even});
  }

  /// The cut for devices that are not alike, which bounds take for the best of them.
  void file_balanced(const PlanFamily& family) {
    if (problem_.base().cluster.groups.empty()) return;
    Candidate candidate{family, even_split(problem_.layers(), family.stages())};
    if (!candidate.layers.empty() && follow_unlike_devices(candidate)) file_some(candidate);
  }

  /// Takes the balanced cut; false: it has none that the search can make.
  bool follow_unlike_devices(Candidate& candidate) const {
    std::vector<int> balanced = moves_.balanced_layers(problem_.choice(candidate));
    const int layers = std::accumulate(balanced.begin(), balanced.end(), 0);
    if (layers != problem_.layers() || std::ranges::min(balanced) < 1) return false;
    candidate.layers = std::move(balanced);
    return true;
  }

  void open_all_cuts(Node node) {
    constexpr std::int64_t kMostOps = 300'000;  // take about as long as all cuts
    const PlanFamily& family = node.candidate.family;
    const int layers = problem_.layers(), stages = family.stages();
    if (options_.objective != Objective::memory) {
      const double bound = orders_.bound_of(family, kMostOps).first;
      if (bound > node.bound) {
        node.bound = node.estimate = bound;
        return hopeless(bound) ? dispose(node) : rest_.push(std::move(node));
      }
    }
    const std::size_t cuts = count_cuts(layers, stages, options_.most_cuts);
    const bool all_choices = static_cast<double>(cuts) * recompute_choices(family) <=
                             static_cast<double>(options_.most_cuts);
    if (!all_choices) {
      ++out_.represented;
      represented_.push_back({node.bound, family});
    }
    for_each_cut(layers, stages, [&](const std::vector<int>& cut) {
      all_choices ? file_all(Candidate{family, cut}) : file_some(Candidate{family, cut});
    });
  }

  /// All ways to recompute, one by one or as what is at least as long as one of them.
  void file_all(Candidate candidate) {
    if (candidate.family.schedule->checkpoints) {
      file(out_.cuts, Node::cut, candidate, bounds_.bound_of(candidate));
    } else if (more_takes_longer(candidate.family)) {
      candidate.recompute = bounds_.least_recompute(candidate);
      file_with_more(candidate, std::vector<bool>(candidate.layers.size(), true));
    } else {
      candidate.recompute.assign(candidate.layers.size(), recomputes_.front());
      do {
        file(out_.cuts, Node::cut, candidate, bounds_.bound_of(candidate));
      } while (next_choice(candidate.recompute, candidate.layers));
    }
  }

  /// With all that recomputes more in one of these stages.
  void file_with_more(const Candidate& candidate, const std::vector<bool>& more) {
    const Bound bound = bounds_.of_what_fits(candidate, more);
    file(out_.cuts, Node::cut, candidate, bound, bound.fits ? more : std::vector<bool>{});
  }

  /// Counts; false after the last.
  bool next_choice(std::vector<Recomputation>& stages, const std::vector<int>& layers) const {
    for (std::size_t s = 0; s < stages.size(); ++s) {
      if (steps_.take_more(stages, layers, s)) return true;
      stages[s] = recomputes_.front();
    }
    return false;
  }

  /// The one that is best by its bound; for the least memory those that recompute all alike.
  void file_some(Candidate candidate) {
    const auto file_this = [&] {
      file(out_.cuts, Node::cut, candidate, bounds_.bound_of(candidate), {}, true);
    };
    if (candidate.family.schedule->checkpoints) return file_this();
    if (options_.objective == Objective::memory) {
      for (const Recomputation& r : recomputes_) {
        candidate.recompute.assign(candidate.layers.size(), r);
        file_this();
      }
      return;
    }
    candidate.recompute = bounds_.least_recompute(candidate);
    if (bounds_.make_fit(candidate)) file_this();
  }

  void evaluate(const Node& node) {
    if (!node.more.empty()) {
      const Bound bound = bounds_.bound_of(node.candidate);
      if (!bound.fits) return too_large(node, {{bound.overfull, {}}}, false);
    }
    ++out_.evaluations;
    const Shape& shape = node.candidate.family.shape;
    const Looked looked = answers_.look(node.candidate, queue_, false, best());
    if (!looked.unanswered.empty()) throw SystemError(looked.unanswered);
    if (!looked.cannot_run.empty()) return refuse(looked.cannot_run);
    const Judgement judgement = answers_.per_batch(looked.judgement, looked.samples_per_update);
    if (looked.exact) return settle(node, judgement);
    Node bounded = node;
    bounded.level = Node::relaxed;
    bounded.memory_bytes = std::max(node.memory_bytes, judgement.memory_bytes);
    bounded.estimate =
        std::max(node.bound, cost(judgement.iteration_time_s, bounded.memory_bytes, shape));
    // Without a flush the answer is a difference of two times, each of them only bounded.
    if (node.candidate.family.schedule->flushes()) bounded.bound = bounded.estimate;
    relaxed_.push(bounded);
  }

  void confirm(const Node& node) {
    const PlanFamily& family = node.candidate.family;
    answers_.confirm(family);
    confirm_at_ = out_.evaluations + kBetweenConfirmations;
    try {
      settle(node, answers_.judgement_of(node, relaxed_, best()));
      // Where links are shared, what recomputes more might be faster than this; not than its bound.
      if (may_recompute_more(node)) above_.push_back({node.bound, family});
    } catch (const InputError& error) {
      refuse(error.what());
    } catch (const SystemError&) {
      unanswered_.push_back(node);
    }
  }

  void refuse(const std::string& why) {
    ++out_.cuts.refused;
    why_not_ = why;
  }

  void settle(const Node& node, const Judgement& judgement) {
    if (judgement.fits) {
      ++out_.cuts.opened;
      keep(problem_.choice(node.candidate), judgement);
      return;
    }
    why_not_ = judgement.why;
    if (!std::isfinite(judgement.iteration_time_s)) {
      ++out_.cuts.refused;
      return;
    }
    too_large(node, judgement.overfull, !judgement.engine.empty());
  }

  bool may_recompute_more(const Node& node) const {
    for (std::size_t s = 0; s < node.more.size(); ++s)
      if (node.more[s] && node.candidate.recompute[s] != recomputes_.back()) return true;
    return false;
  }

  /// Files what recomputes more instead. `anywhere`: of a whole run, whose messages wait on other
  /// devices, too; else what a device holds depends on its own stages.
  void too_large(const Node& node, const Overfull& overfull, bool anywhere) {
    ++out_.cuts.too_large;
    if (overfull.empty()) return;
    const PlanFamily& family = node.candidate.family;
    if (node.sample) return try_again(node, overfull);
    if (node.more.empty()) return;
    if (++too_large_cuts_[family.describe()] > options_.most_cuts) {
      represented_.push_back({node.bound, family});
      return;
    }
    const auto device = static_cast<std::size_t>(overfull.begin()->first);
    std::vector<std::uint32_t> stages;
    const auto shares = shares_of(family);
    for (const Share& share : shares[device]) stages.push_back(share.stage);
    for (std::uint32_t s = 0; anywhere && s < node.more.size(); ++s)
      if (std::ranges::find(stages, s) == stages.end()) stages.push_back(s);
    // Each of them once: with more of one stage, and no more of those before it in this list.
    std::vector<bool> more = node.more;
    for (const std::uint32_t s : stages) {
      Candidate longer = node.candidate;
      if (!more[s] || !steps_.take_more(longer.recompute, longer.layers, s)) continue;
      file_with_more(longer, more);
      more[s] = false;
    }
  }

  /// With more recomputation, or fewer layers where that does not do, at once: what is known of a
  /// family's bound says little of its memory.
  void try_again(Node node, const Overfull& overfull) {
    constexpr int kMostTries = 12;
    Candidate& candidate = node.candidate;
    if (candidate.recompute.empty() || options_.objective == Objective::memory) return;
    if (++node.tries > kMostTries) return;
    const std::vector<Recomputation> before = candidate.recompute;
    const bool fits = bounds_.make_fit(candidate, overfull);
    const bool changed = candidate.recompute != before;
    if (!fits || (!changed && !recompute_more_on(candidate, overfull, steps_))) {
      if (!move_layers_off(candidate, overfull)) return;
      candidate.recompute = bounds_.least_recompute(candidate);
      if (!bounds_.make_fit(candidate)) return;
    }
    const Bound bound = bounds_.bound_of(candidate);
    ++out_.cuts.made;
    node.bound = node.estimate = cost(bound.time_s, bound.memory_bytes, candidate.family.shape);
    hopeless(node.bound) || !more_evaluations() ? dispose(node) : evaluate(node);
  }

  void keep(const Choice& choice, const Judgement& judgement, const std::string& from = {}) {
    kept_.keep({choice, judgement, cost(judgement, choice), throughput(judgement), from});
  }

  void leave_open(double least, const PlanFamily& family) {
    if (hopeless(least)) return;
    all_orders_.add_bound(least, family);
    const bool searched = family.schedule != nullptr && family.schedule->looks_at_costs;
    if (!searched) known_orders_.add_bound(least, family);
  }

  /// Of a family looked into by its order.
  void try_cut(const Candidate& cut, bool sample) {
    const Bound bound = bounds_.bound_of(cut);
    const double least = cost(bound.time_s, bound.memory_bytes, cut.family.shape);
    if (hopeless(least)) return;
    ++out_.cuts.made;
    evaluate({Node::cut, least, next_++, cut, bound.memory_bytes, least, {}, sample});
    while (answers_.confirms_of_orders() && !relaxed_.empty() &&
           !hopeless(relaxed_.top().estimate)) {
      answers_.confirm_of_orders();
      confirm(take_node(relaxed_));
    }
  }

  /// What is still in the queues is proven worse, or left.
  void leave_rest() {
    for (const auto* opens : {&represented_, &above_})
      for (const OpenFamily& open : *opens) leave_open(open.least, open.family);
    for (const OpenFamily& open : left_) {
      ++(std::isinf(open.least) ? out_.families.too_large
         : hopeless(open.least) ? out_.families.worse
                                : out_.families.left);
      leave_open(open.least, open.family);
    }
    for (const Node& node : unanswered_) relaxed_.push(node);
    for (Queue* queue : {&queue_, &rest_, &relaxed_})
      for (; !queue->empty(); queue->pop()) dispose(queue->top());
  }

  /// It is not looked into any more.
  void dispose(const Node& node) {
    Tally& tally = node.level == Node::shape                                    ? out_.shapes
                   : node.level == Node::schedule || node.level == Node::family ? out_.families
                                                                                : out_.cuts;
    if (node.level == Node::schedule) ++tally.made;
    if (node.level == Node::all_cuts) {  // of a family that was opened
      out_.represented += hopeless(node.bound) ? 0 : 1;
      leave_open(node.bound, node.candidate.family);
      return;
    }
    if (hopeless(node.bound)) {
      ++tally.worse;
    } else {
      ++tally.left;
      leave_open(node.bound, node.candidate.family);
    }
  }

  void finish() {
    out_.lower_bound = std::min(best(), all_orders_.least);
    out_.gap_held_by = all_orders_.held_by;
    out_.known_orders_lower_bound = std::min(best(), known_orders_.least);
    out_.known_orders_gap_held_by = known_orders_.held_by;
    if (!kept_.empty() && out_.lower_bound > 0) out_.gap = best() / out_.lower_bound - 1;
    if (!kept_.empty() && out_.known_orders_lower_bound > 0)
      out_.known_orders_gap = best() / out_.known_orders_lower_bound - 1;
    if (kept_.empty() && out_.lower_bound == kUnlimited) out_.infeasible_because = why_nothing();
    out_.single_layers = steps_.single_layers();
    answers_.tell(out_);
    out_.plans = kept_.offer(options_.top, options_.all_degrees);
    out_.found = kept_.all();
  }

  /// By what became of all that was made.
  std::string why_nothing() const {
    const std::string too_long = too_long_text(problem_, axes_);
    if (out_.shapes.made == 0 && !too_long.empty()) return "only " + too_long;
    if (out_.shapes.made == 0)
      return fmt::format(
          "no depth, width and microbatch size that may be chosen make {} samples per update on at "
          "most {} GPUs",
          problem_.batch(), problem_.gpus());
    const bool too_large =
        out_.shapes.too_large + out_.families.too_large + out_.cuts.too_large > 0;
    if (!why_not_.empty()) return why_not_;
    if (too_large)
      return "no plan fits the devices' memory" +
             (too_long.empty() ? "" : "; not looked at: " + too_long);
    return "no schedule that may be chosen runs with these stages, chunks, replicas and "
           "microbatches";
  }

  void report() {
    if (!options_.progress) return;
    options_.progress(out_.evaluations, best(), queue_.empty() ? best() : queue_.top().bound);
  }

  const Problem& problem_;
  const Axes& axes_;
  const SearchOptions& options_;
  const RecomputeSteps steps_;
  const std::vector<Recomputation>& recomputes_;  // of a stage, the least first
  const Moves moves_;
  Bounds bounds_;
  KeptPlans kept_;
  Answers answers_;
  OrderTrials orders_;
  Queue queue_, rest_, relaxed_;
  std::size_t next_ = 0, confirm_at_ = kBeforeConfirmations, orders_at_ = kBeforeConfirmations;
  std::map<std::string, std::size_t> too_large_cuts_;  ///< of families
  LeastOpen all_orders_, known_orders_;
  std::vector<OpenFamily> represented_;  ///< whose other cuts are not visited
  std::vector<OpenFamily> above_;        ///< of cuts that recompute more than what was confirmed
  std::vector<OpenFamily> left_;         ///< that take too long
  std::vector<Node> unanswered_;         ///< whose `confirm` failed
  std::string why_not_;
  SearchResult out_;
};

}  // namespace

double cost_of(Objective objective, double time_s, double memory_bytes, int gpus) {
  switch (objective) {
    case Objective::memory: return memory_bytes;
    case Objective::price: return time_s * gpus;
    default: return time_s;
  }
}

SearchResult search(const Problem& problem, const Axes& axes, const SearchOptions& options) {
  if (options.uniform_recompute && recomputes_of(axes).size() > 1)
    return search_uniform(problem, axes, options);
  return Search(problem, axes, options).run();
}

SearchResult judge_starts(const Problem& problem, const Axes& axes, const SearchOptions& options) {
  return Search(problem, axes, options).judge_starts();
}

}  // namespace penstock

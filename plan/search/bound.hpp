// SPDX-License-Identifier: Apache-2.0
// Lower bounds on the time of an update and on the memory of the fullest device, without
// simulating.
//
// For a candidate with F_s, B_s the times of stage s, device d with its stages S(d), first(d) the
// lowest of them, m microbatches, any order of ops on the devices and any transfers:
//
//   T >= fill(d) + m * sum_{s in S(d)} (F_s + B_s) + reduce(d) + step(d)
//   T >= fill(d) + m * sum_{s in S(d)} (F_s + I_s) + drain(d) + reduce(0) + step(0)
//   fill(d)  = sum_{s < first(d)} F_s + messages,    drain(d) = sum_{s < first(d)} I_s + messages
//
// Proof: a device's first op is a forward of one of its stages; the microbatch has passed all
// stages before, at least those before first(d) (fill). From then on the device does all of its
// work, one op at a time; it reduces and steps after its last backward (first line). Its last I or
// B belongs to a stage at or behind first(d), and that microbatch's gradient still has to pass all
// stages before, after which the device of stage 0 reduces and steps (second line). Where one
// direction is mirrored (Chimera, DualPipe) fill and drain take the nearer end. Replicas and
// contention only add to this; 2BW and others without a flush keep at least m (F_0 + B_0) between
// updates of device 0.
//
// For a family, whose cut into stages is not yet chosen, with one stage per device: the least over
// all cuts of the larger line, by dynamic programming over (devices, layers before):
//   T(d, P + n) = min_n max(T(d-1, P), bound of device d with n layers behind P others)
// where those P count as one stage, which takes no longer (stage_table.hpp). With several stages
// per device: the mean over the devices of fill, all layers' work, reduce and step, each stage
// having at least one layer; and the largest load where layers are dealt out as evenly as can be,
// one device having the LM head beside its layers.
//
// Recomputation is chosen stage by stage, perhaps layer by layer. The least time of a stage is that
// of the least recomputation with which its device holds it; of single layers, each adds at least
// what the first one does (an op is as long as the longest of sums over its layers: convex in the
// number of those made again); work with n layers, of which x_r recompute as r
// says, is at least that without recomputation and sum x_r delta_r, delta_r what one layer adds.
// Where a device has several stages: the least sum for which static(n) + k(d) sum x_r a_r fits, a_r
// the activations of a layer, x_r real numbers; layers are dealt out so that the sum over all
// devices is least (it is convex in n), or the largest load of a device (which need only grow with
// n: there x_r are integers where there are two).
//
// An order that is searched for stashes what it may, which no order tells beforehand. But the
// activations of stage s are held from the start of its F to the end of its I, at least while that
// microbatch passes the stages behind, there and back, L_s, and w_s of them while W runs, too. So
// what a device holds over an update, with x of its layers recomputed (life_bound.cpp),
//   m * sum_s (a_s(x) * L_s + w_s(x) * W_s) <= free * (T - lost)        (Little's law)
//   T >= fill + m * sum_s (F_s + B_s + x_s delta) + reduce + step
//   free = capacity - static
// where free memory is lost before the first F and behind the last op, and while the device fills
// and empties: what it holds grows by no more than a_s/F_s, and goes by no more than a_s/B_s or
// w_s/W_s. Where
// x = 0 it also stands idle: until its first I may start it runs F's only, and from its last F on
// only backwards of what it holds, in both cases no more than fit its memory. Of all cuts, device
// by device in a dynamic program over the layers before (and, with two chunks there and back,
// behind) it, the least of the longest device.
//
// Memory: a device with n layers holds their weights, gradients and optimizer state, and the
// activations that its order of ops (which no engine changes) stashes at most: k(d) microbatches of
// each layer, with several stages the least over all ways to spread the layers over them; so
// n <= n_max(d), and the family is infeasible when no cut respects all n_max(d). At one time k(d)
// is of all activations until I, at another of those that are kept until W: the larger one counts.
//
// Where the order of ops is known, every chain of ops that wait for one another is a bound, linear
// in the layers of the stages and in those that recompute, and so is what a device holds at any
// time. The least T over all numbers of them that keep these rows is a bound of the family: a
// linear program, to which the longest chains of its own solution are added until there are none
// (Kelley, "The cutting-plane method for solving convex programs", J. SIAM 8, 1960), and branches
// where layers are no integers (Land and Doig, Econometrica 28, 1960).
//
// All this holds for what the bounds understand. Of a problem with a feature that they do not know
// (Understood) remains the bound by work: T >= m * all work / p.
//
// For a shape, whose schedule is not chosen either: T >= (m * all work + reduce + step) / p; where
// schedules without a flush may be chosen, no more than m times the first layer's work.
#pragma once

#include "plan/search/judgement.hpp"
#include "plan/search/recompute_steps.hpp"
#include "plan/search/stage_table.hpp"
#include "plan/search/stash.hpp"

#include <map>
#include <optional>

namespace penstock {

struct Bound {
  double time_s = 0;
  double memory_bytes = 0;  ///< the memory of the fullest device
  bool fits = true;         ///< false where it is proven not to fit
  int overfull = -1;        ///< the fullest device of a candidate that does not fit; else -1
};

struct OrderBound {
  double time_s = 0;              ///< the bound; 0: nothing is known
  std::int64_t ops = 0;           ///< how many ops were run for it
  std::vector<Candidate> good{};  ///< candidates that are nearly as fast as the bound, if they fit
};

/// How much of a problem the bounds model; each value includes those before it. A bound that rests
/// on more is not used.
enum class Understood : std::uint8_t {
  work,  ///< the work of ops: an update takes at least all of it, divided evenly among the devices
  cuts,  ///< the time and memory of runs of layers, messages and reductions
  layers,  ///< that layers in the middle are alike
  orders,  ///< what recomputing a layer adds
};
/// Returns what is understood of a scenario by the features that it has, of a declared list, and by
/// the keys of its pipeline that are kept: `work` where one of these is none of those that bounds
/// know.
Understood understood_of(const Scenario& base, const std::vector<std::string>& kept_keys);
Understood understood_of(const Problem& problem);

/// Computes bounds for one problem, and keeps what it computed. Not thread-safe.
class Bounds {
 public:
  Bounds(const Problem& problem, const Axes& axes)
      : Bounds(problem, axes, understood_of(problem)) {}
  Bounds(const Problem& problem, const Axes& axes, Understood understood);

  /// Returns a bound for every schedule and recomputation of the axes.
  Bound bound_of(const Shape& shape);
  /// Returns a bound for every cut and recomputation. Also sets `good` to a candidate that is good
  /// by the bound, where one fits.
  Bound bound_of(const PlanFamily& family, Candidate* good = nullptr);
  /// Returns the bound of a candidate.
  Bound bound_of(const Candidate& candidate);

  /// Returns a bound for all candidates that fit by their bounds and recompute as much as this one,
  /// or, in stages for which `more` is true, as much or more.
  Bound of_what_fits(const Candidate& candidate, const std::vector<bool>& more);

  /// Returns for each stage the least recomputation of all candidates with these layers that fit.
  std::vector<Recomputation> least_recompute(const Candidate& candidate);
  /// Recomputes more where that costs least time per byte, until the candidate fits by its bound.
  /// Returns false where it never does. `overfull` has the devices that a simulation found too
  /// full.
  bool make_fit(Candidate& candidate, const Overfull& overfull = {});
  /// Returns a bound for all cuts and recomputations of a family: by the order of its ops where
  /// that is known, else by the memory that its microbatches occupy. It stops at a bound of
  /// `enough_s`, and after `most_ops` ops.
  OrderBound of_order(const PlanFamily& family, double enough_s, std::int64_t most_ops);
  /// Returns a lower bound than bound_of(family) quickly, without orders of ops and without cuts.
  Bound rough(const PlanFamily& family);

  /// Returns the memory of the largest device; infinite where it is not known.
  double capacity_bytes() const { return capacity_; }

 private:
  /// A recomputation of a stage, and what runs of layers take and hold with it.
  struct Level {
    Recomputation recompute;
    StageTable* time;
    StageTable* held;
  };
  struct Cut;

  Level level_of(const PlanFamily& family, const Recomputation& recompute);
  bool more(Cut& cut, std::size_t stage);
  /// Returns whether a pair of F and B may run together, and hide exchanges of tokens.
  bool pairs(const PlanFamily& family) const;
  StageTable& table(const Shape& shape, const Recomputation& recompute, bool pairs = true);
  /// Returns the least price of an all-to-all among so many GPUs that divide experts, which is that
  /// among neighbours; none where it is not known.
  const CollectivePrice* token_price(int expert);
  /// Returns the recomputations of a family, the least first; of schedules with checkpoints, that
  /// of its `checkpoint`.
  std::vector<Level> levels(const PlanFamily& family);
  Cut cut_of(const Candidate& candidate);
  double held_bytes(const Cut& cut, std::size_t device, const Held& stash) const;
  double held_bytes(const Cut& cut, std::size_t device) const;
  bool make_fit(Cut& cut, std::size_t device, double k, double capacity);
  double least_extra_s(Cut& cut, const std::vector<bool>& more, std::size_t device,
                       std::size_t share);
  Bound bound_of(const Cut& cut, const std::vector<double>& extra_s) const;
  double stash_in(const Cut& cut, std::size_t device, const TooMany& held) const;
  int least_layers_again(const StagePart& none, const StagePart& full, int n,
                         const Held& stash) const;
  double least_added_s(const Shape& shape, double StagePart::*part = &StagePart::backward_s);
  double added_to_both_s(const PlanFamily& family, std::size_t level);
  double least_held_bytes(const Cut& cut, std::size_t device, std::uint32_t stage,
                          const Level& level) const;
  /// Return the least seconds of a message between two devices, and of the reduction of a stage.
  double message_s(double bytes) const;
  double least_message_s(StageTable& time) const;
  double reduce_s(const PlanFamily& family, double bytes) const;
  double reduce_s(const Shape& shape, double bytes) const;
  /// Returns whether a device can hold a stage with this recomputation and all of a stash.
  bool holds(const StagePart& part, const Held& stash) const;
  std::vector<int> most_layers(const PlanFamily& family);
  /// By layers of a device; `convex`: of real numbers of recomputed layers, `whole`: of integers.
  struct Extra {
    std::vector<double> convex, whole;
  };
  Extra extra_s(const PlanFamily& family, const Held& stash);
  /// Of one layer at least, by level: what it adds to the work, and keeps of a microbatch until I
  /// and until W.
  struct LevelUse {
    double extra_s, bytes, late_bytes;
  };
  std::vector<LevelUse> level_uses(const PlanFamily& family);
  Candidate balanced(const PlanFamily& family, const std::vector<int>& most);
  double good_cut_s(const PlanFamily& family, const std::vector<int>& most);
  Bound of_line(const PlanFamily& family, const std::vector<int>& most, Candidate* good);
  Bound of_many(const PlanFamily& family, const std::vector<int>& most, Candidate* good);
  struct Dealt {
    double extra_s = 0, largest_s = 0;
  };
  Dealt deal_out(const PlanFamily& family);
  double mean_s(const PlanFamily& family, double extra_s);
  OrderBound by_lives(const PlanFamily& family, double enough_s, std::int64_t most_ops);
  double first_layer_s(const PlanFamily& family);

  const Problem& problem_;
  const Understood understood_;
  const RecomputeSteps steps_;
  const std::vector<Recomputation>& recomputes_;  // that a stage may choose, the least first
  bool all_flush_;                                // no schedule without a flush may be chosen
  double capacity_;
  double latency_s_ = 0, s_per_byte_ = 0;  // of the fastest message
  bool rings_ = false;                     // gradients go round rings of links that are known
  std::map<StageTable::Key, StageTable> tables_;
  std::map<int, CollectivePrice> token_prices_;
  /// By one layer that is recomputed, at least: to B and to I.
  std::map<StageTable::Key, double> added_s_, added_to_input_s_;
  Stashes stashes_;
};

}  // namespace penstock

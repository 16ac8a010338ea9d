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
// having at least one layer; and the device with at least ceil(L / p) layers.
//
// Memory: a device with n layers holds their weights, gradients and optimizer state, and the
// activations that its order of ops (which no engine changes) stashes at most: k(d) microbatches of
// each layer, with several stages the least over all ways to spread the layers over them; so
// n <= n_max(d), and the family is infeasible when no cut respects all n_max(d).
//
// For a shape, whose schedule is not chosen either: T >= (m * all work + reduce + step) / p; where
// schedules without a flush may be chosen, no more than m times the first layer's work.
#pragma once

#include "plan/search/stage_table.hpp"

#include <map>
#include <optional>

namespace penstock {

struct Bound {
  double time_s = 0;
  double memory_bytes = 0;  ///< of the fullest device
  bool fits = true;         ///< false: proven not to fit
};

/// Bounds of one problem; keeps what it computed. Not thread-safe.
class Bounds {
 public:
  /// `all_flush`: no schedule without a flush is asked about by its shape.
  Bounds(const Problem& problem, bool all_flush);

  Bound of(const Shape& shape);
  /// Also gives a cut that is good by the bound, where one fits.
  Bound of(const PlanFamily& family, std::vector<int>* cut = nullptr);
  Bound of(const Candidate& candidate);

  double capacity_bytes() const { return capacity_; }  ///< of the largest device; infinite: unknown

 private:
  StageTable& table(const Shape& shape, Recompute recompute);
  StageTable& times(const PlanFamily& family);
  StageTable& bytes(const PlanFamily& family);
  /// A message between two devices, and the reduction of a stage.
  double message_s(double bytes) const;
  double least_message_s(StageTable& time) const;
  double reduce_s(const PlanFamily& family, double bytes) const;
  double reduce_s(const Shape& shape, double bytes) const;
  /// Microbatches of all its stages that a device holds at once, by its order.
  const std::vector<double>& stash(const PlanFamily& family);
  int most_layers(const PlanFamily& family, double stash);
  std::vector<int> most_layers(const PlanFamily& family);
  double good_cut_s(const PlanFamily& family, const std::vector<int>& most);
  Bound of_line(const PlanFamily& family, const std::vector<int>& most, std::vector<int>* cut);
  Bound of_many(const PlanFamily& family, const std::vector<int>& most, std::vector<int>* cut);
  std::vector<int> balanced(const PlanFamily& family, const std::vector<int>& most);

  const Problem& problem_;
  bool all_flush_;
  double capacity_;
  double latency_s_ = 0, s_per_byte_ = 0;    // of the fastest message
  double ring_near_s_ = 0, ring_far_s_ = 0;  // per byte, within and across nodes
  std::map<StageTable::Key, StageTable> tables_;
  std::map<std::vector<std::int64_t>, std::vector<double>> stashes_;
};

}  // namespace penstock

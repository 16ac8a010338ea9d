// SPDX-License-Identifier: Apache-2.0
// Bounds of a family whose order of ops is searched for: by what its microbatches occupy.
#include "plan/search/bound.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <span>
#include <vector>

namespace penstock {
namespace {

constexpr double kImpossible = std::numeric_limits<double>::infinity();

/// A stage of a device, and the messages behind it, on the way there.
struct PassedStage {
  int first, count, messages;
};

/// Layers that may recompute: so many, at so much work each, which frees so much of each.
struct Again {
  double layers, extra_s, freed_byte_s;

  double worth() const { return freed_byte_s / extra_s; }
};

/// What a device does and holds over an update.
struct DeviceUse {
  double own_s = 0;       ///< until it has begun, its work, and from its last op on
  double free_bytes = 0;  ///< for activations and workspaces
  double byte_s = 0;      ///< that those occupy
  double lost_s = 0;      ///< of all its free memory, before it is full and when it empties
  double idle_s = 0;      ///< beside own_s, where no layer recomputes
  std::vector<Again> again{};
  bool whole = false;        ///< they recompute one by one
  double least_extra_s = 0;  ///< of one of them

  /// The least time that is enough for both: a layer that recomputes adds to one and takes from
  /// the other, first those that take most per second.
  double least_s() {
    std::ranges::sort(again, std::greater{}, &Again::worth);
    double held_s = byte_s / free_bytes + lost_s;
    if (whole && held_s <= own_s + idle_s) return own_s + std::min(idle_s, least_extra_s);
    for (const auto& [layers, extra_s, freed_byte_s] : again) {
      if (held_s <= own_s) break;
      const double freed_s = freed_byte_s / free_bytes;
      const double n = std::min(layers, (held_s - own_s) / (extra_s + freed_s));
      if (whole && n < layers) {  // the last that is too few, or one more
        const double few = std::floor(n);
        return std::min(held_s - few * freed_s, own_s + (few + 1) * extra_s);
      }
      own_s += n * extra_s;
      held_s -= n * freed_s;
    }
    return std::max(own_s, held_s);
  }
};

struct LifeCosts {
  struct Level {
    StageTable* table;
    double extra_s;  ///< of one layer, beside what the first level takes
  };
  std::vector<Level> levels;
  int layers = 0;
  double microbatches = 0, message_s = 0, capacity = 0;
  std::function<double(double)> reduce_s;
};

/// Of all ways to deal out layers to devices in turn the least of the longest.
class LivesOfDevices {
 public:
  LivesOfDevices(LifeCosts costs, int depth, double enough_s, std::int64_t most_ops)
      : costs_(std::move(costs)), depth_(depth), enough_s_(enough_s), most_ops_(most_ops) {
    const auto too_long = [&](int n) { return middle_s(n) >= enough_s_; };
    while (most_ < costs_.layers && !too_long(most_ + 1)) ++most_;
  }

  /// That were looked into: devices with layers.
  std::int64_t ops() const { return ops_; }
  /// Too many: nothing is known.
  bool gave_up() const { return ops_ > most_ops_; }

  double one_stage_each() {
    std::vector<double> best(columns(), kImpossible);
    best[0] = 0;
    for (int d = 0; d < depth_ && !gave_up(); ++d) {
      std::vector<double> next(columns(), kImpossible);
      for (int before = 0; before < costs_.layers; ++before) {
        if (at(best, before) >= enough_s_ || !enough_behind(d, before)) continue;
        for (int n = d + 1 == depth_ ? costs_.layers - before : 1; before + n <= costs_.layers;
             ++n) {
          const PassedStage stage{before, n, depth_ - 1 - d};
          if (own_s({&stage, 1}, d, before) >= enough_s_) break;
          take_shorter(at(next, before + n), at(best, before), device_s({&stage, 1}, d, before));
        }
      }
      best = std::move(next);
    }
    return std::min(best.back(), enough_s_);
  }

  /// Device d has stages d and 2p - 1 - d.
  double there_and_back() {
    std::vector<double> best(columns() * columns(), kImpossible);
    best[0] = 0;
    for (int d = 0; d < depth_ && !gave_up(); ++d) {
      std::vector<double> next(best.size(), kImpossible);
      for (int before = 0; before < costs_.layers; ++before)
        for (int behind = 0; before + behind < costs_.layers; ++behind) {
          const double so_far = at(best, before, behind);
          if (so_far < enough_s_ && enough_behind(d, before + behind))
            take_pairs(d, before, behind, so_far, next);
        }
      best = std::move(next);
    }
    double least = enough_s_;
    for (int before = 0; before <= costs_.layers; ++before)
      least = std::min(least, at(best, before, costs_.layers - before));
    return least;
  }

 private:
  std::size_t columns() const { return static_cast<std::size_t>(costs_.layers) + 1; }
  static double& at(std::vector<double>& of, int before) {
    return of[static_cast<std::size_t>(before)];
  }
  double& at(std::vector<double>& of, int before, int behind) const {
    return of[static_cast<std::size_t>(before) * columns() + static_cast<std::size_t>(behind)];
  }
  static void take_shorter(double& to, double so_far, double device_s) {
    to = std::min(to, std::max(so_far, device_s));
  }
  /// Can the devices from d on have all other layers?
  bool enough_behind(int d, int given) const {
    return costs_.layers - given <= (depth_ - d) * most_;
  }
  StageTable& table() const { return *costs_.levels.front().table; }

  void take_pairs(int d, int before, int behind, double so_far, std::vector<double>& next) {
    const int room = costs_.layers - before - behind;
    for (int up = 1; up < room && !gave_up(); ++up)
      for (int down = d + 1 == depth_ ? room - up : 1; up + down <= room; ++down) {
        const int last = costs_.layers - behind - down;
        const PassedStage stages[] = {{before, up, 2 * depth_ - 2 - d}, {last, down, d}};
        if (own_s(stages, d, before) >= enough_s_) break;
        take_shorter(at(next, before + up, behind + down), so_far, device_s(stages, d, before));
      }
  }

  double end_s(std::span<const PassedStage> stages) const {
    double step_s = 0, bytes = 0;
    for (const auto& [first, count, _] : stages) {
      step_s += table().part(first, count).step_s;
      bytes += table().part(first, count).reduced_bytes;
    }
    return step_s + costs_.reduce_s(bytes);
  }
  /// Until device d has its first microbatch.
  double fill_s(int d, int before) const {
    return before == 0 ? 0 : table().part(0, before).forward_s + d * costs_.message_s;
  }
  double own_s(std::span<const PassedStage> stages, int d, int before) const {
    double work_s = 0;
    for (const auto& [first, count, _] : stages) work_s += table().part(first, count).work_s();
    return fill_s(d, before) + costs_.microbatches * work_s + end_s(stages);
  }
  /// Of n layers in the middle.
  double middle_s(int n) const { return costs_.microbatches * table().lightest(n).work_s(); }

  double device_s(std::span<const PassedStage> stages, int d, int before) {
    ++ops_;
    DeviceUse use{.own_s = own_s(stages, d, before),
                  .free_bytes = costs_.capacity,
                  .whole = costs_.levels.size() == 2};
    if (use.whole) use.least_extra_s = costs_.microbatches * costs_.levels[1].extra_s;
    double largest = 0, per_s = 0, per_s_at_end = 0;
    for (const PassedStage& stage : stages) {
      const StagePart& part = table().part(stage.first, stage.count);
      use.free_bytes -= part.static_bytes;
      use.byte_s += costs_.microbatches * byte_s(part, stage);
      for (const LifeCosts::Level& level : costs_.levels) {
        const StagePart& held = level.table->part(stage.first, stage.count);
        largest = std::max(largest, held.activation_bytes);
        per_s = std::max(per_s, held.activation_bytes / part.forward_s);
        per_s_at_end = std::max({per_s_at_end, held.activation_bytes / part.backward_s,
                                 held.weight_input_bytes / (part.backward_s - part.input_s)});
      }
      add_again(stage, use.again);
    }
    if (use.free_bytes <= 0) return kImpossible;
    // What it holds grows no faster than its forwards run, and in the end goes no faster than its
    // backwards do.
    const double rest = std::max(0.0, use.free_bytes - largest);
    const double ramps_s = rest / per_s + rest / per_s_at_end;
    const double around_s = fill_s(d, before) + end_s(stages);
    use.lost_s = around_s;
    if (ramps_s <= use.own_s - around_s) use.lost_s += rest * ramps_s / 2 / use.free_bytes;
    if (use.whole) use.idle_s = idle_s(stages, d, before, use.free_bytes);
    return use.least_s();
  }

  /// That a device stands idle beside its fill, where nothing is recomputed: until the first
  /// microbatch comes back it runs forwards only, all of which it holds; and from its last forward
  /// on only backwards of what it holds.
  double idle_s(std::span<const PassedStage> stages, int d, int before, double free_bytes) const {
    const StagePart& all = table().part(0, costs_.layers);
    const PassedStage& upper = stages.back();
    const int end = upper.first + upper.count, messages = stages.front().messages + d;
    double there_s = all.forward_s + (messages + upper.messages) * costs_.message_s;
    double back_s = table().part(before, costs_.layers - before).input_s +
                    (upper.messages + stages.front().messages) * costs_.message_s;
    if (end < costs_.layers) {
      const StagePart& behind = table().part(end, costs_.layers - end);
      there_s += behind.input_s;
      back_s += behind.forward_s;
    }
    double forward_s = 0, backward_s = 0, bytes = 0;  // of all that the device can hold
    for (const auto& [first, count, _] : stages) {
      const StagePart& part = table().part(first, count);
      forward_s = std::max(forward_s, free_bytes / part.activation_bytes * part.forward_s);
      backward_s =
          std::max({backward_s, free_bytes / part.activation_bytes * part.backward_s,
                    free_bytes / part.weight_input_bytes * (part.backward_s - part.input_s)});
      bytes += part.activation_bytes;
    }
    const double at_first_s = std::max(0.0, there_s - forward_s - fill_s(d, before));
    // The first gradient comes before the last forward where not all microbatches can be held.
    const bool apart = costs_.microbatches * bytes > free_bytes;
    return apart ? at_first_s + std::max(0.0, back_s - backward_s) : at_first_s;
  }

  /// Until the gradient of the stage's input is there, of one microbatch, at least.
  double life_s(const StagePart& part, const PassedStage& stage) const {
    const int end = stage.first + stage.count;
    double life_s = part.forward_s + part.input_s + 2 * stage.messages * costs_.message_s;
    if (end == costs_.layers) return life_s;
    const StagePart& behind = table().part(end, costs_.layers - end);
    return life_s + behind.forward_s + behind.input_s;
  }
  double byte_s(const StagePart& part, const PassedStage& stage) const {
    const StagePart& none = table().part(stage.first, stage.count);
    return part.activation_bytes * life_s(none, stage) +
           part.weight_input_bytes * (none.backward_s - none.input_s);
  }

  /// Levels of recomputation of one stage that free most for what they take, as steps from one to
  /// the next.
  void add_again(const PassedStage& stage, std::vector<Again>& again) const {
    const auto freed = [&](std::size_t r) {
      return byte_s(table().part(stage.first, stage.count), stage) -
             byte_s(costs_.levels[r].table->part(stage.first, stage.count), stage);
    };
    const auto n = static_cast<double>(stage.count);
    double extra_s = 0, so_far = 0;
    for (std::size_t r = 1; r < costs_.levels.size();) {
      std::size_t best = costs_.levels.size();
      double worth = 0;
      for (std::size_t next = r; next < costs_.levels.size(); ++next) {
        const double more_s = std::max(costs_.levels[next].extra_s - extra_s, kLeastExtra);
        if ((freed(next) - so_far) / n / more_s <= worth) continue;
        worth = (freed(next) - so_far) / n / more_s;
        best = next;
      }
      if (best == costs_.levels.size()) break;
      const double more_s = std::max(costs_.levels[best].extra_s - extra_s, kLeastExtra);
      again.push_back(
          {n, costs_.microbatches * more_s, costs_.microbatches * (freed(best) - so_far) / n});
      extra_s = costs_.levels[best].extra_s;
      so_far = freed(best);
      r = best + 1;
    }
  }

  static constexpr double kLeastExtra = 1e-15;  // seconds

  LifeCosts costs_;
  int depth_, most_ = 0;  // layers that a device may have at most
  double enough_s_;
  std::int64_t most_ops_, ops_ = 0;
};

}  // namespace

OrderBound Bounds::by_lives(const PlanFamily& family, double enough_s, std::int64_t most_ops) {
  if (!family.schedule->looks_at_costs || !family.schedule->flushes()) return {};
  if (understood_ < Understood::orders) return {};
  if (capacity_ == kImpossible || family.schedule->checkpoints) return {};
  const int p = family.shape.depth;
  const bool mirrored = family.schedule->layout == Layout::mirrored;
  const bool line = family.chunks == 1 && family.stages() == p && !mirrored;
  if (!line && !is_there_and_back(family)) return {};
  LifeCosts costs{.levels = {},
                  .layers = problem_.layers(),
                  .microbatches = static_cast<double>(family.shape.microbatches),
                  .message_s = 0,
                  .capacity = capacity_,
                  .reduce_s = [&](double bytes) { return reduce_s(family, bytes); }};
  const std::vector<LevelUse> uses = level_uses(family);
  for (const Level& level : levels(family))
    costs.levels.push_back({level.held, uses[costs.levels.size()].extra_s});
  costs.message_s = least_message_s(*costs.levels.front().table);
  LivesOfDevices lives(std::move(costs), p, enough_s, most_ops);
  const double time_s = line ? lives.one_stage_each() : lives.there_and_back();
  return {.time_s = lives.gave_up() ? 0 : time_s, .ops = lives.ops()};
}

}  // namespace penstock

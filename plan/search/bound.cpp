// SPDX-License-Identifier: Apache-2.0
#include "plan/search/bound.hpp"

#include "scenarios/keys.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <queue>

namespace penstock {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

double capacity_of(const Cluster& cluster) {
  double most = 0;
  const auto look = [&](const DeviceSpec& device) {
    const std::int64_t bytes = device.capacity_bytes();
    most = bytes == 0 ? kInfinite : std::max(most, static_cast<double>(bytes));
  };
  look(cluster.device);
  for (const NodeGroup& group : cluster.groups) look(group.node.device);
  return most;
}

bool mirrored(const PlanFamily& family) { return family.schedule->layout == Layout::mirrored; }

bool all_flush(const Axes& axes) {
  return std::ranges::all_of(axes.schedules, [](const Schedule* s) { return s->flushes(); });
}

constexpr double kWholeBytes = 1e-6;  // of a layer: bytes are rounded

/// The least sum of x_r * extra_r over real x_r >= 0 that add up to n and of which x_r * bytes_r
/// add up to no more than `room`: at most two of them are not 0. Infinite: there are none.
/// `whole`: of two, they are integers.
double least_extra(const std::vector<std::pair<double, double>>& bytes_and_extra, int n,
                   double room, bool whole) {
  double least = kInfinite;
  for (const auto& [bytes, extra] : bytes_and_extra) {
    if (n * bytes <= room) least = std::min(least, n * extra);
    for (const auto& [fewer, more] : bytes_and_extra) {
      if (n * bytes <= room || n * fewer > room) continue;
      double x = (n * bytes - room) / (bytes - fewer);
      if (whole) x = std::min<double>(n, std::ceil(x - kWholeBytes));
      least = std::min(least, (n - x) * extra + x * more);
    }
  }
  return least;
}

/// Deals out layers to so many devices, of which each has `first` to begin with; what `next` says
/// of a device and its layers grows with them. Giving the next one where it is least is best.
template <class Next>
std::vector<int> deal(int layers, int first, std::size_t devices, const Next& next) {
  using Turn = std::pair<double, std::size_t>;
  std::priority_queue<Turn, std::vector<Turn>, std::greater<>> turns;
  std::vector<int> has(devices, first);
  for (std::size_t d = 0; d < devices; ++d)
    if (first < layers) turns.emplace(next(d, first + 1), d);
  for (int given = first * static_cast<int>(devices); given < layers && !turns.empty(); ++given) {
    const std::size_t d = turns.top().second;
    turns.pop();
    if (++has[d] < layers) turns.emplace(next(d, has[d] + 1), d);
  }
  return has;
}

double stash_bytes(const StagePart& part, const Held& stash) {
  return std::max(stash.until_input * part.activation_bytes,
                  stash.until_weights * part.weight_input_bytes);
}

}  // namespace

Understood understood_of(const Scenario& base, const std::vector<std::string>& kept_keys) {
  const auto known = [](const std::string& key) {
    return place_of_choice("optimizer_sync|reduction|expert_exchange|expert_sms|narrow_dispatch",
                           key)
        .has_value();  // bounds price exchanges of tokens as these keys say
  };
  if (!std::ranges::all_of(kept_keys, known)) return Understood::work;
  const std::pair<bool, Understood> features[] = {
      {base.transformer && base.transformer->experts, Understood::cuts},  // as the next
      {base.profile.has_value(), Understood::cuts},                       // layers differ
      {base.layer_profile.has_value(), Understood::layers},  // some is taken once per stage
  };
  Understood least = Understood::orders;
  for (const auto& [has, most] : features)
    if (has) least = std::min(least, most);
  return least;
}

Understood understood_of(const Problem& problem) {
  return understood_of(problem.base(), problem.kept_keys());
}

Bounds::Bounds(const Problem& problem, const Axes& axes, Understood understood)
    : problem_(problem),
      understood_(understood),
      steps_(axes),
      recomputes_(steps_.whole()),
      all_flush_(all_flush(axes)),
      capacity_(understood == Understood::work ? kInfinite : capacity_of(problem.base().cluster)) {
  const Cluster& cluster = problem.base().cluster;
  if (problem.base().lowering.transfers == Transfers::free || understood == Understood::work)
    return;
  const bool known =
      cluster.link ||
      (!cluster.network && cluster.groups.empty() &&
       (cluster.attachment == Attachment::port || cluster.attachment == Attachment::pairs));
  if (!known) return;
  const LinkSpec& link = cluster.link ? *cluster.link : cluster.intra;
  latency_s_ = link.latency_s;
  s_per_byte_ = 1 / link.bytes_per_s;
  if (!cluster.link && cluster.nodes > 1) {
    latency_s_ = std::min(latency_s_, cluster.inter.latency_s);
    s_per_byte_ = std::min(s_per_byte_, 1 / cluster.inter.bytes_per_s);
  }
  rings_ = problem.plain_reduction();
}

bool Bounds::pairs(const PlanFamily& family) const {
  return family.schedule->pairs || problem_.base().lowering.pairs;
}

StageTable& Bounds::table(const Shape& shape, const Recomputation& recompute, bool pairs) {
  const StageTable::Key key{
      shape.tensor,
      shape.context,
      shape.sharded == Sharded::none ? 1 : shape.sharers(),
      shape.sharded,
      shape.sharded == Sharded::weights && shape.depth == 1          ? Gathering::each_pass
      : shape.sharded == Sharded::weights || problem_.gathers_late() ? Gathering::first_forward
                                                                     : Gathering::after_step,
      shape.sequence_parallel,
      shape.microbatch_size,
      recompute,
      shape.expert,
      problem_.base().mesh.expert > 0 ? shape.position_gpus() / shape.expert : 1,
      pairs || problem_.base().mesh.expert == 0};
  return tables_.try_emplace(key, problem_, key, key.pairs ? nullptr : token_price(key.expert))
      .first->second;
}

const CollectivePrice* Bounds::token_price(int expert) {
  const Cluster& cluster = problem_.base().cluster;
  if (expert < 2 || cluster.network || !cluster.groups.empty()) return nullptr;
  // Neighbours are a group's best place where they fill whole nodes, and links within nodes are no
  // slower than those between.
  const int node = cluster.devices_per_node;
  const double out = cluster.inter.bytes_per_s * std::max(1, cluster.nics_per_node) / node;
  if (expert > node && (expert % node != 0 || cluster.intra.bytes_per_s < out)) return nullptr;
  const auto [found, added] = token_prices_.try_emplace(expert);
  if (added) {
    std::vector<int> closest(static_cast<std::size_t>(expert));
    std::iota(closest.begin(), closest.end(), 0);
    Exchange exchange{.what = Collective::all_to_all, .routing = problem_.base().mesh.routing};
    exchange.routing.sm_bytes_per_s = 0;  // over several nodes links alone decide
    found->second = price(exchange, {closest}, cluster);
  }
  return &found->second;
}

/// torchgpipe's except_last stores the last microbatch and makes the others again: its least time
/// is that of the one, its memory that of the others.
std::vector<Bounds::Level> Bounds::levels(const PlanFamily& family) {
  std::vector<Level> out;
  if (family.schedule->checkpoints) {
    const bool always = family.checkpoint == Checkpoint::always;
    const bool never = family.checkpoint == Checkpoint::never;
    const auto of = [&](Recompute r) { return &table(family.shape, r, pairs(family)); };
    out.push_back({Recompute::none, of(always ? Recompute::full : Recompute::none),
                   of(never ? Recompute::none : Recompute::full)});
    return out;
  }
  for (const Recomputation& r : recomputes_) out.push_back(level_of(family, r));
  return out;
}

Bounds::Level Bounds::level_of(const PlanFamily& family, const Recomputation& recompute) {
  StageTable& costs = table(family.shape, recompute, pairs(family));
  return {recompute, &costs, &costs};
}

double Bounds::message_s(double bytes) const { return latency_s_ + bytes * s_per_byte_; }

double Bounds::least_message_s(StageTable& time) const {
  if (!problem_.base().profile) return message_s(time.part(0, 1).output_bytes);
  double least = kInfinite;
  for (int i = 0; i + 1 < problem_.layers(); ++i)
    least = std::min(least, time.part(i, 1).output_bytes);
  return least == kInfinite ? 0 : message_s(least);
}

double Bounds::reduce_s(const Shape& shape, double bytes) const {
  if (!rings_) return 0;
  return bytes *
         least_all_reduce_s_per_byte(problem_.base().cluster, shape.sharers(), shape.tensor);
}

double Bounds::reduce_s(const PlanFamily& family, double bytes) const {
  const bool overlapped = family.schedule->whole_model || !family.schedule->flushes();
  return overlapped ? 0 : reduce_s(family.shape, bytes);
}

Bound Bounds::bound_of(const Shape& shape) {
  const int layers = problem_.layers(), p = shape.depth;
  StageTable& time = table(shape, recomputes_.front());
  const StagePart& all = time.part(0, layers);
  const auto m = static_cast<double>(shape.microbatches);
  Bound bound;
  bound.time_s = m * all.work_s() / p;
  const bool knows_more = understood_ > Understood::work;
  if (p > 1 && knows_more) bound.time_s += (all.step_s + reduce_s(shape, all.reduced_bytes)) / p;
  // Without a flush it is device 0 whose updates are counted.
  if (!all_flush_ && p > 1) bound.time_s = std::min(bound.time_s, m * time.part(0, 1).work_s());
  if (!knows_more) return bound;
  // The fullest device has its share of the state at least. Runs of a profile's layers differ, and
  // the device with the most may have any.
  bound.memory_bytes = all.static_bytes / p;
  bound.fits = bound.memory_bytes <= capacity_;
  if (understood_ < Understood::layers) return bound;
  const int most = (layers + p - 1) / p;  // some device has as many, in the middle or more
  double least = kInfinite;
  for (const Recomputation& r : recomputes_) {
    const StagePart part = table(shape, r).lightest(most);
    least = std::min(least, part.static_bytes + part.activation_bytes + part.workspace_bytes);
  }
  bound.memory_bytes = std::max(bound.memory_bytes, least);
  bound.fits = bound.memory_bytes <= capacity_;
  return bound;
}

bool Bounds::holds(const StagePart& part, const Held& stash) const {
  return part.static_bytes + stash_bytes(part, stash) + part.workspace_bytes <= capacity_;
}

/// Layers that each device can hold.
std::vector<int> Bounds::most_layers(const PlanFamily& family) {
  const int layers = problem_.layers();
  const Stash& stash = stashes_.stash_of(family);
  std::vector<int> most(stash.until_input.size(), layers);
  if (capacity_ == kInfinite || understood_ < Understood::layers) return most;
  const std::vector<Level> all = levels(family);
  std::map<Held, int> known;
  for (std::size_t d = 0; d < most.size(); ++d) {
    const auto [found, added] = known.try_emplace(stash.held_on(d), 0);
    const auto some_level_holds = [&](int n) {
      return std::ranges::any_of(all, [&](const Level& level) {
        return holds(level.held->lightest(n), stash.held_on(d));
      });
    };
    if (added)
      while (found->second < layers && some_level_holds(found->second + 1)) ++found->second;
    most[d] = found->second;
  }
  return most;
}

Bound Bounds::bound_of(const PlanFamily& family, Candidate* good) {
  const std::vector<int> most = most_layers(family);
  const auto reach = [&] {
    if (!mirrored(family)) return std::accumulate(most.begin(), most.end(), 0);
    int sum = 0;  // a device and its mirror image hold the same stages
    for (std::size_t d = 0; 2 * d < most.size(); ++d)
      sum += std::min(most[d], most[most.size() - 1 - d]);
    return sum;
  };
  if (reach() < problem_.layers() || std::ranges::min(most) < 1)
    return {.time_s = kInfinite, .fits = false};
  if (understood_ == Understood::work) {
    if (good != nullptr) *good = balanced(family, most);
    return bound_of(family.shape);
  }
  const bool line = family.stages() == family.shape.depth && !mirrored(family);
  Bound bound = line ? of_line(family, most, good) : of_many(family, most, good);
  bound.memory_bytes = bound_of(family.shape).memory_bytes;
  return bound;
}

/// What a good cut takes at least by its bound, and a little: a better one has no slower device.
double Bounds::good_cut_s(const PlanFamily& family, const std::vector<int>& most) {
  const Candidate good = balanced(family, most);
  if (good.layers.empty()) return kInfinite;
  const Bound bound = bound_of(good);
  return bound.fits ? bound.time_s * (1 + 1e-9) : kInfinite;
}

/// One stage per device: the best cut by dynamic programming.
Bound Bounds::of_line(const PlanFamily& family, const std::vector<int>& most, Candidate* good) {
  const int layers = problem_.layers(), p = family.shape.depth;
  const auto m = static_cast<double>(family.shape.microbatches);
  const std::vector<Level> all = levels(family);
  StageTable& time = *all.front().time;  // of what does not depend on the level
  const Stash& stash = stashes_.stash_of(family);
  const bool flushes = family.schedule->flushes();
  const StagePart& first = time.part(0, 1);
  const double last_s = flushes ? first.step_s + reduce_s(family, first.reduced_bytes) : 0;
  const bool single = steps_.single_layers() && all.size() > 1;
  const bool alike = understood_ > Understood::cuts;  // what each layer frees and adds is known
  const double added_s = single && alike ? least_added_s(family.shape) : 0;
  const auto fits = [&](const Level& level, std::size_t d, int before, int n) {
    if (capacity_ == kInfinite) return true;
    return holds(level.held->part(before, n), stash.held_on(d));
  };
  const auto cost_at = [&](const StagePart& part, int d, int before) {
    if (!flushes) return d == 0 ? m * part.work_s() : 0.0;
    const double end_s = part.step_s + reduce_s(family, part.reduced_bytes);
    if (d == 0) return m * part.work_s() + end_s;
    const StagePart& others = time.part(0, before);
    const double message =
        (d - 1) * least_message_s(time) + message_s(time.part(before - 1, 1).output_bytes);
    const double until_input =
        part.forward_s + std::min(part.backward_s, part.input_s) - part.saving_s;
    const double work = family.schedule->splits_backward ? until_input : part.work_s();
    return others.forward_s + message +
           std::max(m * part.work_s() + end_s, m * work + others.input_s + message + last_s);
  };
  const auto cost = [&](int d, int before, int n) {
    const auto at = static_cast<std::size_t>(d);
    const auto level = std::ranges::find_if(all, [&](const Level& l) {  // the fastest that fits
      return fits(l, at, before, n);
    });
    if (level != all.begin() && single && !alike)
      return level == all.end() ? kInfinite : cost_at(time.part(before, n), d, before);
    if (level != all.begin() && single) {
      StagePart part = time.part(before, n);
      const int again =
          least_layers_again(part, all.back().held->part(before, n), n, stash.held_on(at));
      part.backward_s += again * added_s;
      if (again < n) return cost_at(part, d, before);
    }
    return level == all.end() ? kInfinite : cost_at(level->time->part(before, n), d, before);
  };
  double enough = good_cut_s(family, most);
  const auto columns = static_cast<std::size_t>(layers + 1);
  std::vector<double> best;
  std::vector<std::vector<int>> taken(static_cast<std::size_t>(p), std::vector<int>(columns, 0));
  const auto take_device = [&](int d) {
    std::vector<double> next(columns, kInfinite);
    for (int before = d; before < layers; ++before) {
      const double so_far = best[static_cast<std::size_t>(before)];
      if (so_far == kInfinite) continue;
      const int room = std::min(layers - before - (p - 1 - d), most[static_cast<std::size_t>(d)]);
      for (int n = d + 1 == p ? layers - before : 1; n <= room; ++n) {
        const double own = cost(d, before, n);
        if (own > enough) break;  // and with more layers, too
        const double t = std::max(so_far, own);
        double& at = next[static_cast<std::size_t>(before + n)];
        if (t >= at) continue;
        at = t;
        taken[static_cast<std::size_t>(d)][static_cast<std::size_t>(before + n)] = n;
      }
    }
    best = std::move(next);
  };
  const auto take_devices = [&] {
    best.assign(columns, kInfinite);
    best[0] = 0;
    for (int d = 0; d < p; ++d) take_device(d);
  };
  take_devices();
  if (best.back() == kInfinite && enough < kInfinite) {  // as good as that one, but for rounding
    enough = kInfinite;
    take_devices();
  }
  if (best.back() == kInfinite) return {.time_s = kInfinite, .fits = false};
  if (good != nullptr) {
    good->layers.assign(static_cast<std::size_t>(p), 0);
    for (int d = p - 1, at = layers; d >= 0; --d) {
      const auto s = static_cast<std::size_t>(d);
      good->layers[s] = taken[s][static_cast<std::size_t>(at)];
      at -= good->layers[s];
    }
    good->recompute = least_recompute(*good);
  }
  // Where device 0 holds one microbatch at a time, the next begins when it has been there and back.
  const bool one_by_one = !family.schedule->looks_at_costs && flushes && stash.until_input[0] <= 1;
  const StagePart& whole = time.part(0, layers);
  const double there_and_back_s = whole.forward_s + std::min(whole.backward_s, whole.input_s) -
                                  whole.saving_s + 2 * (p - 1) * least_message_s(time);
  return {.time_s = std::max(best.back(), one_by_one ? m * there_and_back_s : 0)};
}

/// Of n layers, of which a device cannot hold all of its stash without recomputation: those that
/// must be recomputed, at least.
int Bounds::least_layers_again(const StagePart& none, const StagePart& full, int n,
                               const Held& stash) const {
  const auto least = [&](double k, double StagePart::*kept) {
    const double over = none.static_bytes + k * none.*kept + full.workspace_bytes - capacity_;
    const double freed = k * (none.*kept - full.*kept) / n;
    if (over <= 0) return 1;
    return over >= freed * n ? n
                             : std::max(1, static_cast<int>(std::ceil(over / freed - kWholeBytes)));
  };
  return std::max(least(stash.until_input, &StagePart::activation_bytes),
                  least(stash.until_weights, &StagePart::weight_input_bytes));
}

/// What a layer adds to the work of its stage when it is recomputed, whatever the others do.
double Bounds::least_added_s(const Shape& shape, double StagePart::*part) {
  StageTable& none = table(shape, Recompute::none);
  StageTable& one = table(shape, steps_.more(Recompute::none, problem_.layers()).value());
  auto& known = part == &StagePart::input_s ? added_to_input_s_ : added_s_;
  const auto [found, added] = known.try_emplace(one.key(), kInfinite);
  const int layers = problem_.layers();
  // Of stages that are sums over their layers it is the same in all; others are maxima of such.
  const int most = problem_.base().stack.takes_layers_apart() ? 1 : layers;
  for (int n = 1; added && n <= most; ++n)
    for (const int first : {0, std::min(1, layers - n), layers - n})
      found->second = std::min(found->second, one.part(first, n).*part - none.part(first, n).*part);
  return std::max(0.0, found->second * (1 - 1e-9));
}

std::vector<Bounds::LevelUse> Bounds::level_uses(const PlanFamily& family) {
  const int layers = problem_.layers();
  const std::vector<Level> all = levels(family);
  std::vector<LevelUse> out;
  for (const Level& level : all) {
    LevelUse use{kInfinite, kInfinite, kInfinite};
    for (const int i : {0, std::min(1, layers - 1), layers - 1}) {
      const StagePart& held = level.held->part(i, 1);
      use.bytes = std::min(use.bytes, held.activation_bytes);
      use.late_bytes = std::min(use.late_bytes, held.weight_input_bytes);
      use.extra_s =
          std::min(use.extra_s, level.time->part(i, 1).work_s() - all[0].time->part(i, 1).work_s());
    }
    if (steps_.single_layers() && &level != &all.front())
      use.extra_s = std::min(use.extra_s, least_added_s(family.shape));
    use.extra_s = std::max(use.extra_s, 0.0);
    out.push_back(use);
  }
  return out;
}

/// What recomputation adds to the work of a device with n layers, per microbatch; [n].
Bounds::Extra Bounds::extra_s(const PlanFamily& family, const Held& stash) {
  const int layers = problem_.layers();
  const std::vector<double> nothing(static_cast<std::size_t>(layers) + 1, 0);
  Extra out{nothing, nothing};
  // Of measured stages some is taken once, whatever their layers.
  if (capacity_ == kInfinite || understood_ < Understood::orders) return out;
  const std::vector<LevelUse> uses = level_uses(family);
  std::vector<std::pair<double, double>> until_input, until_weights;  // bytes and extra
  for (const LevelUse& use : uses) {
    until_input.emplace_back(stash.until_input * use.bytes, use.extra_s);
    until_weights.emplace_back(stash.until_weights * use.late_bytes, use.extra_s);
  }
  const auto least = [&](int n, double room, bool whole) {
    return std::max(least_extra(until_input, n, room, whole),
                    least_extra(until_weights, n, room, whole));
  };
  for (int n = 1; n <= layers; ++n) {
    const double held = levels(family).front().held->lightest(n).static_bytes;
    const auto at = static_cast<std::size_t>(n);
    out.convex[at] = least(n, capacity_ - held, false);
    out.whole[at] = uses.size() == 2 ? least(n, capacity_ - held, true) : out.convex[at];
  }
  return out;
}

/// Layers dealt out to devices, none of them chosen: the least sum of what recomputation adds per
/// microbatch, and the least of the largest load of a device. A device and its mirror image, which
/// hold the same two stages and share their microbatches, count as one.
Bounds::Dealt Bounds::deal_out(const PlanFamily& family) {
  const int layers = problem_.layers(), p = family.shape.depth, pair = mirrored(family) ? 2 : 1;
  if (p % pair != 0) return {};
  const auto m = static_cast<double>(family.shape.microbatches);
  const std::vector<Level> all = levels(family);
  StageTable& time = *all.front().time;
  const Stash& stash = stashes_.stash_of(family);
  std::map<Held, Extra> known;
  std::vector<const Extra*> extra;
  for (int d = 0; d < p / pair; ++d) {
    Held k = stash.held_on(static_cast<std::size_t>(d));
    if (pair == 2) {
      const Held other = stash.held_on(static_cast<std::size_t>(p - 1 - d));
      k = {std::max(k.until_input, other.until_input),
           std::max(k.until_weights, other.until_weights)};
    }
    const auto [found, added] = known.try_emplace(k);
    if (added) found->second = extra_s(family, k);
    extra.push_back(&found->second);
  }
  // One of them has the LM head, too.
  const std::size_t last = pair == 1 ? positions_of(family).back() : extra.size();
  const auto load = [&](std::size_t d, int n) {
    const StagePart part = d == last ? time.part(layers - n, n) : time.lightest(n);
    return m / pair * (part.work_s() + extra[d]->whole[static_cast<std::size_t>(n)]) + part.step_s +
           reduce_s(family, part.reduced_bytes);
  };
  const auto added = [&](std::size_t d, int n) {
    const double more = extra[d]->convex[static_cast<std::size_t>(n)];
    return more == kInfinite ? more : more - extra[d]->convex[static_cast<std::size_t>(n) - 1];
  };
  const std::vector<int> least = deal(layers, family.stages() / (p / pair), extra.size(), added);
  const std::vector<int> even = deal(layers, family.stages() / (p / pair), extra.size(), load);
  Dealt out;
  for (std::size_t d = 0; d < extra.size(); ++d) {
    out.extra_s += extra[d]->convex[static_cast<std::size_t>(least[d])];
    out.largest_s = std::max(out.largest_s, load(d, even[d]));
  }
  return out;
}

/// The mean over the devices; `extra_s`: what recomputation adds to the work on a microbatch.
double Bounds::mean_s(const PlanFamily& family, double extra_s) {
  const int layers = problem_.layers(), p = family.shape.depth;
  const auto m = static_cast<double>(family.shape.microbatches);
  StageTable& time = *levels(family).front().time;
  const StagePart& all = time.part(0, layers);
  double one_forward_s = kInfinite, one_input_s = kInfinite;
  for (int i = 0; i < layers; ++i) {
    const StagePart& part = time.part(i, 1);
    one_forward_s = std::min(one_forward_s, part.forward_s);
    one_input_s = std::min(one_input_s, part.input_s);
  }
  const double message = least_message_s(time);
  const auto before = [&](int d) { return mirrored(family) ? std::min(d, p - 1 - d) : d; };
  double fill_s = 0, drain_s = 0;  // sums over the devices
  for (int d = 0; d < p; ++d) {
    fill_s += before(d) * (one_forward_s + message);
    drain_s += before(d) * (one_input_s + message);
  }
  const double end_s = all.step_s + reduce_s(family, all.reduced_bytes);
  const double work_s = m * (all.work_s() + extra_s);
  const double after_s = family.schedule->splits_backward ? end_s : std::max(end_s, drain_s);
  return (fill_s + work_s + after_s) / p;
}

/// Without a flush the updates of device 0 are counted, and it has one layer at least.
double Bounds::first_layer_s(const PlanFamily& family) {
  const auto m = static_cast<double>(family.shape.microbatches);
  return m * levels(family).front().time->part(0, 1).work_s();
}

Bound Bounds::rough(const PlanFamily& family) {
  Bound bound = bound_of(family.shape);
  if (family.schedule->flushes() && understood_ > Understood::work)
    bound.time_s = std::max(bound.time_s, mean_s(family, 0));
  return bound;
}

/// Several stages per device: the mean over the devices, and the device with the largest load.
Bound Bounds::of_many(const PlanFamily& family, const std::vector<int>& most, Candidate* good) {
  if (good != nullptr) *good = balanced(family, most);
  if (!family.schedule->flushes()) return {.time_s = first_layer_s(family)};
  const Dealt dealt = understood_ < Understood::layers ? Dealt{} : deal_out(family);
  if (dealt.extra_s == kInfinite) return {.time_s = kInfinite, .fits = false};
  return {.time_s = std::max(mean_s(family, dealt.extra_s), dealt.largest_s)};
}

/// Gives layer after layer to the device that stays fastest, and of its stages to the shortest; a
/// device recomputes as it must to hold as many layers.
Candidate Bounds::balanced(const PlanFamily& family, const std::vector<int>& most) {
  const int layers = problem_.layers(), stages = family.stages();
  const auto position = positions_of(family);
  const auto shares = shares_of(family);
  const std::vector<Level> all = levels(family);
  const Stash& stash = stashes_.stash_of(family);
  Candidate out{family, std::vector<int>(static_cast<std::size_t>(stages), 1)};
  std::vector<int>& cut = out.layers;
  const auto held = [&](std::size_t d) {
    int sum = 0;
    for (const Share& share : shares[d]) sum += cut[share.stage];
    return sum;
  };
  std::map<std::pair<Held, int>, std::size_t> known;
  std::map<std::pair<Held, int>, int> known_again;
  const bool single = steps_.single_layers() && all.size() > 1 && understood_ > Understood::cuts;
  const double added_s = single ? least_added_s(family.shape) : 0;
  /// Of single layers what those add that must be recomputed.
  const auto again_s = [&](std::size_t d) {
    if (!single) return 0.0;
    const int n = held(d);
    const auto [found, added] = known_again.try_emplace({stash.held_on(d), n}, 0);
    if (added && !holds(all.front().held->lightest(n), stash.held_on(d)))
      found->second = least_layers_again(all.front().held->lightest(n),
                                         all.back().held->lightest(n), n, stash.held_on(d));
    return found->second * added_s;
  };
  const auto level_of = [&](std::size_t d) {
    if (all.size() == 1 || understood_ < Understood::layers || single) return std::size_t{0};
    const int n = held(d);
    const auto [found, added] = known.try_emplace({stash.held_on(d), n}, 0);
    std::size_t& l = found->second;
    if (added)
      while (l + 1 < all.size() && !holds(all[l].held->lightest(n), stash.held_on(d))) ++l;
    return l;
  };
  const auto load = [&](std::size_t d) {
    double sum = shares[d].front().microbatches * again_s(d);
    StageTable& time = *all[level_of(d)].time;
    for (const Share& share : shares[d]) {
      const int n = cut[share.stage];
      const int first = share.stage == 0 ? 0
                        : share.stage + 1 == static_cast<std::uint32_t>(stages)
                            ? layers - n
                            : std::min(1, layers - n);
      sum += share.microbatches * time.part(first, n).work_s();
    }
    return sum;
  };
  for (int given = stages; given < layers; ++given) {
    std::size_t best = cut.size();
    double best_s = kInfinite;
    int best_length = 0;
    for (std::size_t s = 0; s < cut.size(); ++s) {
      const std::size_t d = position[s];
      if (held(d) >= most[d]) continue;
      ++cut[s];
      const double t = load(d);
      --cut[s];
      const bool shorter = t <= best_s * (1 + 1e-12) && cut[s] < best_length;
      if (t >= best_s * (1 - 1e-12) && !shorter) continue;
      best = s;
      best_s = t;
      best_length = cut[s];
    }
    if (best == cut.size()) return {family, {}};
    ++cut[best];
  }
  out.recompute = least_recompute(out);
  if (!make_fit(out)) out.layers.clear();
  return out;
}

}  // namespace penstock

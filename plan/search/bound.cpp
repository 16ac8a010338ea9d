#include "plan/search/bound.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>
#include <span>

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

double per_byte(const LinkSpec& link) { return 1 / link.bytes_per_s; }

bool mirrored(const PlanFamily& family) { return family.schedule->layout == Layout::mirrored; }

/// Positions of the virtual stages.
std::vector<std::uint32_t> positions(const PlanFamily& family) {
  const ScheduleShape shape = family.schedule_shape();
  return layout(family.schedule->layout, std::vector<int>(shape.depth, 1), shape.chunks,
                shape.microbatches_per_update)
      .positions();
}

/// What happens to a cut, stage by stage: sums over the stages before, messages included.
struct Line {
  std::vector<StagePart> parts;
  std::vector<double> fill_s, drain_s;  // [stage]: before the first F and after the last B of it
};

/// Stages that a device holds, and microbatches of each that it computes.
struct Share {
  std::uint32_t stage;
  double microbatches;
};

std::vector<std::vector<Share>> shares_of(const PlanFamily& family,
                                          const std::vector<std::uint32_t>& position) {
  const auto p = static_cast<std::size_t>(family.shape.depth);
  const auto m = static_cast<double>(family.shape.microbatches);
  std::vector<std::vector<Share>> shares(p);
  for (std::uint32_t s = 0; s < position.size(); ++s) {
    if (!mirrored(family)) {
      shares[position[s]].push_back({s, m});
      continue;
    }
    const double down = std::ceil(m / 2);
    shares[s].push_back({s, down});
    shares[p - 1 - s].push_back({s, m - down});
  }
  return shares;
}

/// Microbatches of each stage of a device, at all times when it has just taken up another.
using Holdings = std::set<std::vector<int>>;

Holdings holdings(std::span<const Op> ops, const std::vector<Share>& shares, bool until_weights) {
  Holdings out;
  std::vector<int> held(shares.size(), 0);
  for (const Op& op : ops) {
    const bool frees =
        op.kind == OpKind::backward ||
        op.kind == (until_weights ? OpKind::backward_weight : OpKind::backward_input);
    if (op.kind != OpKind::forward && !frees) continue;
    const auto stage =
        std::ranges::find(shares, static_cast<std::uint32_t>(op.stage), &Share::stage);
    held[static_cast<std::size_t>(stage - shares.begin())] += frees ? -1 : 1;
    if (!frees) out.insert(held);
  }
  return out;
}

/// The peak of a device per layer however its layers are spread over its stages, at least: the
/// value of the game in which one side chooses the stage of a layer and the other the time. Any
/// mixture of times bounds it; fictitious play (Brown, 1951) finds a good one.
double least_peak(const Holdings& times) {
  if (times.empty()) return 0;
  const std::size_t stages = times.begin()->size();
  std::vector<double> of_stage(stages, 0);  // sums over the times chosen
  std::vector<std::pair<const std::vector<int>*, double>> of_time;
  for (const auto& held : times) of_time.emplace_back(&held, 0);
  std::size_t stage = 0;
  double best = 0;
  constexpr int kRounds = 64;
  for (int round = 1; round <= (stages == 1 ? 1 : kRounds); ++round) {
    auto chosen = of_time.begin();
    for (auto at = of_time.begin(); at != of_time.end(); ++at) {
      at->second += (*at->first)[stage];
      if (at->second > chosen->second) chosen = at;
    }
    for (std::size_t c = 0; c < stages; ++c) of_stage[c] += (*chosen->first)[c];
    stage = static_cast<std::size_t>(std::ranges::min_element(of_stage) - of_stage.begin());
    best = std::max(best, of_stage[stage] / round);
  }
  for (const auto& held : times) best = std::max(best, static_cast<double>(std::ranges::min(held)));
  return best;
}

}  // namespace

Bounds::Bounds(const Problem& problem, bool all_flush)
    : problem_(problem), all_flush_(all_flush), capacity_(capacity_of(problem.base().cluster)) {
  const Cluster& cluster = problem.base().cluster;
  if (problem.base().lowering.transfers == Transfers::free) return;
  if (cluster.link) {
    latency_s_ = cluster.link->latency_s;
    s_per_byte_ = ring_near_s_ = ring_far_s_ = per_byte(*cluster.link);
  } else if (!cluster.network && cluster.groups.empty() &&
             (cluster.attachment == Attachment::port || cluster.attachment == Attachment::pairs)) {
    latency_s_ = cluster.intra.latency_s;
    s_per_byte_ = ring_near_s_ = ring_far_s_ = per_byte(cluster.intra);
    if (cluster.nodes > 1) {
      latency_s_ = std::min(latency_s_, cluster.inter.latency_s);
      s_per_byte_ = std::min(s_per_byte_, per_byte(cluster.inter));
      ring_far_s_ = std::max(ring_near_s_, per_byte(cluster.inter));
    }
  }
  if (!problem.plain_reduction()) ring_near_s_ = ring_far_s_ = 0;
}

StageTable& Bounds::table(const Shape& shape, Recompute recompute) {
  const StageTable::Key key{shape.tensor,
                            problem_.distributed_optimizer(shape.width) ? shape.width : 1,
                            shape.microbatch_size, recompute};
  return tables_.try_emplace(key, problem_, key).first->second;
}

/// torchgpipe does not recompute the last microbatch: `selective` stands for that.
StageTable& Bounds::times(const PlanFamily& family) {
  const bool last_stored =
      family.schedule->checkpoints && family.shape.recompute == Recompute::selective;
  return table(family.shape, last_stored ? Recompute::none : family.shape.recompute);
}

StageTable& Bounds::bytes(const PlanFamily& family) {
  const bool recomputes = family.schedule->checkpoints && family.shape.recompute != Recompute::none;
  return table(family.shape, recomputes ? Recompute::full : family.shape.recompute);
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
  if (shape.width == 1) return 0;
  const bool far = shape.width * shape.tensor > problem_.base().cluster.devices_per_node;
  return 2.0 * (shape.width - 1) / shape.width * bytes * (far ? ring_far_s_ : ring_near_s_);
}

double Bounds::reduce_s(const PlanFamily& family, double bytes) const {
  const bool overlapped = family.schedule->whole_model || !family.schedule->flushes();
  return overlapped ? 0 : reduce_s(family.shape, bytes);
}

Bound Bounds::of(const Shape& shape) {
  const int layers = problem_.layers(), p = shape.depth;
  const bool selective = shape.recompute == Recompute::selective;
  StageTable& time = table(shape, selective ? Recompute::none : shape.recompute);
  const StagePart& all = time.part(0, layers);
  const auto m = static_cast<double>(shape.microbatches);
  Bound bound;
  bound.time_s = m * all.work_s() / p;
  if (p > 1) bound.time_s += (all.step_s + reduce_s(shape, all.reduced_bytes)) / p;
  // Without a flush it is device 0 whose updates are counted.
  if (!all_flush_ && p > 1) bound.time_s = std::min(bound.time_s, m * time.part(0, 1).work_s());
  const int most = (layers + p - 1) / p;  // some device has as many, in the middle or more
  StageTable& held = table(shape, selective ? Recompute::full : shape.recompute);
  const int middle = std::min(1, layers - most);
  double least = kInfinite;
  for (int first = middle; first + most <= layers; ++first) {
    const StagePart& part = held.part(first, most);
    least = std::min(least, part.static_bytes + part.activation_bytes + part.workspace_bytes);
    if (!problem_.base().profile) break;
  }
  // Runs of a profile's layers differ, and the device with the most may have any.
  bound.memory_bytes = problem_.base().profile ? 0 : least;
  bound.fits = bound.memory_bytes <= capacity_;
  return bound;
}

const std::vector<double>& Bounds::stash(const PlanFamily& family) {
  const bool until_weights = family.shape.recompute == Recompute::full;
  const auto index = static_cast<std::int64_t>(family.schedule - schedules().data());
  const std::vector<std::int64_t> key{index, family.shape.depth, family.chunks,
                                      family.shape.microbatches, until_weights ? 1 : 0};
  const auto [found, added] = stashes_.try_emplace(key);
  std::vector<double>& peaks = found->second;
  if (!added) return peaks;
  // Of any order: the first backward follows all forwards of its microbatch.
  peaks.assign(static_cast<std::size_t>(family.shape.depth), mirrored(family) ? 0 : 1);
  if (family.schedule->looks_at_costs || !family.schedule->flushes()) return peaks;
  OpLists order;
  family.schedule->generate(family.schedule_shape(), order);
  const auto shares = shares_of(family, positions(family));
  for (std::size_t d = 0; d < peaks.size(); ++d)
    peaks[d] = least_peak(holdings(order.of(static_cast<int>(d)), shares[d], until_weights));
  return peaks;
}

/// Layers that a device can hold together with so many microbatches of each.
int Bounds::most_layers(const PlanFamily& family, double stash) {
  const int layers = problem_.layers();
  if (capacity_ == kInfinite || problem_.base().profile) return layers;
  StageTable& held = bytes(family);
  int most = 0;
  for (int n = 1; n <= layers; ++n) {
    const StagePart& part = held.part(std::min(1, layers - n), n);
    if (part.static_bytes + stash * part.activation_bytes + part.workspace_bytes > capacity_) break;
    most = n;
  }
  return most;
}

std::vector<int> Bounds::most_layers(const PlanFamily& family) {
  std::vector<int> most;
  std::map<double, int> known;
  for (const double k : stash(family)) {
    const auto [found, added] = known.try_emplace(k);
    if (added) found->second = most_layers(family, k);
    most.push_back(found->second);
  }
  return most;
}

Bound Bounds::of(const PlanFamily& family, std::vector<int>* cut) {
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
  const bool line = family.stages() == family.shape.depth && !mirrored(family);
  Bound bound = line ? of_line(family, most, cut) : of_many(family, most, cut);
  bound.memory_bytes = of(family.shape).memory_bytes;
  return bound;
}

/// What a good cut takes at least by its bound, and a little: a better one has no slower device.
double Bounds::good_cut_s(const PlanFamily& family, const std::vector<int>& most) {
  const std::vector<int> cut = balanced(family, most);
  if (cut.empty()) return kInfinite;
  const Bound bound = of(Candidate{family, cut});
  return bound.fits ? bound.time_s * (1 + 1e-9) : kInfinite;
}

/// One stage per device: the best cut by dynamic programming.
Bound Bounds::of_line(const PlanFamily& family, const std::vector<int>& most,
                      std::vector<int>* cut) {
  const int layers = problem_.layers(), p = family.shape.depth;
  const auto m = static_cast<double>(family.shape.microbatches);
  StageTable& time = times(family);
  StageTable& held = bytes(family);
  const std::vector<double>& stashed = stash(family);
  const bool flushes = family.schedule->flushes();
  const StagePart& first = time.part(0, 1);
  const double last_s = flushes ? first.step_s + reduce_s(family, first.reduced_bytes) : 0;
  const auto cost = [&](int d, int before, int n) {
    const StagePart& part = time.part(before, n);
    if (capacity_ < kInfinite) {
      const StagePart& b = held.part(before, n);
      const double k = stashed[static_cast<std::size_t>(d)];
      if (b.static_bytes + k * b.activation_bytes + b.workspace_bytes > capacity_) return kInfinite;
    }
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
  const double enough = good_cut_s(family, most);
  const auto columns = static_cast<std::size_t>(layers + 1);
  std::vector<double> best(columns, kInfinite);
  std::vector<std::vector<int>> taken(static_cast<std::size_t>(p), std::vector<int>(columns, 0));
  best[0] = 0;
  for (int d = 0; d < p; ++d) {
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
  }
  if (best.back() == kInfinite) return {.time_s = kInfinite, .fits = false};
  if (cut != nullptr) {
    cut->assign(static_cast<std::size_t>(p), 0);
    for (int d = p - 1, at = layers; d >= 0; --d) {
      (*cut)[static_cast<std::size_t>(d)] =
          taken[static_cast<std::size_t>(d)][static_cast<std::size_t>(at)];
      at -= (*cut)[static_cast<std::size_t>(d)];
    }
  }
  return {.time_s = best.back()};
}

/// Several stages per device: the mean over the devices, and the device with the most layers.
Bound Bounds::of_many(const PlanFamily& family, const std::vector<int>& most,
                      std::vector<int>* cut) {
  const int layers = problem_.layers(), p = family.shape.depth;
  const auto m = static_cast<double>(family.shape.microbatches);
  StageTable& time = times(family);
  const StagePart& all = time.part(0, layers);
  double one_forward_s = kInfinite, one_input_s = kInfinite;
  for (int i = 0; i < layers; ++i) {
    const StagePart& part = time.part(i, 1);
    one_forward_s = std::min(one_forward_s, part.forward_s);
    one_input_s = std::min(one_input_s, part.input_s);
  }
  if (!family.schedule->flushes()) {
    if (cut != nullptr) *cut = balanced(family, most);
    return {.time_s = m * time.part(0, 1).work_s()};
  }
  const double message = least_message_s(time);
  const auto before = [&](int d) { return mirrored(family) ? std::min(d, p - 1 - d) : d; };
  double fill_s = 0, drain_s = 0;  // sums over the devices
  for (int d = 0; d < p; ++d) {
    fill_s += before(d) * (one_forward_s + message);
    drain_s += before(d) * (one_input_s + message);
  }
  const double end_s = all.step_s + reduce_s(family, all.reduced_bytes);
  Bound bound;
  bound.time_s = (fill_s + m * all.work_s() + end_s) / p;
  if (!family.schedule->splits_backward)
    bound.time_s = std::max(bound.time_s, (fill_s + drain_s + m * all.work_s()) / p);
  if (!mirrored(family) && !problem_.base().profile) {
    const int n = (layers + p - 1) / p;
    const StagePart& part = time.part(std::min(1, layers - n), n);
    bound.time_s = std::max(bound.time_s,
                            m * part.work_s() + part.step_s + reduce_s(family, part.reduced_bytes));
  }
  if (cut != nullptr) *cut = balanced(family, most);
  return bound;
}

/// Gives layer after layer to the device that stays fastest, and of its stages to the shortest.
std::vector<int> Bounds::balanced(const PlanFamily& family, const std::vector<int>& most) {
  const int layers = problem_.layers(), stages = family.stages();
  const auto position = positions(family);
  const auto shares = shares_of(family, position);
  StageTable& time = times(family);
  std::vector<int> cut(static_cast<std::size_t>(stages), 1);
  const auto held = [&](std::size_t d) {
    int sum = 0;
    for (const Share& share : shares[d]) sum += cut[share.stage];
    return sum;
  };
  const auto load = [&](std::size_t d) {
    double sum = 0;
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
    if (best == cut.size()) return {};
    ++cut[best];
  }
  return cut;
}

Bound Bounds::of(const Candidate& candidate) {
  const PlanFamily& family = candidate.family;
  StageTable& time = times(family);
  StageTable& held = bytes(family);
  Line line;
  double fill_s = 0, drain_s = 0;
  std::vector<StagePart> kept;
  const auto position = positions(family);
  int first = 0;
  for (std::size_t s = 0; s < candidate.layers.size(); ++s) {
    line.fill_s.push_back(fill_s);
    line.drain_s.push_back(drain_s);
    line.parts.push_back(time.part(first, candidate.layers[s]));
    kept.push_back(held.part(first, candidate.layers[s]));
    const bool moves = s + 1 < position.size() && position[s] != position[s + 1];
    const double message = moves ? message_s(line.parts.back().output_bytes) : 0;
    fill_s += line.parts.back().forward_s + message;
    drain_s += line.parts.back().input_s + message;
    first += candidate.layers[s];
  }
  const auto shares = shares_of(family, position);
  const auto& stashed = stash(family);
  const bool split = family.schedule->splits_backward, flushes = family.schedule->flushes();
  Bound bound;
  double first_end_s = 0;
  for (std::size_t d = 0; d < shares.size(); ++d) {
    double work_s = 0, until_input_s = 0, step_s = 0, bytes = 0;
    double fill = kInfinite, drain = kInfinite;
    double memory = 0, most_workspace = 0;
    for (const Share& share : shares[d]) {
      const StagePart& part = line.parts[share.stage];
      work_s += share.microbatches * part.work_s();
      until_input_s += share.microbatches * (part.forward_s + part.input_s - part.saving_s);
      step_s += part.step_s;
      bytes += part.reduced_bytes;
      if (share.microbatches > 0) {
        fill = std::min(fill, line.fill_s[share.stage]);
        drain = std::min(drain, line.drain_s[share.stage]);
      }
      const StagePart& b = kept[share.stage];
      memory += b.static_bytes + (share.microbatches > 0 ? stashed[d] * b.activation_bytes : 0);
      most_workspace = std::max(most_workspace, shares[d].size() == 1 ? b.workspace_bytes : 0);
    }
    bound.memory_bytes = std::max(bound.memory_bytes, memory + most_workspace);
    if (fill == kInfinite) continue;  // it computes nothing
    const double end_s = step_s + reduce_s(family, bytes);
    if (d == 0) first_end_s = end_s;
    if (!flushes) {
      if (d == 0) bound.time_s = work_s;
      continue;
    }
    const double until_s = split ? until_input_s : work_s;
    bound.time_s =
        std::max({bound.time_s, fill + work_s + end_s, fill + until_s + drain + first_end_s});
  }
  bound.fits = bound.memory_bytes <= capacity_;
  return bound;
}

}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
#include "models/routing.hpp"

#include "models/perturbation.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>
#include <numeric>

namespace penstock {
namespace {

std::size_t index_of(int i) { return static_cast<std::size_t>(i); }

/// Experts' rows vary by so much, over their mean, where a power law of 1.2 says how many each gets
/// (the collector of the measured kernels draws x with a density of x^-1.2 from 1 to some
/// thousands): there kernels were measured as skewed.
constexpr double kSkewOfPowerLaw = 2.5;

/// Numbers for one layer in one draw.
class Draws {
 public:
  Draws(std::uint64_t seed, std::uint32_t sample, int layer)
      : seed_(seed), stream_((std::uint64_t{sample} << 20) + static_cast<std::uint64_t>(layer)) {}

  double uniform() { return uniform_hash(seed_, stream_, next_++); }
  /// Box and Muller (1958).
  double normal() {
    const double radius = std::sqrt(-2 * std::log1p(-uniform()));
    return radius * std::cos(2 * std::numbers::pi * uniform());
  }
  /// Fisher and Yates' shuffle.
  std::vector<std::size_t> order(std::size_t n) {
    std::vector<std::size_t> order(n);
    std::iota(order.begin(), order.end(), std::size_t{0});
    for (std::size_t i = n; i > 1; --i)
      std::swap(order[i - 1],
                order[std::min(i - 1, static_cast<std::size_t>(uniform() * double(i)))]);
    return order;
  }

 private:
  std::uint64_t seed_, stream_, next_ = 0;
};

/// Those of `hot` get the share together, and the others the rest.
std::vector<double> with_hot(std::size_t experts, const std::vector<std::size_t>& hot,
                             double share) {
  const auto n = static_cast<double>(experts), h = static_cast<double>(hot.size());
  if (h == n || share < h / n) share = h / n;  // no less than they would get anyway
  std::vector<double> shares(experts, h == n ? 1 / n : (1 - share) / (n - h));
  for (const std::size_t e : hot) shares[e] = share / h;
  return shares;
}

/// The shares of a layer's experts, microbatch by microbatch.
class LayerShares {
 public:
  LayerShares(const RoutingSpec& spec, const Experts& experts, int gpus, int layer,
              std::uint32_t sample)
      : spec_(spec),
        experts_(index_of(experts.count)),
        gpus_(index_of(gpus)),
        each_(experts_ / gpus_),
        k_(experts.top_k),
        // What is listed and what is on a GPU stays there.
        draws_(spec.seed, sample, layer),
        order_(draws_.order(experts_)),
        first_gpu_(static_cast<std::size_t>(draws_.uniform() * gpus)) {
    hot_ = std::clamp<std::size_t>(
        index_of(spec.hot_experts > 0 ? spec.hot_experts : static_cast<int>(each_)), 1, experts_);
  }

  /// Two microbatches in which these are the same have the same shares.
  std::uint32_t phase(std::uint32_t microbatch) const {
    const auto period = static_cast<std::uint32_t>(spec_.period > 0 ? spec_.period
                                                   : spec_.load == RoutingSpec::Load::rotating ? 3
                                                                                               : 4);
    if (spec_.drift > 0) return microbatch;
    if (spec_.load == RoutingSpec::Load::rotating)
      return microbatch / period % static_cast<std::uint32_t>(gpus_);
    if (spec_.load == RoutingSpec::Load::burst) return microbatch % period == period - 1 ? 1 : 0;
    return 0;
  }

  /// To be called for one microbatch after the other.
  std::vector<double> shares(std::uint32_t microbatch) {
    std::vector<double> shares = undrifted(microbatch);
    if (spec_.drift <= 0) return within_choices(std::move(shares), k_);
    if (walked_.empty()) walked_.assign(experts_, 0);
    if (microbatch > 0)
      for (double& logarithm : walked_) logarithm += spec_.drift * draws_.normal();
    for (std::size_t e = 0; e < experts_; ++e) shares[e] *= std::exp(walked_[e]);
    return within_choices(std::move(shares), k_);
  }

 private:
  std::vector<std::size_t> on_gpu(std::size_t gpu) const {
    std::vector<std::size_t> hot(hot_);
    std::iota(hot.begin(), hot.end(), gpu * each_);
    for (std::size_t& e : hot) e %= experts_;
    return hot;
  }

  std::vector<double> undrifted(std::uint32_t microbatch) const {
    using Load = RoutingSpec::Load;
    const double share = spec_.hot_share;
    std::vector<std::size_t> drawn(order_.begin(), order_.begin() + std::ptrdiff_t(hot_));
    std::vector<double> shares(experts_, 1.0);
    switch (spec_.load) {
      case Load::balanced: break;
      case Load::zipf:
        for (std::size_t e = 0; e < experts_; ++e)
          shares[order_[e]] = std::pow(static_cast<double>(e + 1), -spec_.exponent);
        break;
      case Load::hot_experts: return with_hot(experts_, drawn, share);
      case Load::hot_rank: return with_hot(experts_, on_gpu(0), share);
      case Load::spread:
        for (std::size_t h = 0; h < hot_; ++h) drawn[h] = h % gpus_ * each_ + h / gpus_;
        return with_hot(experts_, drawn, share);
      case Load::idle:
        std::fill(shares.begin() + std::ptrdiff_t((experts_ + 1) / 2), shares.end(), 0.0);
        break;
      case Load::rotating: {
        const auto period = static_cast<std::uint32_t>(spec_.period > 0 ? spec_.period : 3);
        return with_hot(experts_, on_gpu((first_gpu_ + microbatch / period) % gpus_), share);
      }
      case Load::burst: {
        const auto period = static_cast<std::uint32_t>(spec_.period > 0 ? spec_.period : 4);
        if (microbatch % period == period - 1) return with_hot(experts_, drawn, share);
        break;
      }
      case Load::histogram: return spec_.histogram;
    }
    return shares;
  }

  const RoutingSpec& spec_;
  std::size_t experts_, gpus_, each_, hot_ = 1;
  int k_;
  Draws draws_;
  std::vector<std::size_t> order_;
  std::size_t first_gpu_;
  std::vector<double> walked_;  // what drift has added to each logarithm
};

/// Gives the experts with most rows a second place each. `of_gpu`: rows of each GPU's experts.
void add_copies(std::vector<std::vector<double>>& of_gpu, int redundant, int room) {
  struct Expert {
    std::size_t gpu, place;
  };
  std::vector<Expert> all;
  std::vector<double> rows;
  for (std::size_t g = 0; g < of_gpu.size(); ++g) {
    rows.push_back(std::accumulate(of_gpu[g].begin(), of_gpu[g].end(), 0.0));
    for (std::size_t i = 0; i < of_gpu[g].size(); ++i) all.push_back({g, i});
  }
  const auto rows_of = [&](const Expert& e) { return of_gpu[e.gpu][e.place]; };
  std::ranges::stable_sort(
      all, [&](const Expert& a, const Expert& b) { return rows_of(a) > rows_of(b); });
  all.resize(std::min(all.size(), index_of(redundant)));
  std::vector<int> left(of_gpu.size(), room);
  for (const Expert& e : all) {
    std::size_t to = e.gpu;
    for (std::size_t g = 0; g < of_gpu.size(); ++g)
      if (left[g] > 0 && rows[g] < rows[to]) to = g;
    if (to == e.gpu) continue;
    const double moved = std::min(rows_of(e), rows[e.gpu] - rows[to]) / 2;
    of_gpu[e.gpu][e.place] -= moved;
    of_gpu[to].push_back(moved);
    rows[e.gpu] -= moved;
    rows[to] += moved;
    --left[to];
  }
}

/// Returns how much values vary over their mean, as a share of what a power law makes them vary.
double skew_of(const std::vector<double>& values) {
  const auto n = static_cast<double>(values.size());
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / n;
  if (mean <= 0) return 0;
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return std::min(1.0, std::sqrt(squares / n) / mean / kSkewOfPowerLaw);
}

}  // namespace

std::vector<double> within_choices(std::vector<double> shares, int k) {
  const double most = 1.0 / k;
  const double all = std::accumulate(shares.begin(), shares.end(), 0.0);
  double free = all, left = 1;
  std::vector<bool> full(shares.size(), false);
  for (bool again = true; again;) {
    again = false;
    const double scale = free > 0 ? left / free : 0;
    for (std::size_t e = 0; e < shares.size(); ++e) {
      if (full[e] || shares[e] * scale <= most * (1 + 1e-12)) continue;
      full[e] = again = true;
      free -= shares[e];
      left -= most;
    }
    if (free < 1e-12 * all) free = 0;
    if (again) continue;
    const auto others = static_cast<double>(
        std::count(full.begin(), full.end(), false));  // that nobody chose, if free is 0
    for (std::size_t e = 0; e < shares.size(); ++e) {
      if (full[e])
        shares[e] = most;
      else
        shares[e] = free > 0 ? shares[e] * scale : left / others;
    }
  }
  return shares;
}

RoutedLoad routed_load(const RoutingSpec& spec, std::vector<double> shares, int gpus, int node) {
  RoutedLoad load;
  const auto n = static_cast<double>(shares.size());
  if (spec.capacity_factor > 0) {
    const double most = spec.capacity_factor / n;
    for (double& share : shares) {
      load.dropped += std::max(0.0, share - most);
      share = spec.padded ? most : std::min(share, most);
    }
  }
  const std::size_t each = shares.size() / index_of(gpus);
  std::vector<std::vector<double>> of_gpu;
  for (auto at = shares.begin(); of_gpu.size() < index_of(gpus); at += std::ptrdiff_t(each))
    of_gpu.emplace_back(at, at + std::ptrdiff_t(each));
  // Padded copies take as many rows as their experts do: nothing is gained.
  if (spec.redundant > 0 && gpus > 1 && !spec.padded)
    add_copies(of_gpu, spec.redundant, spec.copies(gpus));
  for (const std::vector<double>& rows : of_gpu) {
    double sum = 0;  // in units of the mean, so that equal shares make 1
    for (const double share : rows) sum += share * n;
    load.of_gpu.push_back(sum / static_cast<double>(each));
  }
  const auto most = std::ranges::max_element(load.of_gpu);
  load.most = *most;
  const std::vector<double>& rows = of_gpu[std::size_t(most - load.of_gpu.begin())];
  load.skew = skew_of({rows.begin(), rows.begin() + std::ptrdiff_t(each)});
  load.of_node = 0;
  for (std::size_t g = 0; g < of_gpu.size(); g += index_of(node)) {
    const std::size_t end = std::min(of_gpu.size(), g + index_of(node));
    const double sum = std::accumulate(load.of_gpu.begin() + std::ptrdiff_t(g),
                                       load.of_gpu.begin() + std::ptrdiff_t(end), 0.0);
    load.of_node = std::max(load.of_node, sum / static_cast<double>(end - g));
  }
  return load;
}

std::vector<RoutedLoad> routed_loads(const RoutingSpec& spec, const Experts& experts, int gpus,
                                     int node, int layer, std::uint32_t sample,
                                     std::uint32_t microbatches) {
  LayerShares shares(spec, experts, gpus, layer, sample);
  std::map<std::uint32_t, RoutedLoad> of_phase;
  std::vector<RoutedLoad> loads;
  loads.reserve(microbatches);
  for (std::uint32_t m = 0; m < microbatches; ++m) {
    const auto [found, added] = of_phase.try_emplace(shares.phase(m));
    if (added) found->second = routed_load(spec, shares.shares(m), gpus, node);
    loads.push_back(found->second);
  }
  return loads;
}

}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
#include "models/perturbation.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numbers>

namespace penstock {
namespace {

/// The finalizer of SplitMix64 (Steele, Lea, Flood, OOPSLA'14): every bit depends on every bit.
std::uint64_t mix(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15ULL;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

double unit_interval(std::uint64_t bits) { return static_cast<double>(bits >> 11) * 0x1p-53; }

std::uint64_t hash(std::uint64_t seed, std::uint64_t stream, std::uint64_t counter) {
  return mix(mix(mix(seed) ^ stream) ^ counter);
}

}  // namespace

double uniform_hash(std::uint64_t seed, std::uint64_t stream, std::uint64_t counter) {
  return unit_interval(hash(seed, stream, counter));
}

std::size_t PiecewiseRate::index_at(double time_s) const {
  const auto after = std::ranges::upper_bound(steps_, time_s, {}, &Step::from_s);
  return static_cast<std::size_t>(after - steps_.begin()) - 1;
}

double PiecewiseRate::at(double time_s) const { return steps_[index_at(time_s)].share; }

/// Makes a step begin at this time.
void PiecewiseRate::cut(double time_s) {
  const std::size_t i = index_at(time_s);
  if (steps_[i].from_s == time_s) return;
  steps_.insert(steps_.begin() + static_cast<std::ptrdiff_t>(i) + 1, {time_s, steps_[i].share});
}

void PiecewiseRate::scale(double from_s, double until_s, double share) {
  cut(from_s);
  if (until_s < kForever) cut(until_s);
  for (Step& step : steps_) {
    if (step.from_s >= from_s && step.from_s < until_s) step.share *= share;
  }
}

double PiecewiseRate::end_of(double start_s, double work_s) const {
  double at_s = start_s;
  for (std::size_t i = index_at(start_s); i + 1 < steps_.size(); ++i) {
    const double possible = (steps_[i + 1].from_s - at_s) * steps_[i].share;
    if (work_s <= possible) return steps_[i].share == 0 ? at_s : at_s + work_s / steps_[i].share;
    work_s -= possible;
    at_s = steps_[i + 1].from_s;
  }
  return work_s == 0 ? at_s : at_s + work_s / steps_.back().share;
}

double Jitter::factor(std::uint32_t run, std::uint32_t device, std::uint32_t op) const {
  const std::uint64_t stream = (std::uint64_t{run} << 32) | device;
  const std::uint64_t first = hash(seed, stream, op);
  const double u = unit_interval(first);
  if (distribution == Distribution::uniform) return 1 + spread * std::sqrt(3.0) * (2 * u - 1);
  // Box and Muller (1958): a normal variate of two uniform ones.
  const double angle = 2 * std::numbers::pi * unit_interval(mix(first));
  const double z = std::sqrt(-2 * std::log1p(-u)) * std::cos(angle);
  if (distribution == Distribution::normal) return std::max(0.0, 1 + spread * z);
  const double variance = std::log1p(spread * spread);
  return std::exp(std::sqrt(variance) * z - variance / 2);
}

double PerturbationSpec::at_most_s(double undisturbed_s) const {
  double stretch = 1, pauses_s = 0;
  if (jitter) {
    // Of 53 random bits no normal variate is beyond 8.6.
    const double sigma = std::sqrt(std::log1p(jitter->spread * jitter->spread));
    stretch *= std::max(1 + 8.6 * jitter->spread, std::exp(8.6 * sigma));
  }
  std::map<int, double> of_device;
  const auto slower = [](auto& factors, const auto& which, double factor) {
    const auto [it, added] = factors.try_emplace(which, factor);
    if (!added) it->second *= factor;
  };
  for (const SlowDevice& s : slow_devices) slower(of_device, s.device, std::max(1.0, s.factor));
  for (const Throttle& t : throttle) slower(of_device, t.device, 1 / t.speed);
  std::map<std::array<std::string, 3>, double> of_link;
  for (const LinkChange& c : links) {
    if (c.share > 0) slower(of_link, std::array{c.link, c.between[0], c.between[1]}, 1 / c.share);
    if (c.share == 0 && c.until_s < kForever) pauses_s += c.until_s;
  }
  const auto most = [](const auto& factors) {
    double factor = 1;
    for (const auto& [which, of] : factors) factor = std::max(factor, of);
    return factor;
  };
  stretch *= most(of_device) * most(of_link);
  return undisturbed_s * stretch + pauses_s;
}

Perturbation perturbation_of(const PerturbationSpec& spec, int devices) {
  Perturbation p;
  p.jitter = spec.jitter;
  p.slowdown.assign(static_cast<std::size_t>(devices), 1);
  p.speed.resize(static_cast<std::size_t>(devices));
  for (const SlowDevice& s : spec.slow_devices)
    p.slowdown[static_cast<std::size_t>(s.device)] *= s.factor;
  for (const Throttle& t : spec.throttle)
    p.speed[static_cast<std::size_t>(t.device)].scale(t.from_s, t.until_s, t.speed);
  return p;
}

}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
#include "models/pipedream_profile.hpp"

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <numeric>
#include <set>

namespace penstock {

std::vector<double> profiled_cut_bytes(const PipedreamProfile& profile) {
  std::vector<double> change(profile.layers.size() + 1);
  for (std::size_t i = 0; i < profile.layers.size(); ++i) {
    const ProfiledLayer& layer = profile.layers[i];
    if (layer.last_reader < 0) continue;
    change[i + 1] += layer.activation_bytes;
    change[static_cast<std::size_t>(layer.last_reader) + 1] -= layer.activation_bytes;
  }
  std::partial_sum(change.begin(), change.end(), change.begin());
  return change;
}

namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

/// F + B of the layers before each one, and of all; with `again`, F twice.
std::vector<double> time_before(const PipedreamProfile& profile, bool again) {
  std::vector<double> sums{0};
  for (const ProfiledLayer& layer : profile.layers)
    sums.push_back(sums.back() + (again ? 2 : 1) * layer.forward_s + layer.backward_s);
  return sums;
}

/// Of the values of a PerStage that are its stages' or that of all of them.
bool of_stage(const std::vector<bool>& values, std::size_t stage) {
  return values[values.size() == 1 ? 0 : stage];
}

/// Splits of n layers into stages.
class Splitter {
 public:
  Splitter(const PipedreamProfile& profile, const std::vector<int>& widths,
           const PerStage<bool>& recompute)
      : before_{time_before(profile, false), time_before(profile, true)},
        cut_(profiled_cut_bytes(profile)),
        widths_(widths),
        recompute_(recompute.values()) {}

  /// Halves the interval that holds the least possible time of the slowest stage. (With uneven
  /// widths that time is not monotonous in the number of layers: no recurrence over layers.)
  std::vector<int> split() const {
    double low = 0, high = 0;
    for (std::size_t s = 0; s < widths_.size(); ++s) high = std::max(high, before(s).back());
    std::vector<int> best = within(high);
    while (high - low > 1e-12 * high) {
      const double middle = (low + high) / 2;
      std::vector<int> counts = within(middle);
      (counts.empty() ? low : high) = middle;
      if (!counts.empty()) best = std::move(counts);
    }
    return best;
  }

  /// Moves cuts between stages of different devices while that helps the slower of the two.
  void balance_devices(std::vector<int>& counts,
                       const std::vector<std::uint32_t>& positions) const {
    std::vector<std::size_t> cut{0};  // where stage s begins, and the end
    for (const int n : counts) cut.push_back(cut.back() + static_cast<std::size_t>(n));
    std::vector<double> device_s(counts.size(), 0.0);
    for (std::size_t s = 0; s < counts.size(); ++s)
      device_s[positions[s]] += time(cut[s], cut[s + 1], s);
    const auto moved = [&](std::size_t s, std::size_t to) {  // the cut between s and s + 1
      double& left = device_s[positions[s]];
      double& right = device_s[positions[s + 1]];
      const double new_left = left + time(cut[s], to, s) - time(cut[s], cut[s + 1], s);
      const double new_right =
          right + time(to, cut[s + 2], s + 1) - time(cut[s + 1], cut[s + 2], s + 1);
      if (!(std::max(new_left, new_right) < std::max(left, right) * (1 - 1e-9))) return false;
      left = new_left, right = new_right, cut[s + 1] = to;
      return true;
    };
    for (bool again = true; again;) {
      again = false;
      for (std::size_t s = 0; s + 1 < counts.size(); ++s) {
        if (positions[s] == positions[s + 1]) continue;
        while (cut[s + 1] > cut[s] && moved(s, cut[s + 1] - 1)) again = true;
        while (cut[s + 2] > cut[s + 1] && moved(s, cut[s + 1] + 1)) again = true;
      }
    }
    for (std::size_t s = 0; s < counts.size(); ++s)
      counts[s] = static_cast<int>(cut[s + 1] - cut[s]);
  }

 private:
  std::size_t layers() const { return before_[0].size() - 1; }
  double width(std::size_t stage) const { return widths_[stage]; }
  const std::vector<double>& before(std::size_t stage) const {
    return before_[of_stage(recompute_, stage) ? 1 : 0];
  }
  double time(std::size_t begin, std::size_t end, std::size_t stage) const {
    return (before(stage)[end] - before(stage)[begin]) / width(stage);
  }

  /// As few bytes as possible over the cuts with no stage slower than `slowest_s`; empty when there
  /// is no such split.
  std::vector<int> within(double slowest_s) const {
    std::vector<double> bytes(layers() + 1, kNever);
    bytes[0] = 0;
    std::vector<std::vector<int>> begins;
    for (std::size_t s = 0; s < widths_.size(); ++s)
      begins.push_back(add_stage(s, slowest_s, bytes));
    return bytes.back() == kNever ? std::vector<int>{} : counts(begins);
  }

  /// From the bytes over the cuts of the first j layers in s stages to those in s + 1; where the
  /// new stage begins.
  std::vector<int> add_stage(std::size_t s, double slowest_s, std::vector<double>& bytes) const {
    std::vector<double> next(layers() + 1, kNever);
    std::vector<int> begin(layers() + 1, 0);
    std::deque<std::size_t> window;  // places where the stage may begin, ascending bytes
    for (std::size_t j = 1; j <= layers(); ++j) {
      while (!window.empty() && bytes[window.back()] >= bytes[j - 1]) window.pop_back();
      window.push_back(j - 1);
      while (!window.empty() && time(window.front(), j, s) > slowest_s) window.pop_front();
      if (window.empty() || bytes[window.front()] == kNever) continue;
      begin[j] = static_cast<int>(window.front());
      next[j] = bytes[window.front()] + (j < layers() ? cut_[j] : 0);
    }
    bytes = std::move(next);
    return begin;
  }

  std::vector<int> counts(const std::vector<std::vector<int>>& begins) const {
    std::vector<int> counts(widths_.size());
    std::size_t end = layers();
    for (std::size_t s = widths_.size(); s-- > 0;) {
      const int begin = begins[s][end];
      counts[s] = static_cast<int>(end) - begin;
      end = static_cast<std::size_t>(begin);
    }
    return counts;
  }

  std::vector<double> before_[2];  // cumulative times, also of layers that are recomputed
  std::vector<double> cut_;
  const std::vector<int>& widths_;
  const std::vector<bool> recompute_;  // of each stage; the only one where they are alike
};

void add_layer(StageCosts& c, double& parameters, double& kept, const ProfiledLayer& layer) {
  c[OpKind::forward].seconds += layer.forward_s;
  c[OpKind::backward].seconds += layer.backward_s;
  parameters += layer.parameter_bytes / 4;
  kept += layer.kept_bytes();
}

void add_parameters(StageCosts& c, double parameters, const ParameterBytes& bytes) {
  c.weight_bytes = std::llround(parameters * bytes.weights);
  c.gradient_bytes = std::llround(parameters * bytes.gradients);
  c.optimizer_bytes = std::llround(parameters * bytes.optimizer);
  c.version_bytes = std::llround(parameters * bytes.version);
  c.reduced_bytes = std::llround(parameters * bytes.reduced);
}

void add_activations(StageCosts& c, double input, double kept, bool recompute) {
  c.activation_bytes = std::llround(input + (recompute ? 0 : kept));
  c.activation_after_input_bytes = c.activation_bytes;
  if (recompute) c.backward_workspace_bytes = std::llround(kept);
}

void finish_times(StageCosts& c, double scale, bool recompute) {
  const double forward_s = c[OpKind::forward].seconds *= scale;
  const double backward_s = c[OpKind::backward].seconds * scale;
  const double again_s = recompute ? forward_s : 0;
  c[OpKind::backward_weight].seconds = backward_s / 2;
  c[OpKind::backward_input].seconds = backward_s / 2 + again_s;
  c[OpKind::backward].seconds = backward_s + again_s;
}

}  // namespace

std::vector<StageCosts> profiled_stage_costs(const PipedreamProfile& profile,
                                             const std::vector<int>& layers,
                                             const PipedreamUse& use) {
  std::vector<double> cut = profiled_cut_bytes(profile);
  cut[0] = profile.input_bytes;  // through a first stage without layers
  const std::vector<bool> recompute = use.recompute.values();
  std::vector<StageCosts> costs(layers.size());
  std::size_t begin = 0;
  for (std::size_t s = 0; s < layers.size(); ++s) {
    const std::size_t end = begin + static_cast<std::size_t>(layers[s]);
    const double input = use.scale * cut[begin];
    double parameters = 0, kept = 0;
    for (std::size_t i = begin; i < end; ++i)
      add_layer(costs[s], parameters, kept, profile.layers[i]);
    finish_times(costs[s], use.scale, of_stage(recompute, s));
    add_parameters(costs[s], parameters, use.bytes);
    add_activations(costs[s], input, use.scale * kept, of_stage(recompute, s));
    if (s + 1 < layers.size()) costs[s].output_bytes = std::llround(use.scale * cut[end]);
    begin = end;
  }
  return costs;
}

std::vector<int> profiled_balanced_split(const PipedreamProfile& profile,
                                         const std::vector<int>& widths,
                                         const PerStage<bool>& recompute,
                                         const std::vector<std::uint32_t>& positions) {
  const Splitter splitter(profile, widths, recompute);
  std::vector<int> split = splitter.split();
  const std::set<std::uint32_t> devices(positions.begin(), positions.end());
  if (devices.size() < positions.size()) splitter.balance_devices(split, positions);
  return split;
}

std::vector<std::vector<LayerGradient>> profiled_stage_gradients(const PipedreamProfile& profile,
                                                                 const std::vector<int>& layers) {
  std::vector<std::vector<LayerGradient>> stages(layers.size());
  auto layer = profile.layers.begin();
  for (std::size_t s = 0; s < layers.size(); ++s) {
    for (int i = 0; i < layers[s]; ++i, ++layer)
      stages[s].push_back({layer->parameter_bytes, layer->backward_s});
  }
  return stages;
}

}  // namespace penstock

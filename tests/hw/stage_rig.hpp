// SPDX-License-Identifier: Apache-2.0
// Runs a stage on the host in buffers of exactly the stated sizes, filled with NaN, with a guard
// behind each; an op is given only the buffers that live then. And central differences.
#pragma once

#include "hw/host/math.hpp"
#include "hw/row_kernels.hpp"
#include "hw/stage.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <vector>

namespace penstock {

inline HostMath immediate_math() {
  return HostMath([](const std::function<void()>& work) { work(); });
}

class Memory {
 public:
  explicit Memory(std::int64_t bytes) : words_(static_cast<std::size_t>(bytes / 4) + kGuard) {
    block_ = {words_.data(), bytes};
    poison();
    std::ranges::fill(words_.end() - kGuard, words_.end(), kGuardWord);
  }
  explicit Memory(const std::vector<float>& values)
      : Memory(static_cast<std::int64_t>(values.size()) * 4) {
    set(values);
  }
  Memory(Memory&& from) noexcept
      : words_(std::move(from.words_)), block_{words_.data(), from.block_.bytes} {}

  Tensor tensor() const { return {&block_, 0}; }
  Tensor if_any() const { return block_.bytes > 0 ? tensor() : Tensor{}; }
  void poison() { std::ranges::fill(words_.begin(), words_.end() - kGuard, 0x7fc0deadU); }
  void check_guard() const {
    if (std::any_of(words_.end() - kGuard, words_.end(),
                    [](std::uint32_t w) { return w != kGuardWord; })) {
      throw std::out_of_range("written behind a buffer");
    }
  }
  std::vector<float> values() const {
    std::vector<float> all(words_.size() - kGuard);
    std::ranges::transform(words_.begin(), words_.end() - kGuard, all.begin(),
                           [](std::uint32_t w) { return std::bit_cast<float>(w); });
    return all;
  }
  void set(const std::vector<float>& values) {
    std::ranges::transform(values, words_.begin(),
                           [](float x) { return std::bit_cast<std::uint32_t>(x); });
  }

 private:
  static constexpr std::ptrdiff_t kGuard = 64;
  static constexpr std::uint32_t kGuardWord = 0x7fc0beefU;
  std::vector<std::uint32_t> words_;
  Block block_;
};

/// Uniform in [-scale, scale).
inline std::vector<float> random_values(std::int64_t n, std::uint64_t seed, float scale = 1) {
  std::vector<float> values(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = scale * kernels::uniform(kernels::hash(seed, 77, i));
  return values;
}

inline double dot(const std::vector<float>& a, const std::vector<float>& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0, std::plus<>(),
                            [](double x, double y) { return x * y; });
}

/// Rows of experts in memory with guards.
class RigRoutes : public TokenRoutes {
 public:
  RigRoutes() : TokenRoutes(8) {}

 private:
  void download(void* to, Tensor from, std::int64_t bytes) const override {
    std::memcpy(to, from.data<char>(), static_cast<std::size_t>(bytes));
  }
  Block* take(std::int64_t bytes) override {
    const auto& memory = taken_.emplace_back(std::make_unique<Memory>(bytes));
    return const_cast<Block*>(memory->tensor().block);
  }
  void give_back(Block* block) override {
    std::erase_if(taken_, [&](const auto& memory) {
      if (memory->tensor().block != block) return false;
      memory->check_guard();
      return true;
    });
  }

  std::vector<std::unique_ptr<Memory>> taken_;
};

/// One microbatch on one stage.
class StageRig {
 public:
  explicit StageRig(const Stage& stage, std::uint32_t microbatch = 0)
      : stage_(stage),
        microbatch_(microbatch),
        input_(stage.sizes().input_bytes),
        output_(stage.sizes().output_bytes),
        saved_(stage.sizes().saved_bytes),
        saved_for_weight_(stage.sizes().saved_for_weight_bytes),
        output_gradient_(stage.sizes().output_bytes),
        input_gradient_(stage.sizes().input_bytes),
        kept_(stage.sizes().kept_bytes),
        loss_(4) {}

  /// The output; empty on the last stage, which sets loss().
  std::vector<float> forward(const std::vector<float>& weights, const std::vector<float>& input) {
    const Memory weight_memory(weights);
    Memory workspace(stage_.sizes().forward_workspace_bytes);
    input_.set(input);
    StageBuffers b;
    b.routes = &routes_;
    b.weights = weight_memory.tensor();
    b.input = input_.if_any();
    b.output = output_.if_any();
    b.saved = saved_.if_any();
    b.saved_for_weight = saved_for_weight_.if_any();
    b.workspace = workspace.if_any();
    if (output_.values().empty()) b.loss = loss_.tensor();
    stage_.forward(math_, b, microbatch_);
    check(workspace);
    return output_.values();
  }

  /// The input gradient; empty on the first stage.
  std::vector<float> backward_input(const std::vector<float>& weights,
                                    const std::vector<float>& output_gradient) {
    const Memory weight_memory(weights);
    Memory workspace(stage_.sizes().backward_workspace_bytes);
    output_.poison();
    output_gradient_.set(output_gradient);
    StageBuffers b;
    b.routes = &routes_;
    b.weights = weight_memory.tensor();
    b.input = input_.if_any();
    b.saved = saved_.if_any();
    b.saved_for_weight = saved_for_weight_.if_any();
    b.output_gradient = output_gradient_.if_any();
    b.input_gradient = input_gradient_.if_any();
    b.kept = kept_.if_any();
    b.workspace = workspace.if_any();
    stage_.backward_input(math_, b, microbatch_);
    check(workspace);
    return input_gradient_.values();
  }

  /// Adds to `gradients`. Weights, `saved` and both messages are gone by now.
  void backward_weight(std::vector<float>& gradients) {
    Memory gradient_memory(gradients);
    Memory workspace(stage_.sizes().backward_workspace_bytes);
    saved_.poison();
    output_gradient_.poison();
    input_gradient_.poison();
    StageBuffers b;
    b.routes = &routes_;
    b.gradients = gradient_memory.tensor();
    if (stage_.sizes().weight_needs_input) b.input = input_.if_any();
    b.saved_for_weight = saved_for_weight_.if_any();
    b.kept = kept_.if_any();
    b.workspace = workspace.if_any();
    stage_.backward_weight(math_, b, microbatch_);
    check(workspace);
    gradient_memory.check_guard();
    gradients = gradient_memory.values();
  }

  float loss() const { return loss_.values()[0]; }
  /// Kernels and products so far.
  int issued() const { return issued_; }

 private:
  void check(const Memory& workspace) const {
    for (const Memory* m : {&workspace, &input_, &output_, &saved_, &saved_for_weight_,
                            &output_gradient_, &input_gradient_, &kept_, &loss_}) {
      m->check_guard();
    }
  }

  const Stage& stage_;
  int issued_ = 0;
  HostMath math_{[this](const std::function<void()>& work) {
    ++issued_;
    work();
  }};
  std::uint32_t microbatch_;
  RigRoutes routes_;
  Memory input_, output_, saved_, saved_for_weight_, output_gradient_, input_gradient_, kept_,
      loss_;
};

inline std::int64_t input_elements(const Stage& stage) { return stage.sizes().input_bytes / 4; }
inline std::int64_t output_elements(const Stage& stage) { return stage.sizes().output_bytes / 4; }

/// What one microbatch leaves behind.
struct StageResult {
  std::vector<float> output, input_gradient, gradients;
  float loss = 0;
  bool operator==(const StageResult&) const = default;
};

inline StageResult run_stage(const Stage& stage, const std::vector<float>& weights,
                             const std::vector<float>& input,
                             const std::vector<float>& output_gradient,
                             std::uint32_t microbatch = 0) {
  StageRig rig(stage, microbatch);
  StageResult r;
  r.output = rig.forward(weights, input);
  if (r.output.empty()) r.loss = rig.loss();
  r.input_gradient = rig.backward_input(weights, output_gradient);
  r.gradients.assign(weights.size(), 0);
  rig.backward_weight(r.gradients);
  return r;
}

/// The loss, or the output times a fixed random matrix, as a function of weights and input.
class Objective {
 public:
  Objective(const Stage& stage, std::vector<float> weights)
      : stage_(stage),
        weights_(std::move(weights)),
        input_(random_values(input_elements(stage), 5)),
        direction_(random_values(output_elements(stage), 6)) {}

  double value(const std::vector<float>& weights, const std::vector<float>& input) const {
    StageRig rig(stage_);
    const std::vector<float> output = rig.forward(weights, input);
    return output.empty() ? static_cast<double>(rig.loss()) : dot(output, direction_);
  }
  StageResult result() const { return run_stage(stage_, weights_, input_, direction_); }

  /// d value / d t of weights + t step on [offset, offset + step), by four central points.
  double along_weights(std::size_t offset, const std::vector<float>& step) const {
    return differences(step, [&](const std::vector<float>& move) {
      std::vector<float> w = weights_;
      for (std::size_t i = 0; i < move.size(); ++i) w[offset + i] += move[i];
      return value(w, input_);
    });
  }
  double along_input(const std::vector<float>& step) const {
    return differences(step, [&](const std::vector<float>& move) {
      std::vector<float> x = input_;
      for (std::size_t i = 0; i < move.size(); ++i) x[i] += move[i];
      return value(weights_, x);
    });
  }

 private:
  template <class At>
  static double differences(const std::vector<float>& step, const At& at) {
    constexpr double h = 0.04;
    const auto moved = [&](double factor) {
      std::vector<float> move(step.size());
      std::ranges::transform(step, move.begin(), [factor](float x) {
        return static_cast<float>(factor * static_cast<double>(x));
      });
      return at(move);
    };
    return (8 * (moved(h) - moved(-h)) - (moved(2 * h) - moved(-2 * h))) / (12 * h);
  }

  const Stage& stage_;
  std::vector<float> weights_, input_, direction_;
};

inline std::vector<float> unit(std::vector<float> v) {
  const double length = std::sqrt(dot(v, v));
  for (float& x : v) x = static_cast<float>(static_cast<double>(x) / length);
  return v;
}

/// Largest error of `gradient`, as a share of its length, along: itself, itself turned by half a
/// right angle, its largest coordinate and two others. `differences` is the derivative along a
/// step.
template <class Differences>
double worst_error(const std::vector<float>& gradient, const Differences& differences) {
  const double length = std::sqrt(dot(gradient, gradient));
  const auto n = static_cast<std::int64_t>(gradient.size());
  const std::vector<float> own = unit(gradient);
  const std::vector<float> other = unit(random_values(n, 9));
  std::vector<float> turned(gradient.size());
  std::ranges::transform(own, other, turned.begin(), std::plus<>());
  std::vector<std::vector<float>> steps{own, unit(turned)};
  const auto largest = std::ranges::max_element(gradient, {}, [](float x) { return std::abs(x); }) -
                       gradient.begin();
  for (const std::int64_t i : {static_cast<std::int64_t>(largest), n / 3, n - 1}) {
    steps.emplace_back(gradient.size(), 0.0F)[static_cast<std::size_t>(i)] = 1;
  }
  double worst = 0;
  for (const std::vector<float>& step : steps) {
    const double error = std::abs(differences(step) - dot(gradient, step)) / length;
    worst = std::isnan(error) ? error : std::max(worst, error);
    if (std::isnan(worst)) break;
  }
  return worst;
}

/// Relative; a gradient 1 % too large is not accepted.
inline constexpr double kGradientTolerance = 3e-3;

}  // namespace penstock

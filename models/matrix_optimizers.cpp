// SPDX-License-Identifier: Apache-2.0
#include "models/matrix_optimizers.hpp"

#include <algorithm>
#include <cmath>

namespace penstock {

double LayerMatrix::muon_flops() const {
  const double s = std::min(rows, cols), l = std::max(rows, cols);
  return 5 * (4 * s * s * l + 2 * s * s * s);
}

double LayerMatrix::rotation_flops() const {
  return 8 * rows * cols * (rows + cols) + 14.0 / 30 * (rows * rows * rows + cols * cols * cols);
}

std::vector<LayerMatrix> layer_matrices(const TransformerSpec& model, const Layer& layer,
                                        const TensorParallel& tensor, const ExpertParallel& expert,
                                        int layers) {
  std::vector<LayerMatrix> all;
  for (const Module& m : layer.modules()) {
    if (m.kind != Module::Kind::product) continue;
    const bool of_experts = m.divided_by == Module::DividedBy::experts;
    const double parts = of_experts                                  ? expert.tensor
                         : m.divided_by == Module::DividedBy::nobody ? 1
                                                                     : tensor.degree;
    const auto rows = static_cast<double>(m.rows), columns = static_cast<double>(m.columns);
    const int count = layers * (of_experts ? m.count / expert.degree : m.count);
    if (m.name == "qkv") {
      for (const std::int64_t size : {model.query_size(), model.key_size(), model.value_size()})
        all.push_back({static_cast<double>(size) / parts, rows, count});
    } else {
      all.push_back({rows / (m.by_columns ? 1 : parts), columns / (m.by_columns ? parts : 1), count,
                     of_experts});
    }
  }
  return all;
}

double most_flops(const std::vector<LayerMatrix>& matrices, double (LayerMatrix::*flops)() const,
                  int shards) {
  std::vector<std::pair<double, int>> each;  // FLOPs, how often
  for (const LayerMatrix& m : matrices) each.emplace_back((m.*flops)(), m.count);
  std::ranges::stable_sort(each, std::greater<>(), &std::pair<double, int>::first);
  std::vector<double> loads(static_cast<std::size_t>(shards), 0.0);
  for (const auto& [of_one, count] : each) {
    for (int i = 0; i < count; ++i) {
      // A heap whose top is the least load.
      std::pop_heap(loads.begin(), loads.end(), std::greater<>());
      loads.back() += of_one;
      std::push_heap(loads.begin(), loads.end(), std::greater<>());
    }
  }
  return std::ranges::max(loads);
}

MatrixStep::MatrixStep(const std::vector<LayerMatrix>& matrices, const DeviceSpec& device,
                       const TensorParallel& tensor, const Sharding& sharding,
                       const CollectivePrice& exchange)
    : device(device),
      tensor(tensor),
      shards(sharding.optimizer_shards()),
      expert_shards(sharding.expert_shards()),
      exchange(sharding.what > Sharded::optimizer ? exchange : CollectivePrice{}) {
  for (const LayerMatrix& m : matrices) (m.of_experts ? of_experts : dense).push_back(m);
}

namespace {

/// Returns the sum over one replica's share of the matrices.
template <class NumbersOf>
double shared(const MatrixStep& step, const NumbersOf& numbers_of) {
  const auto sum = [&](const std::vector<LayerMatrix>& matrices) {
    double numbers = 0;
    for (const LayerMatrix& m : matrices) numbers += m.count * numbers_of(m);
    return numbers;
  };
  return sum(step.dense) / step.shards + sum(step.of_experts) / step.expert_shards;
}

/// Adds the exchanges before and after the step, in numbers of so many bytes.
void add_exchanges(StageCosts& costs, const MatrixStep& step, double bytes) {
  costs.step_s +=
      2 * step.exchange.seconds(bytes * shared(step, std::mem_fn(&LayerMatrix::elements)));
}

/// Bytes of one of Adam's moments of a weight.
double moment_bytes(const TransformerSpec& model) {
  const double master = model.bytes.weights < 4 ? 4 : 0;
  return std::max(0.0, (model.bytes.optimizer - master) / 2);
}

/// Adds the seconds of the replica with most FLOPs, at the rate of the first type that is known.
void add_step(StageCosts& costs, const TransformerSpec& model, const MatrixStep& step,
              std::initializer_list<std::string> types, double (LayerMatrix::*flops)() const) {
  for (const std::string& type : types) {
    const auto peak = step.device.peak_flops_per_s.find(type);
    if (peak == step.device.peak_flops_per_s.end()) continue;
    const double width = static_cast<double>(model.hidden_size) / std::sqrt(step.tensor.degree);
    costs.step_s += (most_flops(step.dense, flops, step.shards) +
                     most_flops(step.of_experts, flops, step.expert_shards)) /
                    (peak->second * step.device.efficiency_at(width));
    return;
  }
}

}  // namespace

void use_muon(StageCosts& costs, const TransformerSpec& model, const MatrixStep& step) {
  costs.optimizer_bytes -=
      std::llround(moment_bytes(model) * shared(step, std::mem_fn(&LayerMatrix::elements)));
  add_exchanges(costs, step, 2);
  add_step(costs, model, step, {model.compute_type}, &LayerMatrix::muon_flops);
}

void use_basis_rotation(StageCosts& costs, const TransformerSpec& model, const MatrixStep& step) {
  costs.optimizer_bytes += std::llround(4 * shared(step, [](const LayerMatrix& m) {
                                          return 2 * (m.rows * m.rows + m.cols * m.cols);
                                        }));
  add_exchanges(costs, step, 4);
  add_step(costs, model, step, {"tf32", "fp32", model.compute_type}, &LayerMatrix::rotation_flops);
}

}  // namespace penstock

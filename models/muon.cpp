// SPDX-License-Identifier: Apache-2.0
#include "models/muon.hpp"

#include <algorithm>
#include <cmath>

namespace penstock {

double MuonMatrix::flops() const {
  const double s = std::min(rows, cols), l = std::max(rows, cols);
  return 5 * (4 * s * s * l + 2 * s * s * s);
}

std::vector<MuonMatrix> muon_matrices(const TransformerSpec& model, const Layer& layer,
                                      const TensorParallel& tensor, const ExpertParallel& expert,
                                      int layers) {
  std::vector<MuonMatrix> all;
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
      all.push_back(
          {rows / (m.by_columns ? 1 : parts), columns / (m.by_columns ? parts : 1), count});
    }
  }
  return all;
}

double most_muon_flops(const std::vector<MuonMatrix>& matrices, int shards) {
  std::vector<std::pair<double, int>> each;  // FLOPs, how often
  for (const MuonMatrix& m : matrices) each.emplace_back(m.flops(), m.count);
  std::ranges::stable_sort(each, std::greater<>(), &std::pair<double, int>::first);
  std::vector<double> loads(static_cast<std::size_t>(shards), 0.0);
  for (const auto& [flops, count] : each) {
    for (int i = 0; i < count; ++i) {
      // A heap whose top is the least load.
      std::pop_heap(loads.begin(), loads.end(), std::greater<>());
      loads.back() += flops;
      std::push_heap(loads.begin(), loads.end(), std::greater<>());
    }
  }
  return std::ranges::max(loads);
}

void use_muon(StageCosts& costs, const TransformerSpec& model, const DeviceSpec& device,
              const std::vector<MuonMatrix>& matrices, const TensorParallel& tensor, int shards) {
  double elements = 0;
  for (const MuonMatrix& m : matrices) elements += m.count * m.elements();
  const ParameterBytes& bytes = model.bytes;
  const double master = bytes.weights < 4 ? 4 : 0;
  const double moment = std::max(0.0, (bytes.optimizer - master) / 2);
  costs.optimizer_bytes -= std::llround(elements * moment / shards);
  const auto peak = device.peak_flops_per_s.find(model.compute_type);
  if (peak != device.peak_flops_per_s.end()) {
    const double width = static_cast<double>(model.hidden_size) / std::sqrt(tensor.degree);
    costs.step_s +=
        most_muon_flops(matrices, shards) / (peak->second * device.efficiency_at(width));
  }
}

}  // namespace penstock

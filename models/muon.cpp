// SPDX-License-Identifier: Apache-2.0
#include "models/muon.hpp"

#include <algorithm>
#include <cmath>

namespace penstock {

double MuonMatrix::flops() const {
  const double s = std::min(rows, cols), l = std::max(rows, cols);
  return 5 * (4 * s * s * l + 2 * s * s * s);
}

std::vector<MuonMatrix> muon_matrices(const TransformerSpec& model, const TensorParallel& tensor) {
  const auto h = static_cast<double>(model.hidden_size);
  const double t = tensor.degree;
  const double q = static_cast<double>(model.query_size()) / t;
  const double kv = static_cast<double>(model.kv_size()) / t;
  const double f = static_cast<double>(model.ffn_hidden_size) / t;
  const double into = model.form().mlp_matrices() - 1;
  return {{q, h}, {kv, h}, {kv, h}, {h, q}, {into * f, h}, {h, f}};
}

double most_muon_flops(const TransformerSpec& model, int layers, const TensorParallel& tensor,
                       int shards) {
  std::vector<double> each;
  for (const MuonMatrix& m : muon_matrices(model, tensor)) each.push_back(m.flops());
  std::ranges::sort(each, std::greater<>());
  std::vector<double> loads(static_cast<std::size_t>(shards), 0.0);
  for (const double flops : each) {
    for (int i = 0; i < layers; ++i) {
      // A heap whose top is the least load.
      std::pop_heap(loads.begin(), loads.end(), std::greater<>());
      loads.back() += flops;
      std::push_heap(loads.begin(), loads.end(), std::greater<>());
    }
  }
  return std::ranges::max(loads);
}

void use_muon(StageCosts& costs, const TransformerSpec& model, const DeviceSpec& device, int layers,
              const TensorParallel& tensor, int shards) {
  double elements = 0;
  for (const MuonMatrix& m : muon_matrices(model, tensor)) elements += layers * m.elements();
  const ParameterBytes& bytes = model.bytes;
  const double master = bytes.weights < 4 ? 4 : 0;
  const double moment = std::max(0.0, (bytes.optimizer - master) / 2);
  costs.optimizer_bytes -= std::llround(elements * moment / shards);
  const auto peak = device.peak_flops_per_s.find(model.compute_type);
  if (peak != device.peak_flops_per_s.end()) {
    const double width = static_cast<double>(model.hidden_size) / std::sqrt(tensor.degree);
    costs.step_s += most_muon_flops(model, layers, tensor, shards) /
                    (peak->second * device.efficiency_at(width));
  }
}

}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
#include "models/layer/module.hpp"

#include <algorithm>

namespace penstock {
namespace {

double real(std::int64_t value) { return static_cast<double>(value); }

/// Returns a product of a matrix with its bias; by columns: ranks divide what it makes, otherwise
/// what it reads.
Module product(std::string_view name, std::int64_t rows, std::int64_t columns, bool by_columns,
               bool bias) {
  Module m{.name = name, .kind = Module::Kind::product, .rows = rows, .columns = columns};
  m.operands = by_columns ? Elements{rows, columns} : Elements{columns, rows};
  if (bias) m.vectors = by_columns ? Elements{0, columns} : Elements{columns, 0};
  return m;
}

std::vector<Module> modules_of(const TransformerSpec& model) {
  const LayerForm f = model.form();
  const std::int64_t h = model.hidden_size, q = model.query_size(), kv = model.kv_size(),
                     ffn = model.ffn_hidden_size, inner = (f.mlp_matrices() - 1) * ffn;
  const double e = model.element_bytes();
  const auto norm = [&](std::string_view name) {
    return Module{.name = name, .vectors = {f.norm_vectors() * h, 0}, .moved = {2 * h, 0}};
  };
  const auto addition = [&](bool ends_layer) {
    Module m{.name = "addition", .moved = {3 * h, 0}, .masks = f.dropout};
    if (!ends_layer && !f.parallel_residual) m.kept = {h, 0};  // what the MLP's norm reads
    return m;
  };
  // Norms before attention and MLP, or one that both share; further ones behind them.
  const int before = std::min(f.norms, 2), behind = f.norms - before;

  std::vector<Module> all;
  all.push_back({.name = "input", .kept = {h, 0}});
  all.push_back(norm("input_norm"));
  all.back().kept = {h, 0};
  all.push_back(product("qkv", h, q + 2 * kv, true, f.has_qkv_biases()));
  all.back().kept = {0, q + 2 * kv};
  if (f.qk_norm != QueryKeyNorm::none) {
    // Its small traffic is not counted apart.
    all.push_back({.name = "qk_norm", .kept = {0, q + kv}});
    all.back().vectors =
        f.qk_norm == QueryKeyNorm::head ? Elements{2 * model.head_size(), 0} : Elements{0, q + kv};
  }
  all.push_back({.name = "core_attention", .kind = Module::Kind::attention});
  // Scores and softmax and, with dropout, its output and mask.
  if (!model.flash_attention) all.back().pair_bytes = f.dropout ? 2 * e + 1 : 2 * e;
  all.push_back(product("projection", q, h, false, f.has_projection_bias()));
  all.back().kept = {0, q};  // attention's output, also where attention runs again
  all.back().sums = !f.parallel_residual;
  if (behind > 0) all.push_back(norm("post_norm")), all.back().kept = {h, 0};
  all.push_back(addition(false));
  if (before > 1) all.push_back(norm("mlp_norm")), all.back().kept = {h, 0};
  all.push_back(product("up", h, inner, true, f.has_mlp_biases()));
  all.back().kept = {0, inner};
  all.push_back({.name = "activation", .moved = {0, inner + ffn}, .kept = {0, ffn}});
  all.push_back(product("down", ffn, h, false, f.has_mlp_biases()));
  all.back().sums = true;
  if (behind > 1) all.push_back(norm("post_norm")), all.back().kept = {h, 0};
  all.push_back(addition(true));
  return all;
}

/// Returns the sum of `of(module)` over the modules.
template <class Of>
auto sum(const std::vector<Module>& modules, const Of& of) {
  decltype(of(modules.front())) total{};
  for (const Module& m : modules) total += of(m);
  return total;
}

/// Returns how many ranks divide what is whole on each of them.
int sequence_parts(const TensorParallel& tensor) { return tensor.sequence ? tensor.degree : 1; }

}  // namespace

Layer::Layer(const TransformerSpec& model)
    : modules_(modules_of(model)),
      hidden_size_(model.hidden_size),
      seq_length_(model.seq_length),
      heads_(model.num_attention_heads),
      matrices_(sum(modules_, [](const Module& m) { return m.matrix(); })),
      element_bytes_(model.element_bytes()),
      pairs_(model.attention_pairs()),
      query_size_(real(model.query_size())) {}

std::int64_t Layer::parameters(const TensorParallel& tensor) const {
  const auto divided =
      sum(modules_, [](const Module& m) { return m.matrix() + m.vectors.divided; });
  return divided / tensor.degree + sum(modules_, [](const Module& m) { return m.vectors.whole; });
}

int Layer::tensor_sums() const {
  return sum(modules_, [](const Module& m) { return m.sums ? 1 : 0; });
}

double Layer::product_flops(double b) const { return 2 * tokens(b) * real(matrices_); }

double Layer::attention_flops(double b) const { return 4 * b * pairs_ * query_size_; }

double Layer::operand_bytes(double b, const TensorParallel& tensor) const {
  const double whole = real(sum(modules_, [](const Module& m) { return m.operands.whole; }));
  const double divided = real(sum(modules_, [](const Module& m) { return m.operands.divided; }));
  return element_bytes_ *
         (real(matrices_) / tensor.degree + tokens(b) * (whole + divided / tensor.degree));
}

double Layer::elementwise_bytes(double b) const {
  const double moved = real(sum(modules_, [](const Module& m) { return m.moved.whole; }));
  const double masks = sum(modules_, [](const Module& m) { return m.masks ? 1.0 : 0.0; });
  return tokens(b) * (moved * element_bytes_ + masks * real(hidden_size_));
}

double Layer::input_bytes(double b, const TensorParallel& tensor) const {
  return element_bytes_ * tokens(b) * real(hidden_size_) / sequence_parts(tensor);
}

double Layer::kept_until_weight(double b, const TensorParallel& tensor) const {
  const double whole = real(sum(modules_, [](const Module& m) { return m.kept.whole; }));
  const double divided = real(sum(modules_, [](const Module& m) { return m.kept.divided; }));
  return tokens(b) * element_bytes_ * whole / sequence_parts(tensor) +
         tokens(b) * element_bytes_ * divided / tensor.degree;
}

double Layer::mask_bytes(double b, const TensorParallel& tensor) const {
  const double masks = sum(modules_, [](const Module& m) { return m.masks ? 1.0 : 0.0; });
  return masks * tokens(b) * real(hidden_size_) / sequence_parts(tensor);
}

double Layer::probability_bytes(double b, const TensorParallel& tensor) const {
  const double of_pair = sum(modules_, [](const Module& m) { return m.pair_bytes; });
  return tokens(b) * real(seq_length_) * real(heads_) * of_pair / tensor.degree;
}

}  // namespace penstock

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
  m.by_columns = by_columns;
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
  all.back().again_with = LayerPart::layernorm;
  all.push_back(product("qkv", h, q + 2 * kv, true, f.has_qkv_biases()));
  all.back().kept = {0, q + 2 * kv};
  if (f.qk_norm != QueryKeyNorm::none) {
    // Its small traffic is not counted apart.
    all.push_back({.name = "qk_norm", .kept = {0, q + kv}});
    all.back().vectors =
        f.qk_norm == QueryKeyNorm::head ? Elements{2 * model.head_size(), 0} : Elements{0, q + kv};
  }
  all.push_back({.name = "core_attention",
                 .kind = Module::Kind::attention,
                 .again_with = LayerPart::core_attn});
  // The softmax and, with dropout, its output and mask.
  if (!model.flash_attention) all.back().pair_bytes = f.dropout ? 2 * e + 1 : e;
  all.push_back(product("projection", q, h, false, f.has_projection_bias()));
  all.back().kept = {0, q};  // attention's output, also where attention runs again
  all.back().sums = !f.parallel_residual;
  if (behind > 0) all.push_back(norm("post_norm")), all.back().kept = {h, 0};
  all.push_back(addition(false));
  if (before > 1) {
    all.push_back(norm("mlp_norm"));
    all.back().kept = {h, 0};
    all.back().again_with = LayerPart::layernorm;
  }
  all.push_back(product("up", h, inner, true, f.has_mlp_biases()));
  all.back().kept = {0, inner};
  all.back().again_with = LayerPart::mlp;
  all.push_back({.name = "activation",
                 .moved = {0, inner + ffn},
                 .kept = {0, ffn},
                 .again_with = LayerParts(LayerPart::mlp) | LayerPart::moe_act});
  all.push_back(product("down", ffn, h, false, f.has_mlp_biases()));
  all.back().sums = true;
  all.back().again_with = LayerPart::mlp;
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
      element_bytes_(model.element_bytes()),
      pairs_(model.attention_pairs()),
      query_size_(real(model.query_size())) {}

std::int64_t Layer::matrix_parameters() const {
  return sum(modules_, [](const Module& m) { return m.matrix(); });
}

std::int64_t Layer::parameters(const TensorParallel& tensor) const {
  const auto divided =
      sum(modules_, [](const Module& m) { return m.matrix() + m.vectors.divided; });
  return divided / tensor.degree + sum(modules_, [](const Module& m) { return m.vectors.whole; });
}

template <class Is>
LayerWork Layer::work_where(double b, const TensorParallel& tensor, const Is& is) const {
  std::int64_t matrices = 0;
  Elements operands, moved, lone;
  LayerWork work;
  double masks = 0, lone_masks = 0;
  bool follows_product = false;  // of those that are done
  for (const Module& m : modules_) {
    if (m.kind == Module::Kind::product) follows_product = is(m);
    if (!is(m)) continue;
    matrices += m.matrix();
    operands += m.operands;
    moved += m.moved;
    masks += m.masks ? 1 : 0;
    if (!follows_product) lone += m.moved, lone_masks += m.masks ? 1 : 0;
    if (m.kind == Module::Kind::attention) work.attention_flops = 4 * b * pairs_ * query_size_;
    work.sums += m.sums ? 1 : 0;
  }
  const auto moved_bytes = [&](const Elements& elements, double with_masks) {
    return tokens(b) * ((real(elements.whole) * element_bytes_ + with_masks * real(hidden_size_)) /
                            sequence_parts(tensor) +
                        real(elements.divided) * element_bytes_ / tensor.degree);
  };
  work.product_flops = 2 * tokens(b) * real(matrices);
  work.operand_bytes =
      element_bytes_ *
      (real(matrices) / tensor.degree +
       tokens(b) * (real(operands.whole) + real(operands.divided) / tensor.degree));
  work.moved_bytes = moved_bytes(moved, masks);
  work.lone_bytes = moved_bytes(lone, lone_masks);
  return work;
}

LayerWork Layer::work(double b, const TensorParallel& tensor) const {
  return work_where(b, tensor, [](const Module&) { return true; });
}

LayerWork Layer::work_again(double b, const TensorParallel& tensor, LayerParts parts) const {
  return work_where(b, tensor, [&](const Module& m) { return m.again_with.overlaps(parts); });
}

double Layer::elementwise_bytes(double b) const {
  const double moved = real(sum(modules_, [](const Module& m) { return m.moved.whole; }));
  const double masks = sum(modules_, [](const Module& m) { return m.masks ? 1.0 : 0.0; });
  return tokens(b) * (moved * element_bytes_ + masks * real(hidden_size_));
}

LayerKept Layer::kept(double b, const TensorParallel& tensor, LayerParts again) const {
  Elements elements;
  double masks = 0, of_pair = 0;
  for (const Module& m : modules_) {
    if (m.again_with.overlaps(again)) continue;
    elements += m.kept;
    masks += m.masks ? 1 : 0;
    of_pair += m.pair_bytes;
  }
  return {tokens(b) * element_bytes_ * real(elements.whole) / sequence_parts(tensor) +
              tokens(b) * element_bytes_ * real(elements.divided) / tensor.degree,
          masks * tokens(b) * real(hidden_size_) / sequence_parts(tensor) +
              tokens(b) * real(seq_length_) * real(heads_) * of_pair / tensor.degree};
}

double Layer::input_bytes(double b, const TensorParallel& tensor) const {
  return element_bytes_ * tokens(b) * real(hidden_size_) / sequence_parts(tensor);
}

}  // namespace penstock

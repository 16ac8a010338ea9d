// SPDX-License-Identifier: Apache-2.0
#include "models/layer/module.hpp"

#include <algorithm>

namespace penstock {
namespace {

double real(std::int64_t value) { return static_cast<double>(value); }

/// Returns a product of a matrix with its bias; by columns: ranks divide what it makes, otherwise
/// what it reads.
Module product(std::string_view name, ProductClass of, std::int64_t rows, std::int64_t columns,
               bool by_columns, bool bias) {
  Module m{.name = name, .kind = Module::Kind::product, .rows = rows, .columns = columns};
  m.by_columns = by_columns;
  m.of = of;
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
  all.back().feeds = ProductClass::attention_projections;
  all.back().casts_for_product = true;
  all.push_back(
      product("qkv", ProductClass::attention_projections, h, q + 2 * kv, true, f.has_qkv_biases()));
  all.back().kept = {0, q + 2 * kv};
  all.back().feeds = ProductClass::attention;
  if (f.qk_norm != QueryKeyNorm::none) {
    // Its small traffic is not counted apart.
    all.push_back({.name = "qk_norm", .kept = {0, q + kv}});
    all.back().vectors =
        f.qk_norm == QueryKeyNorm::head ? Elements{2 * model.head_size(), 0} : Elements{0, q + kv};
  }
  if (f.positions == Positions::rotary)
    all.push_back({.name = "rotary", .moved = {0, 2 * (q + kv)}});
  all.push_back({.name = "core_attention",
                 .kind = Module::Kind::attention,
                 .of = ProductClass::attention,
                 .again_with = LayerPart::core_attn});
  // The softmax and, with dropout, its output and mask.
  if (!model.flash_attention) all.back().pair_bytes = f.dropout ? 2 * e + 1 : e;
  all.push_back(product("projection", ProductClass::attention_projections, q, h, false,
                        f.has_projection_bias()));
  all.back().kept = {0, q};  // attention's output, also where attention runs again
  all.back().narrow_copy = {0, q};
  all.back().sums = !f.parallel_residual;
  if (behind > 0) all.push_back(norm("post_norm")), all.back().kept = {h, 0};
  all.push_back(addition(false));
  if (before > 1) {
    all.push_back(norm("mlp_norm"));
    all.back().kept = {h, 0};
    all.back().again_with = LayerPart::layernorm;
    all.back().feeds = ProductClass::mlp;
    all.back().casts_for_product = true;
  }
  all.push_back(product("up", ProductClass::mlp, h, inner, true, f.has_mlp_biases()));
  all.back().kept = {0, inner};
  all.back().again_with = LayerPart::mlp;
  all.push_back({.name = "activation",
                 .feeds = ProductClass::mlp,
                 .moved = {0, inner + ffn},
                 .kept = {0, ffn},
                 .again_with = LayerParts(LayerPart::mlp) | LayerPart::moe_act});
  all.push_back(product("down", ProductClass::mlp, ffn, h, false, f.has_mlp_biases()));
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
      query_size_(real(model.query_size())),
      qkv_size_(model.query_size() + 2 * model.kv_size()),
      types_(model.product_types) {
  for (std::size_t c = 0; c < kProductClasses; ++c)
    operand_bytes_[c] = model.operand_bytes(static_cast<ProductClass>(c));
}

double Layer::cast_bytes(ProductClass products) const {
  const NumberTypeFacts& type = facts_of(types_.of(products));
  const double bytes = bytes_of(products);
  if (bytes == element_bytes_ || type.casts_itself) return 0;
  return (1 + type.amax_passes) * element_bytes_ + (bytes < element_bytes_ ? 2 : 1) * bytes;
}

LayerNarrow Layer::narrow(const TensorParallel& tensor) const {
  LayerNarrow sum;
  for (const Module& m : modules_) {
    if (m.kind != Module::Kind::product || !is_narrow(m.of)) continue;
    sum.parameters += real(m.matrix()) / tensor.degree;
    sum.bytes += bytes_of(m.of) * real(m.matrix()) / tensor.degree;
  }
  return sum;
}

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
  LayerWork work;
  bool follows_product = false;  // of those that are done
  // Of a token on this rank: what a rank has of it, elements of so many bytes each.
  const auto of_rank = [&](const Elements& elements, double bytes) {
    return tokens(b) * bytes *
           (real(elements.whole) / sequence_parts(tensor) + real(elements.divided) / tensor.degree);
  };
  // Of products' operands, which are gathered.
  const auto of_product = [&](const Elements& elements, double bytes) {
    return tokens(b) * bytes * (real(elements.whole) + real(elements.divided) / tensor.degree);
  };
  const auto cast = [&](const Elements& elements, ProductClass products) {
    return of_rank(elements, cast_bytes(products));
  };
  for (std::size_t i = 0; i < modules_.size(); ++i) {
    const Module& m = modules_[i];
    const bool is_product = m.kind == Module::Kind::product;
    if (is_product) follows_product = is(m);
    if (!is(m)) continue;
    work.sums += m.sums ? 1 : 0;
    double moved = of_rank(m.moved, element_bytes_);
    if (m.masks) moved += of_rank({hidden_size_, 0}, 1);
    work.moved_bytes += moved;
    if (!follows_product) work.lone_bytes += moved;
    if (m.kind == Module::Kind::attention) {
      work.attention_flops = 4 * b * pairs_ * query_size_;
      // Queries, keys and values, and the gradient of the output.
      work.cast_bytes += cast({0, qkv_size_}, m.of);
      work.cast_back_bytes += cast({0, static_cast<std::int64_t>(query_size_)}, m.of);
    }
    if (!is_product) continue;
    const double flops = 2 * tokens(b) * real(m.matrix());
    work.product_flops += flops;
    work.class_flops[static_cast<std::size_t>(m.of)] += flops;
    work.operand_bytes += bytes_of(m.of) * real(m.matrix()) / tensor.degree +
                          of_product(m.input(), bytes_of(m.of)) +
                          of_product(m.result(), element_bytes_);
    const bool norm_casts =
        i > 0 && modules_[i - 1].casts_for_product && facts_of(types_.of(m.of)).amax_passes == 0;
    // A norm reads its input anyhow and leaves its wide output out.
    const double saved = norm_casts && cast_bytes(m.of) > 0 ? 2 * element_bytes_ : 0;
    work.cast_bytes += of_rank(m.input(), cast_bytes(m.of) - saved);
    work.cast_back_bytes += cast(m.result(), m.of);
  }
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
  double whole = 0, divided = 0, masks = 0, of_pair = 0;  // the first two in bytes of a token
  const auto add = [&](const Elements& elements, double size) {
    whole += size * real(elements.whole);
    divided += size * real(elements.divided);
  };
  for (const Module& m : modules_) {
    if (m.again_with.overlaps(again)) continue;
    const double size = m.feeds ? std::min(element_bytes_, bytes_of(*m.feeds)) : element_bytes_;
    add(m.kept, size);
    if (is_narrow(m.of)) add(m.narrow_copy, bytes_of(m.of));
    masks += m.masks ? 1 : 0;
    of_pair += m.pair_bytes;
  }
  return {tokens(b) * whole / sequence_parts(tensor) + tokens(b) * divided / tensor.degree,
          masks * tokens(b) * real(hidden_size_) / sequence_parts(tensor) +
              tokens(b) * real(seq_length_) * real(heads_) * of_pair / tensor.degree};
}

double Layer::input_bytes(double b, const TensorParallel& tensor) const {
  return element_bytes_ * tokens(b) * real(hidden_size_) / sequence_parts(tensor);
}

}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
#include "models/layer/module.hpp"

#include <algorithm>

namespace penstock {
namespace {

double real(std::int64_t value) { return static_cast<double>(value); }

/// What DeepSeek-V3 keeps in few bits: inputs of SwiGLU in fp8, attention's output in 12 bits
/// (E5M6), for attention's backward and the projection's (arXiv:2412.19437, section 3.3.3).
constexpr double kNarrowInput = 1, kNarrowOutput = 1.5;

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

/// Makes the modules of a layer, one after the other.
class LayerOf {
 public:
  LayerOf(const TransformerSpec& model, const ExpertParallel& expert)
      : model_(model), expert_(expert), f_(model.form()), h_(model.hidden_size) {}

  std::vector<Module> modules(LayerKind kind) {
    // Norms before attention and MLP, or one that both share; further ones behind them.
    const int before = std::min(f_.norms, 2), behind = f_.norms - before;
    const bool predicts = kind == LayerKind::prediction;
    const bool has_experts =
        predicts ? model_.has_experts(model_.num_layers - 1) : kind == LayerKind::experts;
    add({.name = "input", .kept = {h_, 0}});
    if (predicts) add_prediction();
    add_norm("input_norm").again_with = LayerPart::layernorm;
    last().feeds = ProductClass::attention_projections;
    last().casts_for_product = true;
    model_.latent ? add_latents(*model_.latent) : add_queries();
    add_attention();
    if (behind > 0) add_norm("post_norm");
    add_addition(false);
    if (before > 1) {
      add_norm("mlp_norm").again_with = LayerPart::layernorm;
      if (!has_experts) {
        last().feeds = ProductClass::mlp;
        last().casts_for_product = true;
      }
    }
    if (has_experts) {
      add_experts(*model_.experts);
    } else {
      add_mlp({"up", "activation", "down"}, model_.ffn_hidden_size, LayerPart::mlp,
              LayerPart::moe_act);
    }
    if (behind > 1) add_norm("post_norm");
    add_addition(true);
    if (predicts) add_norm("final_norm");
    divide_products();
    return std::move(all_);
  }

 private:
  Module& last() { return all_.back(); }
  Module& add(const Module& module) { return all_.emplace_back(module); }
  Module& add_norm(std::string_view name) { return add_norm(name, h_); }
  Module& add_norm(std::string_view name, std::int64_t size) {
    return add({.name = name,
                .vectors = {f_.norm_vectors() * size, 0},
                .moved = {2 * size, 0},
                .kept = {size, 0}});
  }
  void add_addition(bool ends_layer) {
    add({.name = "addition", .moved = {3 * h_, 0}, .masks = f_.dropout});
    if (!ends_layer && !f_.parallel_residual) last().kept = {h_, 0};  // what the MLP's norm reads
  }
  std::int64_t up_columns(std::int64_t width) const { return (f_.mlp_matrices() - 1) * width; }

  void add_queries() {
    const std::int64_t q = model_.query_size(), kv = model_.key_size();
    add(product("qkv", ProductClass::attention_projections, h_, q + 2 * kv, true,
                f_.has_qkv_biases()));
    last().kept = {0, q + 2 * kv};
    last().feeds = ProductClass::attention;
    if (f_.qk_norm != QueryKeyNorm::none) {
      // Its small traffic is not counted apart.
      add({.name = "qk_norm", .kept = {0, q + kv}});
      last().vectors = f_.qk_norm == QueryKeyNorm::head ? Elements{2 * model_.head_size(), 0}
                                                        : Elements{0, q + kv};
    }
    if (f_.positions == Positions::rotary) add({.name = "rotary", .moved = {0, 2 * (q + kv)}});
  }

  /// Adds a product that makes a latent, which every tensor rank has, and the latent's norm; the
  /// part of keys with positions has none.
  void add_latent(std::string_view down, std::string_view norm, std::int64_t rank,
                  std::int64_t beside) {
    add(product(down, ProductClass::attention_projections, h_, rank + beside, false, false));
    last().divided_by = Module::DividedBy::nobody;
    last().kept = {rank + beside, 0};
    add_norm(norm, rank).again_with = LayerPart::mla_up_proj;
    last().feeds = ProductClass::attention_projections;
    last().casts_for_product = true;
  }

  /// Adds the products that make queries, keys and values of latents. Megatron-LM's mla_up_proj
  /// makes all behind the latents again.
  void add_latents(const LatentAttention& latent) {
    const std::int64_t heads = model_.num_attention_heads;
    const std::int64_t q = model_.query_size(), k = model_.key_size(), v = model_.value_size();
    const bool compressed = latent.q_rank > 0;
    if (compressed) add_latent("q_down", "q_norm", latent.q_rank, 0);
    add(product(compressed ? "q_up" : "q", ProductClass::attention_projections,
                compressed ? latent.q_rank : h_, q, true, false));
    last().kept = {0, q};
    last().feeds = ProductClass::attention;
    last().again_with = LayerPart::mla_up_proj;
    add_latent("kv_down", "kv_norm", latent.kv_rank, latent.rope_dim);
    add(product("kv_up", ProductClass::attention_projections, latent.kv_rank,
                heads * (latent.nope_dim + latent.value_dim), true, false));
    last().kept = {0, k + v};  // keys with the part that heads share
    last().feeds = ProductClass::attention;
    last().again_with = LayerPart::mla_up_proj;
    add({.name = "rotary", .moved = {0, 2 * (q + k)}, .again_with = LayerPart::mla_up_proj});
  }

  void add_attention() {
    const std::int64_t made = model_.attention_output_size();
    const double e = model_.element_bytes();
    add({.name = "core_attention",
         .kind = Module::Kind::attention,
         .of = ProductClass::attention,
         .again_with = LayerPart::core_attn});
    if (f_.sinks) last().vectors = {0, model_.num_attention_heads};
    // The softmax and, with dropout, its output and mask.
    if (!model_.flash_attention) last().pair_bytes = f_.dropout ? 2 * e + 1 : e;
    add(product("projection", ProductClass::attention_projections, made, h_, false,
                f_.has_projection_bias()));
    last().kept = {0, made};  // attention's output, also where attention runs again
    last().narrow_copy = {0, made};
    last().narrow_kept = kNarrowOutput;
    last().sums = !f_.parallel_residual;
  }

  /// Adds an MLP of this width, which `part` recomputes, and its activation function `act`.
  void add_mlp(const std::array<std::string_view, 3>& names, std::int64_t width, LayerParts part,
               LayerParts act) {
    const std::int64_t inner = up_columns(width);
    add(product(names[0], ProductClass::mlp, h_, inner, true, f_.has_mlp_biases()));
    last().kept = {0, inner};
    last().narrow_kept = kNarrowInput;
    last().again_with = part;
    add({.name = names[1],
         .feeds = ProductClass::mlp,
         .moved = {0, inner + width},
         .kept = {0, width},
         .again_with = part | act});
    add(product(names[2], ProductClass::mlp, width, h_, false, f_.has_mlp_biases()));
    last().sums = true;
    last().again_with = part;
  }

  /// Adds a product of every routed expert.
  Module& add_expert_product(std::string_view name, std::int64_t rows, std::int64_t columns,
                             bool by_columns) {
    const Experts& experts = *model_.experts;
    add(product(name, ProductClass::experts, rows, columns, by_columns, f_.has_mlp_biases()));
    last().divided_by = Module::DividedBy::experts;
    last().count = experts.count;
    last().used = experts.top_k;
    last().vectors.whole *= experts.count;
    last().vectors.divided *= experts.count;
    last().again_with = LayerPart::moe;
    last().routed = true;
    return last();
  }

  /// Adds a product with a matrix that every tensor rank has, such as the router's.
  Module& add_scores(std::string_view name, std::int64_t columns, bool bias) {
    add(product(name, ProductClass::router, h_, columns, false, bias));
    last().divided_by = Module::DividedBy::nobody;
    last().again_with = LayerPart::moe;
    return last();
  }

  /// Adds what experts do instead of an MLP. The router's scores are of 32 bits (Megatron-LM's
  /// --moe-router-dtype fp32, DeepSeek-V3's), and so are the probabilities made of them; both are
  /// kept. Probabilities weigh the activations (Megatron-LM's grouped MLP), so that what experts
  /// make is not kept. Where GPUs divide an expert, each has the tokens of all of them.
  void add_experts(const Experts& experts) {
    constexpr double kScoreBytes = 2 * 4;
    const std::int64_t inner = up_columns(experts.width), k = experts.top_k;
    const LayerParts moe = LayerPart::moe;
    const auto scores = static_cast<std::int64_t>(kScoreBytes / model_.element_bytes());
    add_scores("router", experts.count, experts.router_bias).kept = {scores * experts.count, 0};
    add({.name = "dispatch",
         .feeds = ProductClass::experts,
         .moved = {0, 2 * k * h_ * expert_.tensor},
         .kept = {0, k * h_ * expert_.tensor},
         .routed = true,
         .again_with = moe});
    // Copies that came by GPUs are sorted by experts, and what these made is sorted back.
    if (expert_.sorts && experts.count > expert_.degree)
      add({.name = "sorting",
           .moved = {0, 4 * k * h_ * expert_.tensor},
           .routed = true,
           .again_with = moe});
    Module& up = add_expert_product("experts_up", h_, inner, true);
    up.kept = {0, k * inner};
    up.narrow_kept = kNarrowInput;
    add({.name = "experts_activation",
         .feeds = ProductClass::experts,
         .moved = {0, k * (inner + experts.width)},
         .kept = {0, k * experts.width},
         .routed = true,
         .again_with = moe | LayerPart::moe_act});
    add_expert_product("experts_down", experts.width, h_, false);
    add({.name = "combine",
         .moved = {0, (k * expert_.tensor + 1) * h_},
         .routed = true,
         .again_with = moe});
    if (experts.shared_width == 0) return;
    add_mlp({"shared_up", "shared_activation", "shared_down"}, experts.shared_width,
            moe | LayerPart::shared_experts, {});
    if (experts.shared_gate) add_scores("shared_gate", 1, false).kept = {h_, 0};
    add({.name = "shared_addition", .moved = {3 * h_, 0}, .again_with = moe});
  }

  /// Adds what makes one input of the next token's embedding and of what the layers made.
  void add_prediction() {
    add_norm("embedding_norm");
    add_norm("hidden_norm");
    add(product("prediction_projection", ProductClass::attention_projections, 2 * h_, h_, true,
                false));
    last().kept = {h_, 0};
  }

  /// Returns the columns of the matrices that a product's module stands for, one after the other.
  std::vector<std::int64_t> matrices_of(const Module& m) const {
    if (m.name == "qkv") return {model_.query_size(), model_.key_size(), model_.value_size()};
    if (m.name != "up") return {m.columns};
    return std::vector<std::int64_t>(static_cast<std::size_t>(f_.mlp_matrices() - 1),
                                     model_.ffn_hidden_size);
  }

  /// Sets what every_second_product runs again: of products counted from the layer's first, the
  /// second, fourth and so on, and all that is neither a product nor attention, as far as the
  /// backward reads it: not what the layer ends with. Outputs of the other products are kept, read
  /// or not, and attention's. Ranks that divide sequences keep their part of the output of a
  /// product by rows, which is assumed: the list of kept operations names the reduce-scatter, too.
  void divide_products() {
    int products = 0;
    for (Module& m : all_) {
      if (m.kind == Module::Kind::attention) continue;
      m.second_share = 1;
      if (m.kind != Module::Kind::product) continue;
      std::int64_t kept = 0;
      for (const std::int64_t columns : matrices_of(m))
        if (++products % 2 == 1) kept += columns;
      m.second_share = m.name == "down" ? 0 : 1 - real(kept) / real(m.columns);
      m.kept_of_first = m.by_columns ? Elements{0, kept} : Elements{kept, 0};
      if (m.name == "projection") m.kept_of_first += m.kept;
    }
    all_.front().kept_of_first = all_.front().kept;
    if (!f_.dropout) all_.back().second_share = 0;
  }

  const TransformerSpec& model_;
  ExpertParallel expert_;
  LayerForm f_;
  std::int64_t h_;
  std::vector<Module> all_;
};

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

Layer::Layer(const TransformerSpec& model, const ExpertParallel& expert)
    : Layer(model, model.usual_kind(), expert) {}

Layer::Layer(const TransformerSpec& model, LayerKind kind, const ExpertParallel& expert)
    : modules_(LayerOf(model, expert).modules(kind)),
      hidden_size_(model.hidden_size),
      seq_length_(model.seq_length),
      heads_(model.num_attention_heads),
      element_bytes_(model.element_bytes()),
      pairs_(model.attention_pairs()),
      attention_size_(real(model.query_size() + model.attention_output_size()) / 2),
      qkv_size_(model.query_size() + model.key_size() + model.value_size()),
      output_size_(model.attention_output_size()),
      kind_(kind),
      expert_(expert),
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
    sum.parameters += real(m.matrix()) / parts(m, tensor);
    sum.bytes += bytes_of(m.of) * real(m.matrix()) / parts(m, tensor);
  }
  return sum;
}

std::int64_t Layer::matrix_parameters() const {
  return sum(modules_, [](const Module& m) { return m.matrix(); });
}

int Layer::parts(const Module& m, const TensorParallel& tensor) const {
  switch (m.divided_by) {
    case Module::DividedBy::nobody: return 1;
    case Module::DividedBy::experts: return expert_.parts();
    default: return tensor.degree;
  }
}

std::int64_t Layer::parameters(const TensorParallel& tensor) const {
  std::int64_t divided = 0, whole = 0;
  for (const Module& m : modules_) {
    if (m.divided_by == Module::DividedBy::experts) continue;
    (m.divided_by == Module::DividedBy::tensor ? divided : whole) += m.matrix();
    divided += m.vectors.divided;
    whole += m.vectors.whole;
  }
  return divided / tensor.degree + whole + expert_parameters();
}

std::int64_t Layer::expert_parameters() const {
  return sum(modules_, [&](const Module& m) {
    if (m.divided_by != Module::DividedBy::experts) return std::int64_t{0};
    return (m.matrix() + m.vectors.divided) / expert_.parts() + m.vectors.whole / expert_.degree;
  });
}

void Layer::add_shapes(const TensorParallel& tensor,
                       std::set<std::pair<std::int64_t, std::int64_t>>& shapes) const {
  for (const Module& m : modules_) {
    if (m.kind != Module::Kind::product) continue;
    const bool of_experts = m.divided_by == Module::DividedBy::experts;
    const int ranks = of_experts ? expert_.tensor : parts(m, tensor);
    shapes.emplace(m.by_columns ? m.rows : m.rows / ranks,
                   m.by_columns ? m.columns / ranks : m.columns);
  }
}

std::int64_t Layer::idle_parameters() const {
  return sum(modules_, [](const Module& m) {
    if (m.divided_by != Module::DividedBy::experts) return std::int64_t{0};
    return (m.matrix() + m.vectors.divided + m.vectors.whole) / m.count * (m.count - m.used);
  });
}

template <class Share>
LayerWork Layer::work_of(double b, const TensorParallel& tensor, const Share& share_of) const {
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
    const double share = share_of(m);
    if (is_product) follows_product = share > 0;
    if (share == 0) continue;
    work.sums += m.sums ? 1 : 0;
    const double done = share * load(m);
    double moved = done * of_rank(m.moved, element_bytes_);
    if (m.masks) moved += of_rank({hidden_size_, 0}, 1);
    work.moved_bytes += moved;
    if (!follows_product) work.lone_bytes += moved;
    if (m.kind == Module::Kind::attention) {
      work.attention_flops = 4 * b * pairs_ * attention_size_;
      // Queries, keys and values, and the gradient of the output.
      work.cast_bytes += cast({0, qkv_size_}, m.of);
      work.cast_back_bytes += cast({0, output_size_}, m.of);
    }
    if (!is_product) continue;
    const bool repeated = m.divided_by == Module::DividedBy::nobody && !tensor.sequence;
    const double flops =
        done * (2 * tokens(b) * real(m.used_matrix()) * (repeated ? tensor.degree : 1));
    work.product_flops += flops;
    work.class_flops[static_cast<std::size_t>(m.of)] += flops;
    const auto of_operand = [&](const Elements& elements, double bytes) {
      return m.divided_by == Module::DividedBy::nobody ? of_rank(elements, bytes)
                                                       : of_product(elements, bytes);
    };
    work.operand_bytes += share * bytes_of(m.of) * real(m.matrix()) / parts(m, tensor) +
                          load(m) * of_operand(m.input(), bytes_of(m.of)) +
                          done * of_operand(m.result(), element_bytes_);
    const bool norm_casts =
        i > 0 && modules_[i - 1].casts_for_product && facts_of(types_.of(m.of)).amax_passes == 0;
    // A norm reads its input anyhow and leaves its wide output out.
    const double saved = norm_casts && cast_bytes(m.of) > 0 ? 2 * element_bytes_ : 0;
    work.cast_bytes += load(m) * of_rank(m.input(), cast_bytes(m.of) - saved);
    work.cast_back_bytes += load(m) * cast(m.result(), m.of);
    // What is gathered of an input that was cast is transposed for the gradient of the weights.
    if (cast_bytes(m.of) > 0 && bytes_of(m.of) < element_bytes_)
      work.cast_back_bytes +=
          of_operand(m.input(), 2 * bytes_of(m.of)) - of_rank(m.input(), 2 * bytes_of(m.of));
  }
  return work;
}

LayerWork Layer::work(double b, const TensorParallel& tensor) const {
  return work_of(b, tensor, [](const Module&) { return 1; });
}

LayerWork Layer::work_again(double b, const TensorParallel& tensor, LayerParts parts) const {
  const bool second = parts.contains(LayerPart::every_second_product);
  LayerWork again = work_of(b, tensor, [&](const Module& m) {
    return m.again_with.overlaps(parts) ? 1.0 : second ? m.second_share : 0.0;
  });
  if (second) again.sums = 0;  // outputs of reduce-scatters are kept, too
  return again;
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
  const bool second = again.contains(LayerPart::every_second_product);
  for (const Module& m : modules_) {
    if (m.again_with.overlaps(again)) continue;
    if (second && m.kind != Module::Kind::attention) {
      add(m.kept_of_first, element_bytes_);
      continue;
    }
    const bool narrow = types_.narrow_kept && m.narrow_kept > 0;
    const double size = narrow    ? m.narrow_kept
                        : m.feeds ? std::min(element_bytes_, bytes_of(*m.feeds))
                                  : element_bytes_;
    add(m.kept, load(m) * size);
    if (is_narrow(m.of) && !narrow) add(m.narrow_copy, bytes_of(m.of));
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

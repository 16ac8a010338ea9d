// SPDX-License-Identifier: Apache-2.0
#include "hw/transformer_stage.hpp"

#include "base/error.hpp"
#include "hw/expert_layer.hpp"
#include "hw/row_kernels.hpp"
#include "hw/training_data.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <thread>
#include <utility>
#include <vector>

namespace penstock {
namespace {

/// What one op works with.
class Pass {
 public:
  Pass(Math& math, const StageBuffers& b, const TransformerSpec& spec, const TransformerPart& part,
       std::int64_t sequences, const TransformerLayout& layout)
      : math_(math),
        b_(b),
        weights_(b.weights),
        gradients_(b.gradients),
        spec_(spec),
        part_(part),
        tensor_(part.tensor),
        layout_(layout),
        sequences_(sequences),
        rows_(sequences * spec.seq_length),
        own_rows_(tensor_.sequence ? tensor_.part(rows_) : rows_),
        h_(spec.hidden_size),
        own_h_(tensor_.part(spec.hidden_size)),
        heads_(tensor_.part(spec.num_attention_heads)),
        e_(math.element_bytes()) {}

  /// Comes to one of the stage's pieces (TransformerStage::pieces) with its weights, or to add to
  /// its gradients.
  void use_weights(std::size_t piece) { weights_ = b_.weights_of(piece); }
  void use_gradients(std::size_t piece) { gradients_ = b_.gradients_of(piece); }

  void embed(const TokenSource& source) {
    math_.generate_tokens(source, at(layout_.tokens), {});
    // Positions are added by one rank of those that divide the vocabulary.
    math_.embedding(rows_, h_, spec_.seq_length, at(layout_.tokens), weight(layout_.token_table),
                    tensor_.rank == 0 ? weight(layout_.position_table) : Tensor{},
                    at(unsummed(layout_.x[0])));
    sum_over_ranks("embedding", layout_.x[0]);
  }

  void embed_backward(const TokenSource& source) {
    math_.generate_tokens(source, at(layout_.tokens), {});
    const Slot& dx = gathered("embedding", layout_.dx[0], layout_.whole);
    math_.embedding_backward(rows_, h_, spec_.seq_length, at(layout_.tokens), at(dx),
                             gradient(layout_.token_table), gradient(layout_.position_table));
  }

  /// `held`: a backward reads what this makes.
  void layer_forward(std::size_t i, const LayerSlots& l, const Slot& output, bool held) {
    layer_to_norm(i, l);
    const LayerParameters& p = layout_.layer_parameters[i];
    if (p.has_experts()) experts(i, l).forward(weights_, at(l.ln2.y), held);
    if (p.width > 0) mlp_forward(p, l, output);
    if (p.has_experts()) experts(i, l).add_output(at(p.width > 0 ? output : l.ln2.x), at(output));
  }

  void mlp_forward(const LayerParameters& p, const LayerSlots& l, const Slot& output) {
    const Linear w = up(p);
    math_.gemm_with(w.forward(rows_), at(gathered("mlp", l.ln2.y, layout_.whole)), weight(w.weight),
                    at(l.activated), {Epilogue::Kind::bias_gelu, weight(w.bias), at(l.z)});
    summed_linear("mlp", down(p), l.activated, output, l.ln2.x);
  }

  /// All layers that are made again for the backward of the last one.
  void group_to_z(std::size_t first, std::size_t end, const auto& piece_of) {
    for (std::size_t i = first; i + 1 < end; ++i) {
      use_weights(piece_of(i));
      LayerSlots l = layout_.in_backward[i];
      l.activated = layout_.activated_again;
      layer_forward(i, l, layout_.in_backward[i + 1].ln1.x, true);
    }
    use_weights(piece_of(end - 1));
    layer_to_z(end - 1, layout_.in_backward[end - 1]);
  }

  /// As far as z and what experts made, which is all that a backward needs.
  void layer_to_z(std::size_t i, const LayerSlots& l) {
    layer_to_norm(i, l);
    const LayerParameters& p = layout_.layer_parameters[i];
    if (p.has_experts()) experts(i, l).forward(weights_, at(l.ln2.y), true);
    if (p.width > 0) linear(up(p), gathered("mlp", l.ln2.y, layout_.whole), l.z);
  }

  void layer_to_norm(std::size_t i, const LayerSlots& l) {
    const LayerParameters& p = layout_.layer_parameters[i];
    norm(l.ln1, p.gamma1, p.beta1);
    linear(qkv(p), gathered("attention", l.ln1.y, layout_.whole), l.qkv);
    if (spec_.flash_attention) {
      math_.attention(attention(), at(l.qkv), at(l.context), at(l.attention));
    } else {
      probabilities(l);
      context(l);
    }
    summed_linear("attention", projection(p), l.context, l.ln2.x, l.ln1.x);
    norm(l.ln2, p.gamma2, p.beta2);
  }

  void probabilities(const LayerSlots& l) {
    attend(spec_.seq_length, head_size(), qkv_heads(l.qkv, 0), qkv_heads(l.qkv, 1).transposed(),
           score_heads(l.attention));
    math_.attention_softmax(attention_rows(), at(l.attention));
  }

  void layer_backward_input(std::size_t i, const LayerSlots& l) {
    const LayerParameters& p = layout_.layer_parameters[i];
    const LayerGradientSlots& g = layout_.gradients[i];
    if (p.width > 0) {
      math_.gemm_with(down(p).backward_input(rows_), at(gathered("mlp", g.output, g.whole_output)),
                      weight(p.down), at(g.z), {Epilogue::Kind::gelu_backward, {}, at(l.z)});
      summed_backward_input("mlp", up(p), g.z, g.y2);
    }
    if (p.has_experts())
      experts(i, l).backward_input(weights_, at(g.output), at(g.scores), at(g.y2), p.width == 0);
    norm_backward(l.ln2, p.gamma2, g.y2, g.output, g.x2);
    linear_backward_input(projection(p), gathered("attention", g.x2, g.whole_x2), layout_.dcontext);
    attention_backward(l, g.qkv);
    summed_backward_input("attention", qkv(p), g.qkv, g.y1);
    norm_backward(l.ln1, p.gamma1, g.y1, g.x2, g.input);
  }

  void layer_backward_weight(std::size_t i, const LayerSlots& l) {
    const LayerParameters& p = layout_.layer_parameters[i];
    const LayerGradientSlots& g = layout_.gradients[i];
    if (p.width > 0) {
      math_.gelu(rows_ * p.width, at(l.z), at(l.activated));
      linear_backward_weight(down(p), g.whole_output, l.activated);
      linear_backward_weight(up(p), g.z, gathered("mlp", l.ln2.y, layout_.whole));
    }
    if (p.has_experts())
      experts(i, l).backward_weight(gradients_,
                                    b_.expert_gradients ? b_.expert_gradients : gradients_,
                                    at(l.ln2.y), at(g.scores));
    norm_backward_weight(l.ln2, g.y2, p.gamma2, p.beta2);
    linear_backward_weight(projection(p), g.whole_x2, l.context);
    linear_backward_weight(qkv(p), g.qkv, gathered("attention", l.ln1.y, layout_.whole));
    norm_backward_weight(l.ln1, g.y1, p.gamma1, p.beta1);
  }

  void head(const TokenSource& source) {
    const std::int64_t v = tensor_.part(spec_.vocab_size);
    norm(layout_.final_norm, layout_.final_gamma, layout_.final_beta);
    math_.gemm(head_matrix().forward(rows_),
               at(gathered("head", layout_.final_norm.y, layout_.whole)), weight(layout_.head),
               at(layout_.logits));
    math_.generate_tokens(source, {}, at(layout_.targets));
    if (tensor_.degree > 1) return divided_loss(v);
    math_.cross_entropy(rows_, v, at(layout_.logits), at(layout_.targets), at(layout_.row_losses),
                        b_.loss);
    math_.cross_entropy_backward(rows_, v, at(layout_.targets), at(layout_.logits));
  }

  /// Computes the loss of ranks that have `v` columns of the logits each.
  void divided_loss(std::int64_t v) {
    using Numbers = StageExchange::Numbers;
    const Tensor logits = at(layout_.logits), targets = at(layout_.targets);
    const Tensor maxima = at(layout_.row_maxima), sums = at(layout_.row_sums);
    const Tensor target_logits = at(layout_.row_losses);
    const auto all_reduce = [&](Tensor column, Numbers numbers) {
      b_.exchange({"loss", Collective::all_reduce, column, rows_, numbers});
    };
    math_.row_maxima(rows_, v, logits, maxima);
    all_reduce(maxima, Numbers::largest);
    math_.vocabulary_sums(rows_, v, logits, targets, maxima, sums, target_logits);
    all_reduce(target_logits, Numbers::fp32);
    all_reduce(sums, Numbers::fp32);
    math_.vocabulary_loss(rows_, maxima, sums, target_logits, b_.loss);
    math_.vocabulary_backward(rows_, v, targets, maxima, sums, logits);
  }

  void head_backward_input() {
    summed_backward_input("head", head_matrix(), layout_.logits, layout_.final_dy);
    math_.layer_norm_backward(own_rows_, h_, at(layout_.final_dy), at(layout_.final_norm.x),
                              weight(layout_.final_gamma), at(layout_.final_norm.mean),
                              at(layout_.final_norm.rstd), {}, at(layout_.dx.back()));
  }

  void head_backward_weight() {
    math_.gemm(head_matrix().backward_weight(rows_), at(layout_.logits),
               at(gathered("head", layout_.final_norm.y, layout_.whole)), gradient(layout_.head));
    norm_backward_weight(layout_.final_norm, layout_.final_dy, layout_.final_gamma,
                         layout_.final_beta);
  }

  void keep_output_gradient() {
    math_.copy(own_rows_ * h_ * e_, b_.output_gradient, at(layout_.dx.back()));
  }

 private:
  Tensor at(const Slot& slot) const { return slot.in(b_); }
  Tensor weight(std::int64_t offset) const { return weights_.at(offset * e_); }
  Tensor gradient(std::int64_t offset) const { return gradients_.at(offset * 4); }

  ExpertLayer experts(std::size_t i, const LayerSlots& l) const {
    return {math_, b_, spec_, part_.expert, own_rows_, i, layout_.layer_parameters[i], l.router};
  }

  // This rank's parts of the matrices.
  Linear qkv(const LayerParameters& p) const { return {3 * own_h_, h_, p.qkv, p.qkv_bias}; }
  Linear projection(const LayerParameters& p) const {
    return {h_, own_h_, p.projection, p.projection_bias};
  }
  Linear up(const LayerParameters& p) const { return {p.width, h_, p.up, p.up_bias}; }
  Linear down(const LayerParameters& p) const { return {h_, p.width, p.down, p.down_bias}; }
  Linear head_matrix() const { return {tensor_.part(spec_.vocab_size), h_, layout_.head, -1}; }

  /// This rank's part of all rows.
  Tensor own_part(const Slot& all) const { return at(all).at(tensor_.begin(rows_) * h_ * e_); }
  /// Returns where a sum of all ranks is before it is summed.
  const Slot& unsummed(const Slot& sum) const { return tensor_.sequence ? layout_.whole : sum; }
  /// Sums what each rank has in unsummed(sum).
  void sum_over_ranks(std::string_view name, const Slot& sum) {
    if (tensor_.degree == 1) return;
    const Collective what = tensor_.sequence ? Collective::reduce_scatter : Collective::all_reduce;
    b_.exchange({name, what, at(unsummed(sum)), rows_ * h_});
    if (tensor_.sequence) math_.copy(own_rows_ * h_ * e_, own_part(layout_.whole), at(sum));
  }
  /// Returns where all rows are: where they are divided, `into` after an all-gather.
  const Slot& gathered(std::string_view name, const Slot& own, const Slot& into) {
    if (!tensor_.sequence) return own;
    math_.copy(own_rows_ * h_ * e_, at(own), own_part(into));
    b_.exchange({name, Collective::all_gather, at(into), rows_ * h_});
    return into;
  }
  /// y = the ranks' sum of x W^T, + bias + `residual`.
  void summed_linear(std::string_view name, const Linear& l, const Slot& x, const Slot& y,
                     const Slot& residual) {
    if (tensor_.degree == 1) return linear(l, x, y, residual);
    math_.gemm(l.forward(rows_), at(x), weight(l.weight), at(unsummed(y)));
    sum_over_ranks(name, y);
    math_.add_bias(own_rows_, h_, weight(l.bias), at(residual), at(y));
  }
  void summed_backward_input(std::string_view name, const Linear& l, const Slot& dy,
                             const Slot& dx) {
    linear_backward_input(l, dy, unsummed(dx));
    sum_over_ranks(name, dx);
  }

  void norm(const NormSlots& n, std::int64_t gamma, std::int64_t beta) {
    math_.layer_norm(own_rows_, h_, at(n.x), weight(gamma), weight(beta), at(n.y), at(n.mean),
                     at(n.rstd));
  }
  void norm_backward(const NormSlots& n, std::int64_t gamma, const Slot& dy, const Slot& residual,
                     const Slot& dx) {
    math_.layer_norm_backward(own_rows_, h_, at(dy), at(n.x), weight(gamma), at(n.mean), at(n.rstd),
                              at(residual), at(dx));
  }
  void norm_backward_weight(const NormSlots& n, const Slot& dy, std::int64_t gamma,
                            std::int64_t beta) {
    math_.layer_norm_backward_weight(own_rows_, h_, at(dy), at(n.x), at(n.mean), at(n.rstd),
                                     gradient(gamma), gradient(beta));
  }

  /// y = x W^T + bias, + `residual` if given.
  void linear(const Linear& l, const Slot& x, const Slot& y, Tensor residual = {}) {
    math_.gemm_with(l.forward(rows_), at(x), weight(l.weight), at(y),
                    {Epilogue::Kind::bias, weight(l.bias), {}, residual});
  }
  void linear(const Linear& l, const Slot& x, const Slot& y, const Slot& residual) {
    linear(l, x, y, at(residual));
  }
  void linear_backward_input(const Linear& l, const Slot& dy, const Slot& dx) {
    math_.gemm(l.backward_input(rows_), at(dy), weight(l.weight), at(dx));
  }
  void linear_backward_weight(const Linear& l, const Slot& dy, const Slot& x) {
    math_.gemm_with(l.backward_weight(rows_), at(dy), at(x), gradient(l.weight),
                    {Epilogue::Kind::bias_gradient, gradient(l.bias)});
  }

  std::int64_t head_size() const { return h_ / spec_.num_attention_heads; }
  Attention attention() const {
    return {sequences_, heads_, spec_.seq_length, head_size(), spec_.family == Family::gpt};
  }
  AttentionRows attention_rows() const {
    const auto d = static_cast<float>(head_size());
    return {rows_ * heads_, spec_.seq_length, spec_.family == Family::gpt, 1.0F / std::sqrt(d)};
  }

  /// A matrix of one head of a sequence: the next head's is `stride` on, the next sequence's
  /// `sequence_stride`.
  struct Heads {
    Tensor start;
    std::int64_t leading, stride, sequence_stride;
    bool transpose = false;

    Heads transposed() const { return {start, leading, stride, sequence_stride, true}; }
  };
  Heads context_heads(const Slot& slot) const {
    return {at(slot), own_h_, head_size(), spec_.seq_length * own_h_};
  }
  /// part 0: queries, 1: keys, 2: values.
  Heads qkv_heads(const Slot& slot, std::int64_t part) const {
    return {at(slot).at(part * own_h_ * e_), 3 * own_h_, head_size(),
            spec_.seq_length * 3 * own_h_};
  }
  Heads score_heads(const Slot& slot) const {
    const std::int64_t s = spec_.seq_length;
    return {at(slot), s, s * s, heads_ * s * s};
  }

  /// C = op(A) op(B) for every head of every sequence. No one stride leads to all of them, so what
  /// there are more of is a batch: as many products are issued as there are of the others.
  void attend(std::int64_t n, std::int64_t k, const Heads& a, const Heads& b, const Heads& c) {
    const bool heads = heads_ >= sequences_;
    const auto inner = [=](const Heads& x) { return heads ? x.stride : x.sequence_stride; };
    const auto outer = [=](const Heads& x) { return heads ? x.sequence_stride : x.stride; };
    Gemm g;
    g.m = spec_.seq_length, g.n = n, g.k = k;
    g.transpose_a = a.transpose, g.transpose_b = b.transpose;
    g.lda = a.leading, g.ldb = b.leading, g.ldc = c.leading;
    g.batch = heads ? heads_ : sequences_;
    g.stride_a = inner(a), g.stride_b = inner(b), g.stride_c = inner(c);
    const std::int64_t products = heads ? sequences_ : heads_;
    for (std::int64_t i = 0; i < products; ++i) {
      const auto at = [=, this](const Heads& x) { return x.start.at(i * outer(x) * e_); };
      math_.gemm(g, at(a), at(b), at(c));
    }
  }

  void context(const LayerSlots& l) {
    attend(head_size(), spec_.seq_length, score_heads(l.attention), qkv_heads(l.qkv, 2),
           context_heads(l.context));
  }

  void attention_backward(const LayerSlots& l, const Slot& dqkv) {
    if (!spec_.flash_attention) return probabilities_backward(l, dqkv);
    math_.attention_backward(attention(), at(l.qkv), at(l.context), at(l.attention),
                             at(layout_.dcontext), at(layout_.dattention), at(dqkv));
  }

  void probabilities_backward(const LayerSlots& l, const Slot& dqkv) {
    const std::int64_t s = spec_.seq_length;
    const std::int64_t d = head_size();
    const Heads dcontext = context_heads(layout_.dcontext);
    const Heads dscores = score_heads(layout_.dattention);
    attend(s, d, dcontext, qkv_heads(l.qkv, 2).transposed(), dscores);
    attend(d, s, score_heads(l.attention).transposed(), dcontext, qkv_heads(dqkv, 2));
    math_.attention_softmax_backward(attention_rows(), at(l.attention), dscores.start);
    attend(d, s, dscores, qkv_heads(l.qkv, 1), qkv_heads(dqkv, 0));
    attend(d, s, dscores.transposed(), qkv_heads(l.qkv, 0), qkv_heads(dqkv, 1));
  }

  Math& math_;
  const StageBuffers& b_;
  Tensor weights_, gradients_;
  const TransformerSpec& spec_;
  const TransformerPart& part_;
  const TensorRank& tensor_;
  const TransformerLayout& layout_;
  std::int64_t sequences_, rows_, own_rows_, h_, own_h_, heads_;
  int e_;
};

/// normal(0, 0.02) by Box and Muller: the two halves of a hash make two numbers. `begin` is even.
void fill_normal_part(std::span<float> weights, std::size_t begin, std::size_t end,
                      std::uint64_t seed, std::uint64_t stream) {
  constexpr float unit = 0x1p-24F;
  for (std::size_t i = begin; i < end; i += 2) {
    const std::uint64_t h = kernels::hash(seed, stream, i / 2);
    const float above_0 = static_cast<float>((h >> 40) + 1) * unit;
    const float angle = static_cast<float>(h & 0xffffffU) * (unit * 2 * std::numbers::pi_v<float>);
    const float radius = 0.02F * std::sqrt(-2 * std::log(above_0));
    weights[i] = radius * std::cos(angle);
    if (i + 1 < end) weights[i + 1] = radius * std::sin(angle);
  }
}

/// A number costs 10 ns, so a stage of billions on one core outlasts a short loan of a GPU.
void fill_normal(std::span<float> weights, std::uint64_t seed, std::uint64_t stream) {
  constexpr std::size_t kEach = std::size_t{1} << 20;  // below it a thread costs more than it saves
  const std::size_t most = std::max(1U, std::thread::hardware_concurrency());
  const std::size_t parts = std::clamp<std::size_t>(weights.size() / kEach, 1, most);
  const std::size_t each = (weights.size() / parts + 1) / 2 * 2;
  std::vector<std::jthread> others;
  for (std::size_t part = 1; part < parts; ++part) {
    const std::size_t end = part + 1 == parts ? weights.size() : (part + 1) * each;
    others.emplace_back(fill_normal_part, weights, part * each, end, seed, stream);
  }
  fill_normal_part(weights, 0, parts == 1 ? weights.size() : each, seed, stream);
}

}  // namespace

std::string why_not_executable(const TransformerSpec& spec) {
  if (spec.family == Family::llama) {
    return "the llama family cannot be executed (rotary positions, RMS norm, gated MLP): "
           "use a gpt or bert model";
  }
  if (spec.latent || spec.mtp_layers > 0) {
    return "latent attention and layers that predict further tokens cannot be executed";
  }
  if (spec.experts && (spec.experts->shared_gate || spec.experts->groups > 1)) {
    return "experts are executed with a router over all of them and without a gate: leave out "
           "shared_expert_gate and expert_groups";
  }
  LayerForm form = spec.form();
  form.dropout = true;  // which is not executed anyway
  if (form != form_of(spec.family) || spec.head_dim || spec.sliding_window ||
      spec.extra_parameters) {
    return "only the layers of the families gpt and bert can be executed: leave out the model's "
           "keys that make others";
  }
  if (spec.num_query_groups != spec.num_attention_heads) {
    return "grouped queries cannot be executed: num_query_groups must equal num_attention_heads";
  }
  if (spec.hidden_size % spec.num_attention_heads != 0) {
    return "hidden_size must be a multiple of num_attention_heads";
  }
  if (spec.flash_attention && spec.hidden_size / spec.num_attention_heads > kMostHeadSize) {
    return "flash attention is executed for heads of at most " + std::to_string(kMostHeadSize) +
           " elements: set flash_attention: false";
  }
  return {};
}

TransformerStage::TransformerStage(const TransformerSpec& spec, const TransformerPart& part,
                                   std::int64_t microbatch_size, const Recomputation& recompute,
                                   int element_bytes, const TrainingSpec& training,
                                   std::shared_ptr<const std::string> text,
                                   std::vector<double> router_start)
    : spec_(spec),
      part_(part),
      microbatch_size_(microbatch_size),
      recompute_(recompute),
      training_(training),
      text_(std::move(text)),
      router_start_(std::move(router_start)),
      layout_(spec, part, microbatch_size, recompute, element_bytes) {
  invariant(why_not_executable(spec).empty(), "the transformer can be executed");
  invariant(part.layers > 0 || part.first || part.last, "a stage has something to do");
}

void TransformerStage::initialize(std::span<float> weights) const {
  invariant(std::ssize(weights) == layout_.sizes.parameters, "one float per parameter");
  for (const Parameter& p : layout_.parameters) {
    const auto piece =
        weights.subspan(static_cast<std::size_t>(p.offset), static_cast<std::size_t>(p.elements));
    if (p.start == Parameter::Start::normal) {
      if (part_.tensor.degree == 1 || p.cut.elements() == p.cut.rows * p.cut.cols) {
        fill_normal(piece, training_.seed, p.stream);
        continue;
      }
      std::vector<float> whole(static_cast<std::size_t>(p.cut.rows * p.cut.cols));
      fill_normal(whole, training_.seed, p.stream);
      for (std::size_t i = 0; i < piece.size(); ++i)
        piece[i] = whole[static_cast<std::size_t>(p.cut.whole(static_cast<std::int64_t>(i)))];
    } else {
      std::ranges::fill(piece, p.start == Parameter::Start::one ? 1.0F : 0.0F);
    }
  }
  for (const LayerParameters& p : layout_.layer_parameters)
    for (std::size_t e = 0; p.router_bias >= 0 && e < router_start_.size(); ++e)
      weights[static_cast<std::size_t>(p.router_bias) + e] = static_cast<float>(router_start_[e]);
}

TokenSource TransformerStage::tokens(std::uint32_t microbatch) const {
  TokenSource source = token_source(training_, text_.get(), spec_, microbatch_size_, microbatch);
  source.first_sequence = part_.first_sequence;
  if (part_.tensor.degree == 1) return source;
  source.first = part_.tensor.begin(spec_.vocab_size);
  source.count = part_.tensor.part(spec_.vocab_size);
  return source;
}

/// Returns the number of a layer's piece, or (-1) of the embedding's.
std::size_t TransformerStage::piece_of(int layer) const {
  return static_cast<std::size_t>(part_.layers - 1 - layer + (part_.last ? 1 : 0));
}

void TransformerStage::forward(Math& math, const StageBuffers& b, std::uint32_t microbatch) const {
  Pass pass(math, b, spec_, part_, microbatch_size_, layout_);
  if (part_.first) {
    pass.use_weights(piece_of(-1));
    pass.embed(tokens(microbatch));
  }
  for (std::size_t i = 0; i < layout_.in_forward.size(); ++i) {
    pass.use_weights(piece_of(static_cast<int>(i)));
    const bool recomputed = static_cast<int>(i) < recompute_.recomputed(part_.layers);
    pass.layer_forward(i, layout_.in_forward[i], layout_.x[i + 1], !recomputed);
  }
  if (!part_.last) return;
  pass.use_weights(0);
  pass.head(tokens(microbatch));
}

void TransformerStage::backward_input(Math& math, const StageBuffers& b, std::uint32_t) const {
  Pass pass(math, b, spec_, part_, microbatch_size_, layout_);
  if (part_.last) {
    pass.use_weights(0);
    pass.head_backward_input();
  } else {
    pass.keep_output_gradient();
  }
  const auto recomputed = static_cast<std::size_t>(recompute_.recomputed(part_.layers));
  const auto group = static_cast<std::size_t>(recompute_.group(part_.layers));
  const bool selective = recompute_.granularity == Recompute::selective && !spec_.flash_attention;
  for (std::size_t i = layout_.in_backward.size(); i-- > 0;) {
    const LayerSlots& layer = layout_.in_backward[i];
    const bool ends_group = i + 1 == recomputed || (i + 1) % group == 0;
    const auto piece = [&](std::size_t layer) { return piece_of(static_cast<int>(layer)); };
    if (i < recomputed && ends_group) pass.group_to_z(i - i % group, i + 1, piece);
    pass.use_weights(piece(i));
    if (selective) pass.probabilities(layer);
    pass.layer_backward_input(i, layer);
  }
}

void TransformerStage::backward_weight(Math& math, const StageBuffers& b,
                                       std::uint32_t microbatch) const {
  Pass pass(math, b, spec_, part_, microbatch_size_, layout_);
  std::size_t piece = 0;
  const auto done = [&] {
    if (b.piece_done) b.piece_done(piece);
    ++piece;
  };
  if (part_.last) {
    pass.use_gradients(piece);
    pass.head_backward_weight();
    done();
  }
  for (std::size_t i = layout_.in_backward.size(); i-- > 0;) {
    pass.use_gradients(piece);
    pass.layer_backward_weight(i, layout_.in_backward[i]);
    done();
  }
  if (part_.first) {
    pass.use_gradients(piece);
    pass.embed_backward(tokens(microbatch));
    done();
  }
  if (layout_.sizes.expert_parameters > 0) done();
}

std::vector<GradientPiece> TransformerStage::partial_pieces() const {
  std::vector<GradientPiece> norms;
  if (!part_.tensor.sequence) return norms;
  for (const LayerParameters& p : layout_.layer_parameters) {
    norms.push_back({p.gamma1, p.qkv});
    norms.push_back({p.gamma2, p.up});
  }
  if (part_.last) norms.push_back({layout_.final_gamma, layout_.head});
  return norms;
}

std::vector<GradientPiece> TransformerStage::pieces() const {
  std::vector<GradientPiece> pieces;
  std::int64_t end = layout_.sizes.parameters;
  const auto down_to = [&](std::int64_t first) {
    pieces.push_back({first, std::exchange(end, first)});
  };
  if (part_.last) down_to(layout_.final_gamma);
  for (std::size_t i = layout_.layer_parameters.size(); i-- > 0;)
    down_to(layout_.layer_parameters[i].gamma1);
  if (part_.first) down_to(layout_.sizes.expert_parameters);
  if (end > 0) down_to(0);  // experts, whichever layer's
  return pieces;
}

}  // namespace penstock

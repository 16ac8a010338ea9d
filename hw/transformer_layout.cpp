// SPDX-License-Identifier: Apache-2.0
#include "hw/transformer_layout.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace penstock {
namespace {

MatrixCut uncut(std::int64_t rows, std::int64_t cols) {
  return {.rows = rows, .cols = cols, .own_rows = rows, .own_cols = cols};
}
/// Returns the part of a matrix that a rank has where they divide what it makes, in so many blocks.
MatrixCut cut_rows(const TensorRank& t, std::int64_t rows, std::int64_t cols, int blocks = 1) {
  MatrixCut cut = uncut(rows, cols);
  cut.blocks = blocks;
  cut.first_row = t.begin(rows / blocks);
  cut.own_rows = t.part(rows / blocks);
  return cut;
}
/// Returns the part where they divide what it reads.
MatrixCut cut_columns(const TensorRank& t, std::int64_t rows, std::int64_t cols) {
  MatrixCut cut = uncut(rows, cols);
  cut.first_col = t.begin(cols);
  cut.own_cols = t.part(cols);
  return cut;
}

/// Appends parameters and returns their offsets.
class ParameterAllocator {
 public:
  explicit ParameterAllocator(std::vector<Parameter>& parameters) : parameters_(parameters) {}

  /// What follows belongs to this unit: 0 embedding, 1 + layer, or the head.
  void begin(std::string unit, std::uint64_t number) {
    unit_ = std::move(unit);
    stream_ = number << 8;
  }
  std::int64_t place(const char* name, const MatrixCut& cut, Parameter::Start start) {
    const std::int64_t offset = count_;
    parameters_.push_back({unit_ + " " + name, offset, cut.elements(), start, cut, stream_++});
    count_ += cut.elements();
    return offset;
  }
  std::int64_t matrix(const char* name, const MatrixCut& cut) {
    return place(name, cut, Parameter::Start::normal);
  }
  std::int64_t gamma(const char* name, std::int64_t n) {
    return place(name, uncut(n, 1), Parameter::Start::one);
  }
  std::int64_t bias(const char* name, const MatrixCut& cut) {
    return place(name, cut, Parameter::Start::zero);
  }
  std::int64_t count() const { return count_; }

 private:
  std::vector<Parameter>& parameters_;
  std::string unit_;
  std::uint64_t stream_ = 0;
  std::int64_t count_ = 0;
};

constexpr std::uint64_t kHeadUnit = 1ULL << 32;

/// Places the experts of a stage's layers, or of one: expert by expert, each those of all layers.
class ExpertPlaces {
 public:
  ExpertPlaces(const TransformerSpec& spec, const ExpertRank& rank) : rank_(rank) {
    if (!spec.experts) return;
    h_ = spec.hidden_size;
    f_ = spec.experts->width;
    first_ = rank.first_of(spec.experts->count);
    count_ = spec.experts->count / rank.parts();
  }
  std::int64_t each() const { return 2 * h_ * f_ + f_ + h_; }

  void place(const std::vector<int>& layers, ParameterAllocator& allocator,
             std::vector<WeightMatrix>& matrices) const {
    for (int expert = first_; expert < first_ + count_; ++expert)
      for (const int layer : layers) place_expert(layer, expert, allocator, matrices);
  }

 private:
  void place_expert(int layer, int expert, ParameterAllocator& allocator,
                    std::vector<WeightMatrix>& matrices) const {
    constexpr std::uint64_t kExperts = 1ULL << 40;
    allocator.begin(
        "layer " + std::to_string(layer) + " expert " + std::to_string(expert),
        kExperts + (static_cast<std::uint64_t>(layer) << 20) + static_cast<std::uint64_t>(expert));
    matrices.push_back({allocator.matrix("up", uncut(f_, h_)), f_, h_});
    allocator.bias("up bias", uncut(f_, 1));
    matrices.push_back({allocator.matrix("down", uncut(h_, f_)), h_, f_});
    allocator.bias("down bias", uncut(h_, 1));
  }

  ExpertRank rank_;
  std::int64_t h_ = 0, f_ = 0;
  int first_ = 0, count_ = 0;
};

void place_mlp(ParameterAllocator& allocator, const TensorRank& t, std::int64_t h, std::int64_t f,
               LayerParameters& at) {
  at.width = t.part(f);
  at.up = at.up_bias = at.down = at.down_bias = allocator.count();
  if (f == 0) return;
  at.up = allocator.matrix("up", cut_rows(t, f, h));
  at.up_bias = allocator.bias("up bias", cut_rows(t, f, 1));
  at.down = allocator.matrix("down", cut_columns(t, h, f));
  at.down_bias = allocator.bias("down bias", uncut(h, 1));
}

LayerParameters place_layer(ParameterAllocator& allocator, const TensorRank& t,
                            const TransformerSpec& spec, bool has_experts) {
  const std::int64_t h = spec.hidden_size;
  LayerParameters at{};
  at.gamma1 = allocator.gamma("ln1 gamma", h);
  at.beta1 = allocator.bias("ln1 beta", uncut(h, 1));
  at.qkv = allocator.matrix("qkv", cut_rows(t, 3 * h, h, 3));
  at.qkv_bias = allocator.bias("qkv bias", cut_rows(t, 3 * h, 1, 3));
  at.projection = allocator.matrix("projection", cut_columns(t, h, h));
  at.projection_bias = allocator.bias("projection bias", uncut(h, 1));
  at.gamma2 = allocator.gamma("ln2 gamma", h);
  at.beta2 = allocator.bias("ln2 beta", uncut(h, 1));
  if (has_experts) {
    at.router = allocator.matrix("router", uncut(spec.experts->count, h));
    if (spec.experts->router_bias)
      at.router_bias = allocator.bias("router bias", uncut(spec.experts->count, 1));
  }
  place_mlp(allocator, t, h, has_experts ? spec.experts->shared_width : spec.ffn_hidden_size, at);
  return at;
}

void place_parameters(TransformerLayout& layout, const TransformerSpec& spec,
                      const TransformerPart& part) {
  const std::int64_t h = spec.hidden_size;
  const TensorRank& t = part.tensor;
  ParameterAllocator allocator(layout.parameters);
  const ExpertPlaces experts(spec, part.expert);
  std::vector<WeightMatrix>& matrices = layout.sizes.matrices;
  std::vector<int> with_experts;
  for (int i = part.first_layer; i < part.first_layer + part.layers; ++i)
    if (spec.has_experts(i)) with_experts.push_back(i);
  if (part.expert.apart) experts.place(with_experts, allocator, matrices);
  layout.sizes.expert_parameters = allocator.count();
  if (part.first) {
    allocator.begin("embedding", 0);
    layout.token_table = allocator.matrix("tokens", cut_rows(t, spec.vocab_size, h));
    layout.position_table = allocator.matrix("positions", uncut(spec.seq_length, h));
  }
  std::int64_t before = 0;  // layers with experts
  for (int i = part.first_layer; i < part.first_layer + part.layers; ++i) {
    allocator.begin("layer " + std::to_string(i), 1 + static_cast<std::uint64_t>(i));
    LayerParameters p = place_layer(allocator, t, spec, spec.has_experts(i));
    for (std::int64_t third = 0; third < 3; ++third)
      matrices.push_back({p.qkv + third * h * h, h, h});
    matrices.push_back({p.projection, h, h});
    if (p.has_experts()) matrices.push_back({p.router, spec.experts->count, h});
    if (p.width > 0) {
      matrices.push_back({p.up, p.width, h});
      matrices.push_back({p.down, h, p.width});
    }
    if (p.has_experts() && part.expert.apart) {
      p.experts = before++ * experts.each();
      p.next_expert = std::ssize(with_experts) * experts.each();
    } else if (p.has_experts()) {
      p.experts = allocator.count();
      p.next_expert = experts.each();
      experts.place({i}, allocator, matrices);
    }
    layout.layer_parameters.push_back(p);
  }
  if (part.last) {
    allocator.begin("head", kHeadUnit);
    layout.final_gamma = allocator.gamma("ln gamma", h);
    layout.final_beta = allocator.bias("ln beta", uncut(h, 1));
    layout.head = allocator.matrix("matrix", cut_rows(t, spec.vocab_size, h));
  }
  layout.sizes.parameters = allocator.count();
}

/// Places buffers of a microbatch one after the other in each area.
class SlotAllocator {
 public:
  SlotAllocator(const TransformerSpec& spec, const TensorRank& tensor, std::int64_t microbatch_size,
                int element_bytes)
      : rows_(microbatch_size * spec.seq_length),
        own_rows_(tensor.sequence ? tensor.part(rows_) : rows_),
        hidden_(spec.hidden_size),
        element_bytes_(element_bytes) {}

  Slot bytes(Area area, std::int64_t size) {
    std::int64_t& cursor = used_[static_cast<std::size_t>(area)];
    const Slot slot{area, cursor};
    cursor += (size + 255) / 256 * 256;
    workspace_peak_ = std::max(workspace_peak_, used(Area::workspace));
    return slot;
  }
  /// Working elements, cols for each row that this rank has.
  Slot own_matrix(Area area, std::int64_t cols) {
    return bytes(area, own_rows_ * cols * element_bytes_);
  }
  /// int32 or fp32, so many for each row that this rank has.
  Slot own_columns(Area area, std::int64_t cols) { return bytes(area, own_rows_ * cols * 4); }
  /// rows x cols working elements.
  Slot matrix(Area area, std::int64_t cols) { return bytes(area, rows_ * cols * element_bytes_); }
  /// Returns a slot as wide as the model, for this rank's rows.
  Slot hidden(Area area) { return bytes(area, own_rows_ * hidden_ * element_bytes_); }
  /// One fp32 or int32 a row.
  Slot column(Area area) { return bytes(area, rows_ * 4); }
  NormSlots norm(Slot x, Area area) {
    NormSlots n;
    n.x = x;
    n.mean = bytes(area, own_rows_ * 4);
    n.rstd = bytes(area, own_rows_ * 4);
    n.y = hidden(area);
    return n;
  }

  std::int64_t used(Area area) const { return used_[static_cast<std::size_t>(area)]; }
  /// Sets aside what is used of the workspace, in every phase.
  void reserve_workspace() { reserved_ = used(Area::workspace); }
  /// The workspace from its start again; its high water stays.
  void reuse_workspace() { used_[static_cast<std::size_t>(Area::workspace)] = reserved_; }
  /// The high water so far; the next phase of the microbatch begins.
  std::int64_t end_phase() {
    reuse_workspace();
    return std::exchange(workspace_peak_, reserved_);
  }

 private:
  std::int64_t rows_, own_rows_, hidden_;
  int element_bytes_;
  std::array<std::int64_t, 8> used_{};
  std::int64_t workspace_peak_ = 0, reserved_ = 0;
};

class MicrobatchAllocator {
 public:
  MicrobatchAllocator(TransformerLayout& layout, const TransformerSpec& spec,
                      const TransformerPart& part, std::int64_t microbatch_size,
                      const Recomputation& recompute, int element_bytes)
      : layout_(layout),
        spec_(spec),
        part_(part),
        selective_(recompute.granularity == Recompute::selective && !spec.flash_attention),
        layers_(static_cast<std::size_t>(part.layers)),
        recomputed_(static_cast<std::size_t>(recompute.recomputed(part.layers))),
        group_(static_cast<std::size_t>(recompute.group(part.layers))),
        slots_(spec, part.tensor, microbatch_size, element_bytes),
        hidden_(part.tensor.part(spec.hidden_size)),
        vocab_(part.tensor.part(spec.vocab_size)),
        message_bytes_(microbatch_size * spec.seq_length * spec.hidden_size * element_bytes /
                       (part.tensor.sequence ? part.tensor.degree : 1)),
        attention_bytes_(microbatch_size * part.tensor.part(spec.num_attention_heads) *
                         spec.seq_length *
                         (spec.flash_attention ? 4 : spec.seq_length * element_bytes)) {}

  void place() {
    if (part_.tensor.sequence) {
      layout_.whole = slots_.matrix(Area::workspace, spec_.hidden_size);
      slots_.reserve_workspace();
    }
    begin_forward_layer();
    for (std::size_t i = 0; i <= layers_; ++i) place_between(i);
    slots_.reuse_workspace();
    if (part_.last) place_head();
    place_forward();
    place_backward_input();
    place_backward_weight();
    StageSizes& sizes = layout_.sizes;
    sizes.input_bytes = part_.first ? 0 : message_bytes_;
    sizes.output_bytes = part_.last ? 0 : message_bytes_;
    sizes.saved_bytes = slots_.used(Area::saved);
    sizes.saved_for_weight_bytes = slots_.used(Area::saved_for_weight);
    sizes.kept_bytes = slots_.used(Area::kept);
    sizes.weight_needs_input = !part_.first;
  }

 private:
  /// Is a layer's input made again, too?
  bool within_group(std::size_t i) const { return i < recomputed_ && i % group_ != 0; }

  /// The workspace of F: what goes on within a group is one layer's output and the next one's.
  void begin_forward_layer() {
    slots_.reuse_workspace();
    if (group_ > 1)
      for (Slot& slot : passed_on_) slot = slots_.hidden(Area::workspace);
  }

  /// W reads the gradient of the output after its message has gone, so it is in `kept` too.
  void place_between(std::size_t i) {
    const bool from_before = i == 0 && !part_.first;
    const bool goes_on = i == layers_ && !part_.last;
    layout_.x.push_back(from_before       ? Slot{Area::input, 0}
                        : goes_on         ? Slot{Area::output, 0}
                        : within_group(i) ? passed_on_[i % 2]
                                          : slots_.hidden(Area::saved_for_weight));
    layout_.dx.push_back(from_before ? Slot{Area::input_gradient, 0} : slots_.hidden(Area::kept));
  }

  void place_head() {
    layout_.final_norm = slots_.norm(layout_.x[layers_], Area::saved_for_weight);
    layout_.final_dy = slots_.hidden(Area::kept);
    layout_.logits = slots_.matrix(Area::saved_for_weight, vocab_);
  }

  /// `saved`: of queries, keys, values and what experts made; of the probabilities of attention.
  LayerSlots layer(std::size_t i, const Slot& x, Area for_weight, Area saved, Area attention) {
    const LayerParameters& p = layout_.layer_parameters[i];
    LayerSlots l;
    l.ln1 = slots_.norm(x, for_weight);
    l.qkv = slots_.matrix(saved, 3 * hidden_);
    l.attention = slots_.bytes(attention, attention_bytes_);
    l.context = slots_.matrix(for_weight, hidden_);
    l.ln2 = slots_.norm(slots_.hidden(for_weight), for_weight);
    l.z = slots_.matrix(for_weight, p.width);
    if (p.has_experts()) l.router = router(saved);
    return l;
  }

  RouterSlots router(Area saved) {
    const Experts& experts = *spec_.experts;
    RouterSlots r;
    r.probabilities = slots_.own_matrix(saved, experts.count);
    r.chosen = slots_.own_columns(saved, experts.top_k);
    r.places = slots_.own_columns(saved, experts.top_k);
    r.back = slots_.own_matrix(saved, experts.top_k * spec_.hidden_size);
    return r;
  }
  /// What a layer with experts takes of the workspace while it sends tokens.
  void place_sent(RouterSlots& r) {
    const Experts& experts = *spec_.experts;
    r.copies = slots_.own_matrix(Area::workspace, experts.top_k * spec_.hidden_size);
    for (Slot* counts : {&r.counts, &r.counts_here})
      *counts = slots_.bytes(Area::workspace, std::int64_t{experts.count} * 4);
  }

  void place_forward() {
    if (part_.first) layout_.tokens = slots_.column(Area::workspace);
    for (std::size_t i = 0; i < layers_; ++i) {
      begin_forward_layer();
      layout_.in_forward.push_back(forward_layer(i));
      layout_.in_forward[i].activated = activated(i);
      if (layout_.layer_parameters[i].has_experts()) place_sent(layout_.in_forward[i].router);
    }
    slots_.reuse_workspace();
    if (part_.last) {
      layout_.targets = slots_.column(Area::workspace);
      layout_.row_losses = slots_.column(Area::workspace);
      if (part_.tensor.degree > 1) {
        layout_.row_maxima = slots_.column(Area::workspace);
        layout_.row_sums = slots_.column(Area::workspace);
      }
    }
    layout_.sizes.forward_workspace_bytes = slots_.end_phase();
  }

  LayerSlots forward_layer(std::size_t i) {
    constexpr Area scratch = Area::workspace;
    const Slot& x = layout_.x[i];
    if (i < recomputed_) return layer(i, x, scratch, scratch, scratch);
    return layer(i, x, Area::saved_for_weight, Area::saved, selective_ ? scratch : Area::saved);
  }

  Slot activated(std::size_t i) {
    return slots_.matrix(Area::workspace, layout_.layer_parameters[i].width);
  }

  void place_backward_input() {
    for (std::size_t i = 0; i < layers_; ++i) {
      if (!within_group(i)) begin_group();
      layout_.in_backward.push_back(backward_layer(i));
      layout_.gradients.push_back(layer_gradients(i));
    }
  }

  /// At the same place for all layers, however much of each is made again.
  void begin_group() {
    slots_.reuse_workspace();
    layout_.dattention = slots_.bytes(Area::workspace, attention_bytes_);
    layout_.dcontext = slots_.matrix(Area::workspace, hidden_);
    if (group_ > 1) {
      const auto width = [](const LayerParameters& p) { return p.width; };
      layout_.activated_again = slots_.matrix(
          Area::workspace, width(*std::ranges::max_element(layout_.layer_parameters, {}, width)));
    }
    if (spec_.experts) place_sent(sent_again_);
  }

  LayerSlots backward_layer(std::size_t i) {
    if (i < recomputed_) {
      const Slot x = within_group(i) ? slots_.hidden(Area::kept) : layout_.x[i];
      LayerSlots l = layer(i, x, Area::kept, Area::workspace, Area::workspace);
      use_sent_again(l.router);
      return l;
    }
    LayerSlots l = layout_.in_forward[i];
    use_sent_again(l.router);
    if (selective_) l.attention = slots_.bytes(Area::workspace, attention_bytes_);
    return l;
  }

  void use_sent_again(RouterSlots& r) const {
    r.copies = sent_again_.copies;
    r.counts = sent_again_.counts;
    r.counts_here = sent_again_.counts_here;
  }

  LayerGradientSlots layer_gradients(std::size_t i) {
    LayerGradientSlots g;
    g.output = layout_.dx[i + 1];
    g.input = layout_.dx[i];
    g.z = slots_.matrix(Area::kept, layout_.layer_parameters[i].width);
    if (layout_.layer_parameters[i].has_experts())
      g.scores = slots_.own_matrix(Area::kept, spec_.experts->count);
    g.y2 = slots_.hidden(Area::kept);
    g.x2 = slots_.hidden(Area::kept);
    g.qkv = slots_.matrix(Area::kept, 3 * hidden_);
    g.y1 = slots_.hidden(Area::kept);
    const bool divided = part_.tensor.sequence;
    g.whole_output = divided ? slots_.matrix(Area::kept, spec_.hidden_size) : g.output;
    g.whole_x2 = divided ? slots_.matrix(Area::kept, spec_.hidden_size) : g.x2;
    return g;
  }

  void place_backward_weight() {
    for (std::size_t i = 0; i < layers_; ++i) {
      slots_.reuse_workspace();
      layout_.in_backward[i].activated = activated(i);
    }
    slots_.reuse_workspace();
    if (part_.first) layout_.tokens = slots_.column(Area::workspace);
    layout_.sizes.backward_workspace_bytes = slots_.end_phase();
  }

  TransformerLayout& layout_;
  const TransformerSpec& spec_;
  const TransformerPart& part_;
  bool selective_;  // and it leaves out something
  std::size_t layers_, recomputed_, group_;
  std::array<Slot, 2> passed_on_{};
  RouterSlots sent_again_;  // of the workspace of I
  SlotAllocator slots_;
  std::int64_t hidden_, vocab_;  // this rank's
  std::int64_t message_bytes_;
  std::int64_t attention_bytes_;
};

}  // namespace

Tensor Slot::in(const StageBuffers& b) const {
  const Tensor* const areas[] = {&b.input,          &b.output,   &b.output_gradient,
                                 &b.input_gradient, &b.saved,    &b.saved_for_weight,
                                 &b.kept,           &b.workspace};
  return areas[static_cast<std::size_t>(area)]->at(offset_bytes);
}

TransformerLayout::TransformerLayout(const TransformerSpec& spec, const TransformerPart& part,
                                     std::int64_t microbatch_size, const Recomputation& recompute,
                                     int element_bytes) {
  place_parameters(*this, spec, part);
  MicrobatchAllocator(*this, spec, part, microbatch_size, recompute, element_bytes).place();
}

}  // namespace penstock

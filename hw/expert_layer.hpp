// SPDX-License-Identifier: Apache-2.0
// The experts of a layer, for real: p = softmax(router(y)) over all of them, and a token's output
// is the sum over its k likeliest experts e of p_e down_e(gelu(up_e(y))); nothing is dropped
// (Shazeer et al., arXiv:1701.06538; Fedus et al., "Switch Transformers", arXiv:2101.03961, for
// probabilities over all experts, so that the router learns with k = 1, too).
//
// Copies of tokens are sorted by expert and sent to the ranks that have these (StageBuffers::
// exchange_rows), whose rows stand rank by rank, then expert by expert. Each such block is a
// product of its own, whoever computes it: so a row has the same bits as where one rank has all
// experts, and a gradient is the sum over the microbatches of the group's ranks, in the order of
// these.
#pragma once

#include "hw/linear.hpp"
#include "hw/stage.hpp"
#include "hw/token_routes.hpp"
#include "hw/transformer_layout.hpp"

namespace penstock {

class ExpertLayer {
 public:
  /// `tokens`: of this rank. `number`: of the layer in its stage.
  ExpertLayer(Math& math, const StageBuffers& b, const TransformerSpec& spec,
              const ExpertRank& rank, std::int64_t tokens, std::size_t number,
              const LayerParameters& parameters, const RouterSlots& slots)
      : math_(math),
        b_(b),
        experts_(*spec.experts),
        here_(experts_.count / rank.parts()),
        h_(spec.hidden_size),
        tokens_(tokens),
        e_(math.element_bytes()),
        p_(parameters),
        slots_(slots),
        routes_(*b.routes),
        layer_(routes_.layer(number)) {}

  /// Leaves in `back` what experts make of y; `held`: what they got is read by a backward.
  void forward(Tensor weights, Tensor y, bool held);
  /// Adds what experts made to `residual`, which may be `sum`.
  void add_output(Tensor residual, Tensor sum);
  /// `scores` = the gradient of the router's scores, dy += that of the tokens; `dy` is that of
  /// other readers of y, or `sets`: nothing yet. Leaves what W needs.
  void backward_input(Tensor weights, Tensor doutput, Tensor scores, Tensor dy, bool sets);
  void backward_weight(Tensor gradients, Tensor expert_gradients, Tensor y, Tensor scores);

 private:
  void route(Tensor weights, Tensor y);
  void exchange(std::string_view name, Tensor from, Tensor to, bool to_experts);
  template <class Visit>
  void for_each_product(const Visit& visit) const;
  Tensor at(const Slot& slot) const { return slot.in(b_); }
  RowCopies copies() const {
    return {tokens_, h_, experts_.top_k, experts_.count, at(slots_.chosen), at(slots_.places)};
  }
  AttentionRows probabilities() const { return {tokens_, experts_.count, false, 1}; }
  std::int64_t width() const { return experts_.width; }
  Linear router() const { return {experts_.count, h_, p_.router, p_.router_bias}; }
  Linear up(std::int64_t expert) const {
    const std::int64_t first = p_.experts + expert * p_.next_expert;
    return {width(), h_, first, first + width() * h_};
  }
  Linear down(std::int64_t expert) const {
    const std::int64_t first = up(expert).bias + width();
    return {h_, width(), first, first + width() * h_};
  }

  Math& math_;
  const StageBuffers& b_;
  const Experts& experts_;
  std::int64_t here_, h_, tokens_;
  int e_;
  const LayerParameters& p_;
  const RouterSlots& slots_;
  TokenRoutes& routes_;
  TokenRoutes::Layer& layer_;
};

}  // namespace penstock

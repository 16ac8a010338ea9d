// SPDX-License-Identifier: Apache-2.0
#include "hw/expert_layer.hpp"

#include <numeric>

namespace penstock {

/// Chooses experts for each token and tells the group's ranks how many rows they get.
void ExpertLayer::route(Tensor weights, Tensor y) {
  const Linear r = router();
  const Tensor scores = at(slots_.probabilities), counts = at(slots_.counts);
  math_.gemm(r.forward(tokens_), y, weights.at(r.weight * e_), scores);
  if (r.bias >= 0) math_.add_bias(tokens_, experts_.count, weights.at(r.bias * e_), {}, scores);
  math_.attention_softmax(probabilities(), scores);
  math_.choose_largest(copies(), scores);
  math_.sort_copies(copies(), counts);
  const auto ranks = static_cast<std::size_t>(experts_.count / here_);
  const auto here = static_cast<std::size_t>(here_);
  const std::vector<std::int64_t> one_each(ranks, 1);
  if (ranks > 1)
    b_.exchange_rows({"token counts", RowExchange::What::counts, counts, at(slots_.counts_here),
                      here_ * 4, one_each, one_each});
  const auto all = static_cast<std::size_t>(experts_.count);
  layer_.products = routes_.read_counts(ranks > 1 ? at(slots_.counts_here) : counts, all);
  const auto own = ranks > 1 ? routes_.read_counts(counts, all) : layer_.products;
  const auto by_rank = [&](const std::vector<std::int64_t>& each) {
    std::vector<std::int64_t> sums;
    for (auto from = each.begin(); from != each.end(); from += static_cast<std::ptrdiff_t>(here))
      sums.push_back(
          std::accumulate(from, from + static_cast<std::ptrdiff_t>(here), std::int64_t{0}));
    return sums;
  };
  layer_.sent = by_rank(own);
  layer_.received = by_rank(layer_.products);
  layer_.rows = std::accumulate(layer_.received.begin(), layer_.received.end(), std::int64_t{0});
}

/// Sends copies to the ranks of their experts, or back.
void ExpertLayer::exchange(std::string_view name, Tensor from, Tensor to, bool to_experts) {
  const std::int64_t bytes = h_ * e_;
  if (layer_.sent.size() == 1) return math_.copy(layer_.rows * bytes, from, to);
  using What = RowExchange::What;
  b_.exchange_rows({name, to_experts ? What::to_experts : What::back, from, to, bytes,
                    to_experts ? layer_.sent : layer_.received,
                    to_experts ? layer_.received : layer_.sent});
}

/// Calls `visit(expert, first row, rows)` for the rows of each rank and expert.
template <class Visit>
void ExpertLayer::for_each_product(const Visit& visit) const {
  std::int64_t first = 0;
  for (std::size_t i = 0; i < layer_.products.size(); ++i) {
    const std::int64_t rows = layer_.products[i];
    if (rows > 0) visit(static_cast<std::int64_t>(i) % here_, first, rows);
    first += rows;
  }
}

void ExpertLayer::forward(Tensor weights, Tensor y, bool held) {
  route(weights, y);
  math_.spread_rows(copies(), y, {}, at(slots_.copies));
  const std::int64_t row = h_ * e_, inner = width() * e_;
  Block* input = routes_.allocate(layer_.rows * (row + inner));  // and z
  Block* scratch = routes_.allocate(layer_.rows * (row + inner));
  const Tensor x{input}, z = x.at(layer_.rows * row);
  const Tensor made{scratch}, activated = made.at(layer_.rows * row);
  exchange("tokens", at(slots_.copies), x, true);
  for_each_product([&](std::int64_t expert, std::int64_t first, std::int64_t rows) {
    const Linear u = up(expert), d = down(expert);
    math_.gemm_with(u.forward(rows), x.at(first * row), weights.at(u.weight * e_),
                    activated.at(first * inner),
                    {Epilogue::Kind::bias_gelu, weights.at(u.bias * e_), z.at(first * inner)});
    math_.gemm_with(d.forward(rows), activated.at(first * inner), weights.at(d.weight * e_),
                    made.at(first * row), {Epilogue::Kind::bias, weights.at(d.bias * e_)});
  });
  exchange("experts", made, at(slots_.back), false);
  routes_.release(scratch);
  if (held)
    layer_.held = input;
  else
    routes_.release(input);
}

void ExpertLayer::add_output(Tensor residual, Tensor sum) {
  math_.gather_copies(copies(), at(slots_.back), at(slots_.probabilities), residual, sum);
}

void ExpertLayer::backward_input(Tensor weights, Tensor doutput, Tensor scores, Tensor dy,
                                 bool sets) {
  const std::int64_t row = h_ * e_, inner = width() * e_;
  math_.gather_copies_backward(copies(), doutput, at(slots_.back), scores);
  math_.attention_softmax_backward(probabilities(), at(slots_.probabilities), scores);
  math_.spread_rows(copies(), doutput, at(slots_.probabilities), at(slots_.copies));
  layer_.kept = routes_.allocate(layer_.rows * (row + inner));
  Block* scratch = routes_.allocate(layer_.rows * row);
  const Tensor dmade{layer_.kept}, dz = dmade.at(layer_.rows * row), dx{scratch};
  const Tensor z = Tensor{layer_.held}.at(layer_.rows * row);
  exchange("experts", at(slots_.copies), dmade, true);
  for_each_product([&](std::int64_t expert, std::int64_t first, std::int64_t rows) {
    const Linear u = up(expert), d = down(expert);
    math_.gemm_with(d.backward_input(rows), dmade.at(first * row), weights.at(d.weight * e_),
                    dz.at(first * inner), {Epilogue::Kind::gelu_backward, {}, z.at(first * inner)});
    math_.gemm(u.backward_input(rows), dz.at(first * inner), weights.at(u.weight * e_),
               dx.at(first * row));
  });
  exchange("tokens", dx, at(slots_.copies), false);
  routes_.release(scratch);
  math_.gather_copies(copies(), at(slots_.copies), {}, sets ? Tensor{} : dy, dy);
  Gemm of_scores = router().backward_input(tokens_);
  of_scores.beta = 1;
  math_.gemm(of_scores, scores, weights.at(p_.router * e_), dy);
}

void ExpertLayer::backward_weight(Tensor gradients, Tensor expert_gradients, Tensor y,
                                  Tensor scores) {
  const std::int64_t row = h_ * e_, inner = width() * e_;
  Block* scratch = routes_.allocate(layer_.rows * inner);
  const Tensor x{layer_.held}, z = x.at(layer_.rows * row), activated{scratch};
  const Tensor dmade{layer_.kept}, dz = dmade.at(layer_.rows * row);
  const auto add = [&](const Linear& l, std::int64_t rows, Tensor dy, Tensor from, Tensor to) {
    const Tensor weight = to.at(l.weight * 4);
    if (l.bias < 0) return math_.gemm(l.backward_weight(rows), dy, from, weight);
    math_.gemm_with(l.backward_weight(rows), dy, from, weight,
                    {Epilogue::Kind::bias_gradient, to.at(l.bias * 4)});
  };
  for_each_product([&](std::int64_t expert, std::int64_t first, std::int64_t rows) {
    math_.gelu(rows * width(), z.at(first * inner), activated.at(first * inner));
    add(down(expert), rows, dmade.at(first * row), activated.at(first * inner), expert_gradients);
    add(up(expert), rows, dz.at(first * inner), x.at(first * row), expert_gradients);
  });
  add(router(), tokens_, scores, y, gradients);
  for (Block** block : {&scratch, &layer_.held, &layer_.kept}) routes_.release(*block);
}

}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
#include "models/cost/exchanges.hpp"

#include "models/cost/kept.hpp"

#include <algorithm>
#include <cmath>

namespace penstock {
namespace {

/// What the tensor ranks exchange during an op.
struct Exchanges {
  struct Sum {
    std::int64_t bytes = 0;
    int calls = 0;
  };
  ByCollective<Sum> sums{};

  void add_calls(Collective what, std::int64_t bytes, int calls) {
    Sum& sum = sums[static_cast<std::size_t>(what)];
    sum.bytes += bytes * calls;
    sum.calls += calls;
  }
  void add_exchanges(const Exchanges& other) {
    for (const Collective what : kCollectives) {
      const Sum& more = other.sums[static_cast<std::size_t>(what)];
      sums[static_cast<std::size_t>(what)].bytes += more.bytes;
      sums[static_cast<std::size_t>(what)].calls += more.calls;
    }
  }
  int most_calls() const { return std::ranges::max_element(sums, {}, &Sum::calls)->calls; }
};

/// Holds what the context ranks pass on while attention is computed for so many layers: so many
/// times what each of them has of a layer, in so many rounds.
struct RingAttention {
  int under = 0, passed = 0, calls = 0;
};

/// Returns the recipe of an op that computes for so many seconds. The rings go round one after
/// the other.
Recipe recipe_of(const StageJob& job, int layers, double compute_s, double attention_s,
                 const std::vector<RingAttention>& rings, const Exchanges& tensor) {
  Recipe r;
  const auto append = [&](const Segment& segment) {
    r.segments.push_back(segment);
    return static_cast<std::int8_t>(r.segments.size() - 1);
  };
  const auto exchange = [&](Collective what, std::int8_t after) {
    const auto& [bytes, calls] = tensor.sums[static_cast<std::size_t>(what)];
    if (calls == 0) return Segment::kNone;
    return append(
        {.lane = Lane::exchange, .what = what, .after = after, .calls = calls, .bytes = bytes});
  };
  const bool rings_go = job.context > 1 && layers > 0 && !rings.empty();
  r.times = rings_go ? layers : tensor.most_calls();
  if (r.times == 0) return {};
  std::int8_t before = exchange(Collective::all_gather, Segment::kNone);
  std::int8_t window = Segment::kNone;
  double hiding = 0;
  for (const RingAttention& ring : rings) {
    if (!rings_go || ring.calls == 0) continue;
    const double attention =
        compute_s > 0 ? std::min(1.0, ring.under * attention_s / compute_s) : 0;
    const double share = attention * (job.context - 1) / job.context;
    hiding += share;
    const std::int8_t next = append({.after = before, .share = share});
    before = append({.lane = Lane::exchange,
                     .axis = Axis::context,
                     .what = Collective::all_gather,
                     .after = window,
                     .calls = ring.calls,
                     .bytes = std::llround(ring.passed * passed_bytes(job) * job.context)});
    window = next;
  }
  const std::int8_t computed = append({.after = before, .share = 1 - hiding});
  exchange(Collective::reduce_scatter, computed);
  exchange(Collective::all_reduce, computed);
  return r;
}

/// Adds so many exchanges of x among the tensor ranks: before and after what is computed, or both
/// at once.
void add_passes(const StageJob& job, Exchanges& exchanges, std::int64_t x, int calls) {
  if (job.tensor.sequence) {
    exchanges.add_calls(Collective::all_gather, x, calls);
    exchanges.add_calls(Collective::reduce_scatter, x, calls);
  } else {
    exchanges.add_calls(Collective::all_reduce, x, calls);
  }
}

}  // namespace

void set_recipes(const StageJob& job, int layers, bool first, bool last, double attention_s,
                 PassCosts& c) {
  if (job.tensor.degree == 1 && job.context == 1) return;
  const std::int64_t x = std::llround(job.model.layer_input_bytes(job.b));
  const std::int64_t numbers = std::llround(4 * job.b * static_cast<double>(job.model.seq_length));
  const bool sequence = job.tensor.sequence;
  const Collective reduces = sequence ? Collective::reduce_scatter : Collective::all_reduce;
  const int passes = job.forward.sums * layers;
  Exchanges forward, input, weight;
  if (job.tensor.degree > 1) {
    add_passes(job, forward, x, passes);
    add_passes(job, input, x, passes + job.again.sums * job.layers_again(layers));
    if (sequence && !job.keeps_gathered()) weight.add_calls(Collective::all_gather, x, passes);
    if (job.gathers_messages() && !first) forward.add_calls(Collective::all_gather, x, 1);
    if (job.gathers_messages() && !last) input.add_calls(Collective::all_gather, x, 1);
    if (first) forward.add_calls(reduces, x, 1);
    if (last) forward.add_calls(Collective::all_reduce, numbers, 3);
    if (last) input.add_calls(reduces, x, 1);
    if (last && sequence) forward.add_calls(Collective::all_gather, x, 1);
    // The gradient that reaches the embedding, and the input of the LM head.
    const int gathers = sequence ? (first ? 1 : 0) + (last ? 1 : 0) : 0;
    weight.add_calls(Collective::all_gather, x, gathers);
  }
  Exchanges whole_backward = input;
  whole_backward.add_exchanges(weight);
  // Attention that is computed again goes round again, before that of I.
  const int again = job.makes_attention_again() ? job.layers_again(layers) : 0;
  const RingAttention there{layers, layers, layers}, once_more{again, again, again},
      back{2 * layers, 2 * layers, layers};
  const auto set = [&](OpKind kind, const Exchanges& exchanges,
                       const std::vector<RingAttention>& rings) {
    c[kind].recipe = recipe_of(job, layers, c[kind].seconds, attention_s, rings, exchanges);
  };
  set(OpKind::forward, forward, {there});
  set(OpKind::backward, whole_backward, {once_more, back});
  set(OpKind::backward_input, input, {once_more, back});
  set(OpKind::backward_weight, weight, {});
}

}  // namespace penstock

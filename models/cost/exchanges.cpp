// SPDX-License-Identifier: Apache-2.0
#include "models/cost/exchanges.hpp"

#include "models/cost/kept.hpp"
#include "models/kernels/kernel_times.hpp"

#include <algorithm>
#include <cmath>
#include <optional>

namespace penstock {
namespace {

/// Holds what the ranks of an axis exchange during an op.
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

/// Holds the exchanges that go beside the products of so many layers' forwards.
struct UnderProducts {
  Exchanges exchanges{};
  double layers = 0;
};

/// Holds what is sent to experts in an op and what comes back, in so many layers: gradients come
/// back first. What experts compute lies between the two.
struct Tokens {
  int calls = 0;
  std::int64_t bytes = 0, back_bytes = 0;  ///< of a call
  double experts_s = 0;                    ///< of all
  bool first = false;                      ///< they go before the op computes anything
  std::int64_t copies_bytes = 0;           ///< of a call: copies of experts, or their gradients
};

/// Returns the share of a GPU's multiprocessors that kernels of a token exchange occupy; 0 where
/// their number is not known.
double occupied_share(const StageJob& job) {
  const auto& times = job.device.kernel_times;
  if (times == nullptr || times->multiprocessors <= 0) return 0;
  return std::min(job.expert.sms / times->multiprocessors, 0.99);
}

/// Puts together the recipe of an op that computes for so many seconds.
class RecipeOf {
 public:
  RecipeOf(const StageJob& job, int layers, double compute_s, const LayerProducts& forward,
           std::int64_t copied_bytes)
      : job_(job),
        layers_(layers),
        compute_s_(compute_s),
        forward_(forward),
        copied_bytes_(copied_bytes) {}

  /// The rings go round one after the other; `copies`: with the host, beside all of it.
  /// `context`: what is exchanged before attention, and after it.
  Recipe recipe(const std::vector<RingAttention>& rings, const Exchanges& context,
                const Exchanges& tensor, const UnderProducts& under, const Tokens& tokens,
                std::optional<Collective> copies) {
    const bool rings_go = job_.ring() > 1 && layers_ > 0 && !rings.empty();
    const std::int64_t copied = copies ? copied_bytes_ : 0;
    recipe_.times =
        rings_go ? layers_ : std::max(tensor.most_calls(), under.exchanges.most_calls());
    if (context.most_calls() > 0 || tokens.calls > 0)
      recipe_.times = std::max(recipe_.times, layers_);
    if (recipe_.times == 0 && copied > 0) recipe_.times = layers_;
    if (recipe_.times == 0) return {};
    if (copied > 0)
      append({.lane = Lane::host,
              .axis = Axis::host,
              .what = *copies,
              .calls = layers_,
              .bytes = copied});
    before_ = append_exchange(tensor, Collective::all_gather, Segment::kNone);
    for (const Collective what : {Collective::all_gather, Collective::all_to_all})
      if (const auto there = append_exchange(context, what, before_, axis_of(what));
          there != Segment::kNone)
        before_ = there;
    append_under_products(under);
    for (const RingAttention& ring : rings)
      if (rings_go && ring.calls > 0) append_ring(ring);
    const std::int8_t computed = append_computing(tokens);
    append_exchange(context, Collective::reduce_scatter, computed, Axis::context);
    append_exchange(tensor, Collective::reduce_scatter, computed);
    append_exchange(tensor, Collective::all_reduce, computed);
    return recipe_;
  }

 private:
  std::int8_t append(const Segment& segment) {
    recipe_.segments.push_back(segment);
    return static_cast<std::int8_t>(recipe_.segments.size() - 1);
  }
  /// Returns along which axis context ranks exchange so.
  Axis axis_of(Collective what) const {
    return what == Collective::all_to_all && job_.ulysses > 1 ? Axis::ulysses : Axis::context;
  }
  std::int8_t append_exchange(const Exchanges& of, Collective what, std::int8_t after,
                              Axis axis = Axis::tensor) {
    const auto& [bytes, calls] = of.sums[static_cast<std::size_t>(what)];
    if (calls == 0) return Segment::kNone;
    return append({.lane = Lane::exchange,
                   .axis = axis,
                   .what = what,
                   .after = after,
                   .calls = calls,
                   .bytes = bytes});
  }
  /// Appends what nothing hides under, and the tokens that go to experts and come back. Returns the
  /// segment behind which the op has computed all.
  std::int8_t append_computing(const Tokens& tokens) {
    const auto exchange = [&](std::int64_t bytes, std::int8_t after) {
      return append({.lane = Lane::exchange,
                     .axis = Axis::expert,
                     .what = Collective::all_to_all,
                     .after = after,
                     .calls = tokens.calls,
                     .bytes = bytes * tokens.calls,
                     .occupies = occupied_share(job_)});
    };
    if (tokens.calls == 0) return append({.after = before_, .share = 1 - hiding_});
    // Copies come, and their gradients go, beside attention.
    const auto exchange_copies = [&] {
      if (tokens.copies_bytes > 0) exchange(tokens.copies_bytes, Segment::kNone);
    };
    if (!tokens.first) exchange_copies();
    const double experts = share_of(tokens.experts_s), rest = 1 - hiding_ - experts;
    if (tokens.first) {
      const std::int8_t sent = exchange(tokens.bytes, before_);
      const std::int8_t computed = append({.after = sent, .share = experts});
      const std::int8_t back = exchange(tokens.back_bytes, computed);
      exchange_copies();
      return append({.after = back, .share = rest});
    }
    const std::int8_t sent = exchange(tokens.bytes, append({.after = before_, .share = rest}));
    const std::int8_t computed = append({.after = sent, .share = experts});
    exchange(tokens.back_bytes, computed);
    return computed;
  }

  /// Returns the share of the op that so many seconds are, of what nothing hides under yet.
  double share_of(double seconds) const {
    return compute_s_ > 0 ? std::min(1 - hiding_, seconds / compute_s_) : 0;
  }
  /// Appends computing, and an exchange beside it that waits for the window before.
  void append_window(double share, Segment exchange) {
    hiding_ += share;
    const std::int8_t next = append({.after = before_, .share = share});
    exchange.after = window_;
    before_ = append(exchange);
    window_ = next;
  }

  /// Appends windows in which t - 1 of t parts come or go while another one is multiplied.
  void append_under_products(const UnderProducts& under) {
    int calls = 0;
    for (const Exchanges::Sum& sum : under.exchanges.sums) calls += sum.calls;
    const double t = job_.tensor.degree;
    const double share = share_of(under.layers * forward_.products_s) * (t - 1) / t;
    for (const Collective what : kCollectives) {
      const auto& sum = under.exchanges.sums[static_cast<std::size_t>(what)];
      if (sum.calls == 0) continue;
      append_window(share * sum.calls / calls,
                    {.lane = Lane::exchange, .what = what, .calls = sum.calls, .bytes = sum.bytes});
    }
  }

  void append_ring(const RingAttention& ring) {
    const double attention = share_of(ring.under * forward_.attention_s);
    const double parts = job_.ring();
    append_window(attention * (parts - 1) / parts,
                  {.lane = Lane::exchange,
                   .axis = Axis::context,
                   .what = Collective::all_gather,
                   .calls = ring.calls,
                   .bytes = std::llround(ring.passed * passed_bytes(job_) * parts)});
  }

  const StageJob& job_;
  int layers_;
  double compute_s_;
  LayerProducts forward_;
  std::int64_t copied_bytes_;
  Recipe recipe_{};
  std::int8_t before_ = Segment::kNone, window_ = Segment::kNone;
  double hiding_ = 0;
};

/// Returns what is gathered of x bytes as the operand of a layer's products, which are cast before
/// (Transformer Engine gathers quantized inputs and gradients): half for attention's, half for the
/// MLP's.
std::int64_t narrow_bytes(const StageJob& job, std::int64_t x) {
  return std::llround(static_cast<double>(x) * job.gathered_share());
}

/// Counts exchanges of whole tokens among the tensor ranks, or of their latents.
struct Passes {
  int tokens = 0, latents = 0;

  int calls() const { return tokens + latents; }
};

/// Returns the bytes of a microbatch's latents where it has x bytes of tokens. With sequence
/// parallelism a rank makes latents of its own tokens (Megatron-LM's multi_latent_attention.py), so
/// that these are gathered, in 16 bits, and not the tokens themselves.
std::int64_t latent_bytes(const StageJob& job, std::int64_t x) {
  const LatentAttention& latent = *job.model.latent;
  const auto elements = static_cast<double>(latent.q_rank + latent.kv_rank + latent.rope_dim);
  return std::llround(static_cast<double>(x) * elements /
                      static_cast<double>(job.model.hidden_size));
}

void add_gathers(const StageJob& job, Exchanges& exchanges, std::int64_t x, const Passes& passes) {
  exchanges.add_calls(Collective::all_gather, narrow_bytes(job, x), passes.tokens);
  if (passes.latents > 0)
    exchanges.add_calls(Collective::all_gather, latent_bytes(job, x), passes.latents);
}

/// Adds what tensor ranks exchange before and after what is computed forward, or both at once.
void add_forward(const StageJob& job, Exchanges& exchanges, std::int64_t x, const Passes& passes) {
  if (job.tensor.sequence) {
    add_gathers(job, exchanges, x, passes);
    exchanges.add_calls(Collective::reduce_scatter, x, passes.calls());
  } else {
    exchanges.add_calls(Collective::all_reduce, x, passes.calls());
  }
}

/// The same of gradients.
void add_backward(const StageJob& job, Exchanges& exchanges, std::int64_t x, const Passes& passes) {
  if (job.tensor.sequence) {
    exchanges.add_calls(Collective::all_gather, narrow_bytes(job, x), passes.calls());
    exchanges.add_calls(Collective::reduce_scatter, x, passes.tokens);
    if (passes.latents > 0)
      exchanges.add_calls(Collective::reduce_scatter, latent_bytes(job, x), passes.latents);
  } else {
    exchanges.add_calls(Collective::all_reduce, x, passes.calls());
  }
}

/// Adds what context ranks exchange around the attention of so many layers, where keys and values
/// do not go round beside it. `gradients`: those of keys and values go back.
void add_context(const StageJob& job, Exchanges& exchanges, int layers, bool gradients) {
  const double keys_and_values = passed_bytes(job);
  if (job.context_exchange == ContextExchange::all_gather) {
    const std::int64_t all = std::llround(job.context * keys_and_values);
    exchanges.add_calls(Collective::all_gather, all, layers);
    if (gradients) exchanges.add_calls(Collective::reduce_scatter, all, layers);
  }
  if (job.context_exchange == ContextExchange::all_to_all || job.ulysses > 1) {
    const double tokens = job.b * static_cast<double>(job.model.seq_length);
    const double queries =
        job.model.element_bytes() * tokens *
        static_cast<double>(job.model.num_attention_heads * job.model.head_size()) /
        job.tensor.degree;
    // Before attention queries, keys and values, behind it what it makes.
    exchanges.add_calls(Collective::all_to_all, std::llround((2 * queries + keys_and_values) / 4),
                        4 * layers);
  }
}

/// Sums over the kinds of a stage's layers.
struct OfStage {
  int layers = 0, attention_again = 0;
  Passes passes, passes_again;  ///< tensor ranks gather and sum so often
  int experts = 0, experts_again = 0;
  double products_again = 0;  ///< layers whose products are made again

  explicit OfStage(const StageKinds& kinds) {
    constexpr auto kExperts = static_cast<std::size_t>(ProductClass::experts);
    for (const auto& [job, count] : kinds) {
      const int once_more = job.layers_again(count);
      layers += count.layers;
      attention_again += job.makes_attention_again() ? once_more : 0;
      const bool gathers_latents =
          job.tensor.sequence && job.model.latent && job.model.latent->q_rank > 0;
      const auto add = [&](Passes& all, int sums, int latents) {
        all.latents += gathers_latents ? latents : 0;
        all.tokens += sums - (gathers_latents ? latents : 0);
      };
      add(passes, job.forward.sums * count.layers, count.layers);
      add(passes_again, job.again.sums * once_more, job.recompute.in_full() ? once_more : 0);
      experts += job.forward.class_flops[kExperts] > 0 ? count.layers : 0;
      experts_again += job.again.class_flops[kExperts] > 0 ? once_more : 0;
      products_again += once_more * job.again.product_flops / job.forward.product_flops;
    }
  }
};

/// Returns the bytes of copies of a microbatch's tokens that a GPU has, one for each of a token's
/// experts, in a type with elements of so many bytes.
std::int64_t token_bytes(const StageJob& job, double element_bytes) {
  if (!job.model.experts) return 0;
  const double tokens = job.b * static_cast<double>(job.model.seq_length) / job.tensor.degree;
  return std::llround(job.expert.received * tokens * job.model.experts->top_k *
                      static_cast<double>(job.model.hidden_size) * element_bytes);
}

/// Returns what the group has for the copies of its experts, per GPU: their weights, or with
/// `gradients` these, too.
std::int64_t copied_bytes(const StageJob& job, bool gradients) {
  if (job.expert.copies == 0) return 0;
  const ParameterBytes& bytes = job.model.bytes;
  const double of_expert = static_cast<double>(job.layer.expert_parameters()) * job.expert.degree /
                           job.model.experts->count;
  return std::llround(job.expert.copies * of_expert *
                      (bytes.weights + (gradients ? bytes.gradients : 0)));
}

}  // namespace

void set_recipes(const StageKinds& kinds, bool first, bool last, const LayerProducts& forward_s,
                 PassCosts& c) {
  const StageJob& job = kinds.front().job;
  const OfStage of(kinds);
  const int layers = of.layers;
  const bool experts = job.expert.degree > 1 && of.experts > 0;
  if (job.tensor.degree == 1 && job.context == 1 && job.recompute.offload == 0 && !experts) return;
  const std::int64_t x = std::llround(job.model.layer_input_bytes(job.b));
  const std::int64_t numbers = std::llround(4 * job.b * static_cast<double>(job.model.seq_length));
  const bool sequence = job.tensor.sequence;
  const Collective reduces = sequence ? Collective::reduce_scatter : Collective::all_reduce;
  Exchanges forward, input, weight;
  UnderProducts under_forward, under_input, under_weight;
  if (job.tensor.degree > 1) {
    const bool hides = job.tensor.overlap;
    under_forward.layers = under_weight.layers = layers;
    under_input.layers = layers + of.products_again;
    add_forward(job, hides ? under_forward.exchanges : forward, x, of.passes);
    Exchanges& back = hides ? under_input.exchanges : input;
    add_backward(job, back, x, of.passes);
    add_forward(job, back, x, of.passes_again);
    if (sequence && !job.keeps_gathered())
      add_gathers(job, hides ? under_weight.exchanges : weight, x, of.passes);
    if (job.gathers_messages() && !first) forward.add_calls(Collective::all_gather, x, 1);
    if (job.gathers_messages() && !last) input.add_calls(Collective::all_gather, x, 1);
    const int heads = last ? 1 + job.model.mtp_layers : 0;  // the LM head, once for each token
    if (first) forward.add_calls(reduces, x, 1);
    forward.add_calls(Collective::all_reduce, numbers, 3 * heads);
    input.add_calls(reduces, x, heads);
    if (sequence) forward.add_calls(Collective::all_gather, x, heads);
    // The gradient that reaches the embedding, and the input of the LM head.
    const int gathers = sequence ? (first ? 1 : 0) + heads : 0;
    weight.add_calls(Collective::all_gather, x, gathers);
  }
  Exchanges whole_backward = input;
  whole_backward.add_exchanges(weight);
  UnderProducts under_backward = under_input;
  under_backward.exchanges.add_exchanges(under_weight.exchanges);
  under_backward.layers += under_weight.layers;
  // Attention that is computed again goes round again, before that of I.
  const int again = of.attention_again;
  const RingAttention there{layers, layers, layers}, once_more{again, again, again},
      back{2 * layers, 2 * layers, layers};
  Exchanges context, context_back;
  const bool ring = job.context_exchange == ContextExchange::ring;
  if (job.context > 1) {
    add_context(job, context, layers, false);
    add_context(job, context_back, layers, true);
    // Attention that is computed again gathers again, and so does its backward.
    add_context(job, context_back, again, false);
  }
  // Where the neighbours that divide an expert are several, each needs the tokens of all.
  const double wide = job.model.element_bytes();
  const std::int64_t copies = token_bytes(job, wide);
  const std::int64_t sent =
      job.expert.narrow_dispatch
          ? token_bytes(job, std::min(wide, job.model.operand_bytes(ProductClass::experts)))
          : copies;
  if (job.expert.tensor > 1 && of.experts > 0) {
    const auto add_gathered = [&](Exchanges& exchanges, int calls) {
      exchanges.add_calls(Collective::all_gather, job.expert.tensor * copies, calls);
      exchanges.add_calls(Collective::reduce_scatter, job.expert.tensor * copies, calls);
    };
    add_gathered(forward, of.experts);
    add_gathered(input, of.experts + of.experts_again);
    add_gathered(whole_backward, of.experts + of.experts_again);
  }
  const auto tokens = [&](int calls, double experts_s, bool at_first) {
    return experts ? Tokens{calls, sent, copies, experts_s, at_first, copied_bytes(job, at_first)}
                   : Tokens{};
  };
  const double experts_s = layers * forward_s.experts_s;
  const double again_s = of.experts > 0 ? experts_s * of.experts_again / of.experts : 0;
  const int calls_back = of.experts + of.experts_again;
  using Rings = std::vector<RingAttention>;
  const auto set = [&](OpKind kind, const Exchanges& of_context, const Exchanges& exchanges,
                       const UnderProducts& under, const Rings& rings, const Tokens& to_experts,
                       std::optional<Collective> copying) {
    c[kind].recipe =
        RecipeOf(job, layers, c[kind].seconds, forward_s, std::llround(offloaded_bytes(kinds)))
            .recipe(ring ? rings : Rings{}, of_context, exchanges, under, to_experts, copying);
  };
  set(OpKind::forward, context, forward, under_forward, {there},
      tokens(of.experts, experts_s, false), Collective::copy_out);
  set(OpKind::backward, context_back, whole_backward, under_backward, {once_more, back},
      tokens(calls_back, 2 * experts_s + again_s, true), Collective::copy_in);
  set(OpKind::backward_input, context_back, input, under_input, {once_more, back},
      tokens(calls_back, experts_s + again_s, true), Collective::copy_in);
  set(OpKind::backward_weight, {}, weight, under_weight, {}, {}, {});
}

}  // namespace penstock

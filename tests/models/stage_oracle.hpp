// SPDX-License-Identifier: Apache-2.0
// The oracle of a stage: plays an op layer by layer and module by module, slowly, from the papers'
// formulas. It shares no code with models/, is used by no engine, and takes plain numbers alone.
//
// Of m = b s / c tokens (b sequences of s tokens among c context ranks) on one of t tensor ranks:
//   products       an m x k by k x n product takes 2 m k n FLOPs in F, as many for the gradient of
//                  its input (I) and as many for that of its weights (W): Narayanan et al., SC'21,
//                  appendix; the split into I and W: Qi et al., ICLR'24, section 2 and table 1
//   attention      two products of b s/c x s elements per head in F, four in I, none in W: SC'21,
//                  equation 2 with its appendix. Flash attention skips what a causal mask hides
//   bytes kept     Korthikanti et al., MLSys'23: section 4.1, equation 1 (a layer), equation 2
//                  (tensor parallelism), equation 4 (sequence parallelism), section 4.3 (the ends);
//                  until W: M_W of Qi et al., table 1, all but masks and attention's square
//   exchanges      Korthikanti et al., section 4.2.2, figures 4 and 5: all-reduces behind the
//   second
//                  product of attention and MLP, or all-gathers before them and reduce-scatters
//                  behind; in W all-gathers of inputs that nobody kept whole
//   the ring       Liu et al., arXiv:2310.01889, section 3: attention in c equal parts, keys and
//                  values sent on under each of the first c - 1; in I their gradients with them
//   recomputation  full: F of the layers again from their inputs (Chen et al., arXiv:1604.06174);
//                  selective: F of core attention again, its ring too (Korthikanti et al., section
//                  5; Megatron-LM checkpoints the module that holds the ring), or of other parts
//                  (Megatron-LM's --recompute-modules): the MLP with its exchanges, its activation
//                  function, the norms before both; what they make is not kept
//   stored         a microbatch whose activations are kept where others' are not does nothing
//                  again and exchanges nothing again (torchgpipe's `checkpoint: except_last`: Kim
//                  et al., arXiv:2004.09910): its ops are those of `Again::none`
//
//   number types   products whose operands are narrower (Micikevicius et al., arXiv:2209.05433): in
//                  F their inputs are cast, in I the gradients of their results, each once, by rows
//                  and by columns; a norm writes such copies instead of a wide one unless the scale
//                  needs a look at all of it first; what is kept of an input is one narrow copy,
//                  and inputs and gradients are gathered after the cast
//
// A stack's numbers mean what models/stack.hpp says of them: rates, bytes that pass memory, host.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace stage_oracle {

/// Operands of a class of products; 0 bytes: the model's own.
struct Operands {
  double bytes = 0;
  int looks = 0;              ///< at all of the input, before it is cast
  bool casts_itself = false;  ///< no kernel before the product does it
  double slower = 1;          ///< times as long as products in the model's type
};

struct Model {
  double hidden = 0, heads = 0, kv_heads = 0, head_size = 0, columns = 0;  ///< of the MLP
  double vocabulary = 0, tokens = 0;                                       ///< of a sequence
  bool causal = true, gated = false, dropout = true, flash = false, tied = true;
  bool biases = true, learned_positions = true, rotary = false, parallel_residual = false;
  int norms = 2, norm_vectors = 2;
  double element_bytes = 2;
  Operands projections, mlp, logits, attention;
};

struct Device {
  double peak_flops = 0;
  std::vector<std::pair<double, double>> efficiency;  ///< of whole layers, by hidden size
  double matrix_efficiency = 0, attention_efficiency = 0;
  double streamed_bytes_per_s = 0;  ///< 0: memory takes no time
  double launch_s = 0;
  double product_share = 0.75;  ///< of peak, that large products reach
};

struct Stack {
  bool apart = false;  ///< takes layers apart; otherwise a device's curve says all
  double matrix_efficiency = 0, attention_efficiency = 0, misaligned_attention = 0;
  double misaligned_head = 0, operand_traffic = 0, forward_traffic = 0, backward_traffic = 0;
  double accumulation = 0, logits_traffic = 0;
  double forward_host_s = 0, backward_host_s = 0, tensor_host_s = 0;
  double kept_per_hidden = 0, kept_per_column = 0, kept_whole = 0, logits_kept = 0;
  bool gathers_again = false;
  bool in_place = false;  ///< the gradient takes the logits' place
};

struct Link {
  double latency_s = 0, bytes_per_s = 1;
};

enum class Again : std::uint8_t { none, selective, full };

struct Job {
  double sequences = 1;  ///< of a microbatch
  int tensor = 1, context = 1;
  int ulysses = 1;  ///< neighbours among the context ranks that exchange heads; the rest is a ring
  bool sequence_parallel = false, divided_messages = false;
  Again again = Again::none;
  std::set<std::string> parts{"core_attn"};  ///< selective: what of a layer runs again
  int first_layers = 0;                      ///< full: so many first layers; the others keep theirs
  int group = 1;                             ///< full: layers that are made again together
  int layers = 0;
  bool first = false, last = false;
  double weight_bytes = 2;  ///< of a parameter
  Link tensor_link, context_link;
};

enum class Kind : std::uint8_t { forward, backward, input, weight };
enum class Group : std::uint8_t { tensor, ulysses, context };
enum class What : std::uint8_t { all_reduce, all_gather, reduce_scatter, all_to_all };

/// What an op does next: it computes, exchanges, or, of a ring, both at once.
struct Step {
  std::string module;
  bool again = false;  ///< belongs to recomputation
  double flops = 0;    ///< attention counted in full
  double compute_s = 0;
  Group group = Group::tensor;
  What what = What::all_reduce;
  double bytes = 0;     ///< of the whole result, or of what is summed; 0: exchanges nothing
  bool hidden = false;  ///< a ring's: under all parts of the computing but the last
};

/// An op of one microbatch.
struct Played {
  std::vector<Step> steps;

  double flops(bool again) const;
  double computed_s() const;
  /// With what is exchanged and not hidden.
  double seconds(const Job& job) const;
  struct Sum {
    double bytes = 0;
    int calls = 0;
  };
  std::map<std::pair<Group, What>, Sum> exchanged() const;
};

Played play(const Model& model, const Device& device, const Stack& stack, const Job& job,
            Kind kind);

/// Seconds of a collective on a ring of so many ranks, each step with its latency.
double exchange_s(What what, double bytes, int ranks, const Link& link);

/// Parameters that a GPU has, by module.
std::map<std::string, double> parameters(const Model& model, const Job& job);

/// What a microbatch occupies, by module: bytes that I (or B) frees, and bytes that wait for W.
struct Kept {
  double until_input = 0, until_weight = 0;
};
std::map<std::string, Kept> kept(const Model& model, const Stack& stack, const Job& job);

/// From the end of I: what W needs, also of layers that I has made again (their gradients take
/// their place). The LM head's inputs and logits wait for its W whatever the layers recompute.
double kept_after_input(const Model& model, const Stack& stack, const Job& job);

}  // namespace stage_oracle

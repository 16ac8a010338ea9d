// SPDX-License-Identifier: Apache-2.0
// Arithmetic issued on the compute queue of a device: what a stage and an optimizer need, no more.
//
// Matrices are row-major. Two types: *working* elements (activations and working weights, fp32 or
// bf16, element_bytes()) and fp32 (gradients of weights, layer-norm statistics, losses, optimizer
// masters and moments). Sums are in fp32. Tensor arguments are of the working type unless said
// otherwise; sizes, strides and leading dimensions are in elements. Every result depends on its
// operands alone: no atomics, and the order of every sum is fixed.
// Formulas: hw/row_kernels.hpp.
#pragma once

#include "hw/device.hpp"

#include <string>

namespace penstock {

/// C = alpha op(A) op(B) + beta C for `batch` matrices; op(A) is m x k, op(B) k x n, C m x n.
/// With beta = 0, C is not read.
struct Gemm {
  std::int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false;
  bool transpose_b = false;
  std::int64_t lda = 0, ldb = 0, ldc = 0;  ///< of the matrices as stored
  float alpha = 1;
  float beta = 0;
  std::int64_t batch = 1;
  std::int64_t stride_a = 0, stride_b = 0, stride_c = 0;  ///< between matrices of the batch
  bool fp32_output = false;  ///< C is fp32 whatever the working type: gradients of weights
};

/// What comes with a matrix product. Results are those of its parts, but for what is rounded
/// between.
struct Epilogue {
  enum class Kind : std::uint8_t {
    bias,           ///< C += bias in every row
    bias_gelu,      ///< aux = C + bias, C = gelu(aux)
    gelu_backward,  ///< C = C gelu'(aux)
    bias_gradient,  ///< bias (fp32, m) += sums of the rows of op(A), of a product with transpose_a
  };
  Kind kind = Kind::bias;
  Tensor bias;           ///< n elements; not of gelu_backward
  Tensor aux = {};       ///< as C; of the two with gelu
  Tensor residual = {};  ///< as C, added to it; of `bias` alone, may be left out
};

/// Attention whose probabilities are never stored. Queries, keys and values lie in one matrix of
/// rows() x 3 hidden(), a head's next to one another in each third.
struct Attention {
  std::int64_t sequences = 0, heads = 0, seq_length = 0, head_size = 0;
  bool causal = true;
  std::int64_t hidden() const { return heads * head_size; }
  std::int64_t rows() const { return sequences * seq_length; }
  /// fp32 numbers of `log_sums` and of the scratch: [sequence][head][position].
  std::int64_t sums() const { return rows() * heads; }
};
/// Heads larger than this do not fit the registers of a GPU's fused attention.
inline constexpr std::int64_t kMostHeadSize = 128;

/// Softmax over rows of scores: row r belongs to query position r % keys.
struct AttentionRows {
  std::int64_t rows = 0;  ///< microbatch size x heads x sequence length
  std::int64_t keys = 0;  ///< sequence length
  bool causal = true;     ///< keys after the query's position do not count
  float scale = 1;        ///< scores are multiplied by it first
};

/// Copies of rows, `per_row` of each, sorted by where they go: tokens and their experts.
struct RowCopies {
  std::int64_t rows = 0, cols = 0;
  int per_row = 1, kinds = 1;  ///< kinds: of places that a copy can go to (experts)
  Tensor chosen;               ///< int32, rows x per_row: the kinds of a row's copies
  Tensor places;               ///< int32, rows x per_row: where the sorted copies lie
  std::int64_t copies() const { return rows * per_row; }
};

/// A microbatch of held-out data: this bit of its number is set.
inline constexpr std::uint32_t kHeldOut = std::uint32_t{1} << 31;

/// Which sequences: token i of sequence n of a microbatch follows from all of this.
struct TokenSource {
  std::uint64_t seed = 0;
  std::uint32_t microbatch = 0;
  std::int64_t sequences = 0;  ///< per microbatch, or of the part of it
  std::int64_t seq_length = 0;
  std::int64_t vocab_size = 0;
  enum class Kind : std::uint8_t { generated, markov, text } kind = Kind::generated;
  /// markov: after token t comes (multiplier t + 1 + j) mod vocab_size, coprime and at least 4,
  /// with j = 0 ... 3 of probability 1/2, 1/4, 1/8, 1/8. Each token is as frequent as any other.
  std::int64_t multiplier = 1;
  /// text: a sequence is a window of it, of which it has more than one. On the host.
  const unsigned char* text = nullptr;
  std::int64_t text_bytes = 0;
  std::int64_t first_sequence = 0;  ///< of a part
  /// Tokens are counted from here on, and are -1 outside of so many; 0: all of the vocabulary.
  std::int64_t first = 0, count = 0;
  std::int64_t rows() const { return sequences * seq_length; }
};

/// What an optimizer step reads and writes, n elements each, all fp32 but `working_out`.
struct StepTensors {
  Tensor master_in;
  Tensor master_out;   ///< may be master_in
  Tensor working_out;  ///< rounded from master_out; none where the working weights are the master
  Tensor gradient;     ///< zeroed once it has been read
  Tensor first_moment = {}, second_moment = {};  ///< updated in place; where the optimizer has such
};

struct SgdSettings {
  double learning_rate = 0.01;
  double gradient_scale = 1;  ///< multiplies the gradient: 1 / microbatches for the mean
  double momentum = 0;        ///< with a first moment, which is then the velocity
  double weight_decay = 0;    ///< times the weights, added to the gradient
  bool nesterov = false;      ///< the velocity is a mean, and the step looks ahead along it
};

/// Loshchilov and Hutter, ICLR'19, algorithm 2 (decoupled weight decay, times the learning rate).
struct AdamwSettings {
  double learning_rate = 0.001;
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, weight_decay = 0.01;
  double gradient_scale = 1;
  bool decoupled = true;  ///< false: weight decay is added to the gradient (Adam)
  bool nesterov = false;  ///< NAdam, as PyTorch has it
};

/// Holds what a Muon step of one matrix takes; hw/optimizer_step.hpp has the formulas.
struct MuonSettings {
  double learning_rate = 0.001;  ///< times the scale of the matrix
  double momentum = 0.95;
  double gradient_scale = 1;
  double kept = 1;  ///< share of the weights that decay leaves
};

/// Steps after which basis rotation finds its bases anew.
inline constexpr std::int64_t kRotationEvery = 10;
constexpr bool renews_bases(std::int64_t step) { return step == 1 || step % kRotationEvery == 0; }
/// Returns the numbers that basis rotation keeps for a matrix beside its moments: of each side a
/// mean and a basis.
constexpr std::int64_t rotation_numbers(std::int64_t rows, std::int64_t cols) {
  return 2 * (rows * rows + cols * cols);
}
constexpr std::int64_t rotation_scratch_numbers(std::int64_t rows, std::int64_t cols) {
  return 2 * rows * cols + (rows > cols ? rows * rows : cols * cols);
}

class Math {
 public:
  virtual ~Math() = default;

  /// Bytes of a working element: 4 (fp32) or 2 (bf16).
  virtual int element_bytes() const = 0;
  /// What a recording should say of how this is computed; empty: nothing.
  virtual std::string remarks() const { return {}; }

  virtual void gemm(const Gemm& shape, Tensor a, Tensor b, Tensor c) = 0;
  /// One product, not of a batch, and its epilogue; beta is 0, but for `bias_gradient`. As long as
  /// nobody does better: one after the other.
  virtual void gemm_with(const Gemm& shape, Tensor a, Tensor b, Tensor c, const Epilogue& e);

  // Layer norm over rows of `cols`; `mean` and `rstd` are fp32, one per row.
  virtual void layer_norm(std::int64_t rows, std::int64_t cols, Tensor x, Tensor gamma, Tensor beta,
                          Tensor y, Tensor mean, Tensor rstd) = 0;
  /// dx = gradient through the norm, + `residual` if given. dx may be dy or residual.
  virtual void layer_norm_backward(std::int64_t rows, std::int64_t cols, Tensor dy, Tensor x,
                                   Tensor gamma, Tensor mean, Tensor rstd, Tensor residual,
                                   Tensor dx) = 0;
  /// dgamma and dbeta (fp32) += their gradients.
  virtual void layer_norm_backward_weight(std::int64_t rows, std::int64_t cols, Tensor dy, Tensor x,
                                          Tensor mean, Tensor rstd, Tensor dgamma,
                                          Tensor dbeta) = 0;

  /// In place: scores become probabilities, 0 where a key does not count.
  virtual void attention_softmax(const AttentionRows& shape, Tensor scores) = 0;
  /// In place: the gradient of the probabilities becomes that of the scores before scaling.
  virtual void attention_softmax_backward(const AttentionRows& shape, Tensor probabilities,
                                          Tensor gradient) = 0;

  /// context = softmax(scale q k^T) v for every head, scale = 1 / sqrt(head_size); `log_sums`
  /// (fp32): log2 of the sums of exp(scale q k^T) of each row, from which probabilities follow.
  virtual void attention(const Attention& shape, Tensor qkv, Tensor context, Tensor log_sums) = 0;
  /// dqkv from the gradient of the context. `scratch`: fp32, sums().
  virtual void attention_backward(const Attention& shape, Tensor qkv, Tensor context,
                                  Tensor log_sums, Tensor dcontext, Tensor scratch,
                                  Tensor dqkv) = 0;

  /// y = gelu(z), tanh form. y may be z.
  virtual void gelu(std::int64_t n, Tensor z, Tensor y) = 0;
  /// dz = dy gelu'(z). dz may be dy.
  virtual void gelu_backward(std::int64_t n, Tensor dy, Tensor z, Tensor dz) = 0;

  /// y += bias in every row, + `residual` (as large as y) if given.
  virtual void add_bias(std::int64_t rows, std::int64_t cols, Tensor bias, Tensor residual,
                        Tensor y) = 0;
  /// gradient (fp32) += sums of the columns of dy.
  virtual void bias_backward(std::int64_t rows, std::int64_t cols, Tensor dy, Tensor gradient) = 0;

  /// sum = a + b. sum may be a or b.
  virtual void add_tensors(std::int64_t n, Tensor a, Tensor b, Tensor sum) = 0;
  /// sum = a x + b y. sum may be x or y.
  virtual void blend(std::int64_t n, float a, Tensor x, float b, Tensor y, Tensor sum) = 0;
  /// sum += x, both fp32.
  virtual void accumulate(std::int64_t n, Tensor x, Tensor sum) = 0;
  virtual void copy(std::int64_t bytes, Tensor from, Tensor to) = 0;
  virtual void zero(std::int64_t bytes, Tensor to) = 0;
  /// Working elements from fp32 ones; a copy where the working type is fp32.
  virtual void round(std::int64_t n, Tensor fp32, Tensor working) = 0;
  /// Working elements, uniform in [-1, 1): a hash of (seed, stream, index).
  virtual void fill_uniform(std::int64_t n, std::uint64_t seed, std::uint64_t stream,
                            Tensor to) = 0;

  /// int32, source.rows() of each; either may be left out. The target of position i is token i + 1.
  virtual void generate_tokens(const TokenSource& source, Tensor tokens, Tensor targets) = 0;
  /// y[r] = token_table[tokens[r]] + position_table[r % seq_length]. A token of -1 counts as zeros;
  /// so do positions without a table.
  virtual void embedding(std::int64_t rows, std::int64_t cols, std::int64_t seq_length,
                         Tensor tokens, Tensor token_table, Tensor position_table, Tensor y) = 0;
  /// Both gradients (fp32) += the sums of their rows of dy.
  virtual void embedding_backward(std::int64_t rows, std::int64_t cols, std::int64_t seq_length,
                                  Tensor tokens, Tensor dy, Tensor dtoken_table,
                                  Tensor dposition_table) = 0;

  /// `loss` (fp32, one) = mean of -log softmax(logits)[target]. `row_losses`: fp32, rows, scratch.
  virtual void cross_entropy(std::int64_t rows, std::int64_t vocab_size, Tensor logits,
                             Tensor targets, Tensor row_losses, Tensor loss) = 0;
  /// In place: logits become their gradient of that mean loss.
  virtual void cross_entropy_backward(std::int64_t rows, std::int64_t vocab_size, Tensor targets,
                                      Tensor logits) = 0;
  // The same on ranks that have a part of the vocabulary each, as they go on from exchange to
  // exchange. All but the logits is fp32 (targets: int32), one per row.
  virtual void row_maxima(std::int64_t rows, std::int64_t cols, Tensor logits, Tensor maxima) = 0;
  /// maxima = the larger of x and maxima.
  virtual void maximum(std::int64_t n, Tensor x, Tensor maxima) = 0;
  /// The sums of exp(logit - maximum) and the targets' logits, of this part.
  virtual void vocabulary_sums(std::int64_t rows, std::int64_t cols, Tensor logits, Tensor targets,
                               Tensor maxima, Tensor sums, Tensor target_logits) = 0;
  /// `loss` (one) from what all parts have together; target logits become row losses.
  virtual void vocabulary_loss(std::int64_t rows, Tensor maxima, Tensor sums, Tensor target_logits,
                               Tensor loss) = 0;
  /// In place: logits become their gradient of that mean loss.
  virtual void vocabulary_backward(std::int64_t rows, std::int64_t cols, Tensor targets,
                                   Tensor maxima, Tensor sums, Tensor logits) = 0;
  // Mixtures of experts. Each row of `probabilities` has one for each kind.
  /// chosen = the kinds of the largest values of each row, in their order; of equals the first.
  virtual void choose_largest(const RowCopies& c, Tensor values) = 0;
  /// places = those of the copies sorted by kind, then by row; `counts` (int32): copies of a kind.
  virtual void sort_copies(const RowCopies& c, Tensor counts) = 0;
  /// copies = the rows of x, times the probability of their kind where these are given.
  virtual void spread_rows(const RowCopies& c, Tensor x, Tensor probabilities, Tensor copies) = 0;
  /// y = the sum of each row's copies, times those probabilities where given, + `residual` if
  /// given, which may be y.
  virtual void gather_copies(const RowCopies& c, Tensor copies, Tensor probabilities,
                             Tensor residual, Tensor y) = 0;
  /// dprobabilities = dy times the copy for the kinds that are chosen, else 0.
  virtual void gather_copies_backward(const RowCopies& c, Tensor dy, Tensor copies,
                                      Tensor dprobabilities) = 0;

  /// `loss` (fp32, one) = mean of (y - target)^2 / 2; dy its gradient. dy may be target.
  virtual void squared_error(std::int64_t n, Tensor y, Tensor target, Tensor dy, Tensor loss) = 0;

  /// In place, fp32: scaled down to the Euclidean norm `limit` where that is exceeded.
  virtual void clip(std::int64_t n, float limit, Tensor gradient) = 0;
  virtual void sgd_step(std::int64_t n, const StepTensors& t, const SgdSettings& settings) = 0;
  /// `step` counts from 1.
  virtual void adamw_step(std::int64_t n, const StepTensors& t, const AdamwSettings& settings,
                          std::int64_t step) = 0;
  /// `direction` = the momentum looked ahead, of norm 1; the first moment has been updated then.
  virtual void muon_direction(std::int64_t n, const StepTensors& t, const MuonSettings& settings,
                              Tensor direction) = 0;
  /// The step of the weights along `direction`.
  virtual void muon_step(std::int64_t n, const StepTensors& t, const MuonSettings& settings,
                         Tensor direction) = 0;
  /// The step of basis rotation of a matrix, all fp32. `kept` and `scratch` have the numbers that
  /// the functions above say.
  virtual void rotated_step(std::int64_t rows, std::int64_t cols, const StepTensors& t, Tensor kept,
                            Tensor scratch, const AdamwSettings& settings, std::int64_t step) = 0;
};

inline void Math::gemm_with(const Gemm& shape, Tensor a, Tensor b, Tensor c, const Epilogue& e) {
  const bool gelu_follows = e.kind == Epilogue::Kind::bias_gelu;
  const Tensor product = gelu_follows ? e.aux : c;
  gemm(shape, a, b, product);
  switch (e.kind) {
    case Epilogue::Kind::bias_gelu:
    case Epilogue::Kind::bias: add_bias(shape.m, shape.n, e.bias, e.residual, product); break;
    case Epilogue::Kind::gelu_backward: return gelu_backward(shape.m * shape.n, c, e.aux, c);
    case Epilogue::Kind::bias_gradient: return bias_backward(shape.k, shape.m, a, e.bias);
  }
  if (gelu_follows) gelu(shape.m * shape.n, product, c);
}

}  // namespace penstock

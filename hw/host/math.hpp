// SPDX-License-Identifier: Apache-2.0
// Math on the host, in fp32: OpenBLAS for matrix products, the row kernels for the rest.
//
// Every call hands a closure to the compute queue, if there is one; tensors' memory is looked up
// when it runs. BLAS runs in the thread of the queue, with no threads of its own, so results do not
// vary.
#pragma once

#include "hw/math.hpp"

#include <functional>

namespace penstock {

class RunControl;

class HostMath : public Math {
 public:
  using Enqueue = std::function<void(std::function<void()>)>;
  /// `enqueue` puts work on the compute queue, to be run in this order.
  explicit HostMath(Enqueue enqueue);
  /// Computes at once; throws SystemError where the run was stopped.
  explicit HostMath(RunControl& control);

  int element_bytes() const override { return 4; }
  void gemm(const Gemm& shape, Tensor a, Tensor b, Tensor c) override;
  void layer_norm(std::int64_t rows, std::int64_t cols, Tensor x, Tensor gamma, Tensor beta,
                  Tensor y, Tensor mean, Tensor rstd) override;
  void layer_norm_backward(std::int64_t rows, std::int64_t cols, Tensor dy, Tensor x, Tensor gamma,
                           Tensor mean, Tensor rstd, Tensor residual, Tensor dx) override;
  void layer_norm_backward_weight(std::int64_t rows, std::int64_t cols, Tensor dy, Tensor x,
                                  Tensor mean, Tensor rstd, Tensor dgamma, Tensor dbeta) override;
  void attention_softmax(const AttentionRows& shape, Tensor scores) override;
  void attention_softmax_backward(const AttentionRows& shape, Tensor probabilities,
                                  Tensor gradient) override;
  void attention(const Attention& shape, Tensor qkv, Tensor context, Tensor log_sums) override;
  void attention_backward(const Attention& shape, Tensor qkv, Tensor context, Tensor log_sums,
                          Tensor dcontext, Tensor scratch, Tensor dqkv) override;
  void gelu(std::int64_t n, Tensor z, Tensor y) override;
  void gelu_backward(std::int64_t n, Tensor dy, Tensor z, Tensor dz) override;
  void add_bias(std::int64_t rows, std::int64_t cols, Tensor bias, Tensor residual,
                Tensor y) override;
  void bias_backward(std::int64_t rows, std::int64_t cols, Tensor dy, Tensor gradient) override;
  void add_tensors(std::int64_t n, Tensor a, Tensor b, Tensor sum) override;
  void blend(std::int64_t n, float a, Tensor x, float b, Tensor y, Tensor sum) override;
  void accumulate(std::int64_t n, Tensor x, Tensor sum) override;
  void copy(std::int64_t bytes, Tensor from, Tensor to) override;
  void zero(std::int64_t bytes, Tensor to) override;
  void round(std::int64_t n, Tensor fp32, Tensor working) override;
  void fill_uniform(std::int64_t n, std::uint64_t seed, std::uint64_t stream, Tensor to) override;
  void generate_tokens(const TokenSource& source, Tensor tokens, Tensor targets) override;
  void embedding(std::int64_t rows, std::int64_t cols, std::int64_t seq_length, Tensor tokens,
                 Tensor token_table, Tensor position_table, Tensor y) override;
  void embedding_backward(std::int64_t rows, std::int64_t cols, std::int64_t seq_length,
                          Tensor tokens, Tensor dy, Tensor dtoken_table,
                          Tensor dposition_table) override;
  void cross_entropy(std::int64_t rows, std::int64_t vocab_size, Tensor logits, Tensor targets,
                     Tensor row_losses, Tensor loss) override;
  void cross_entropy_backward(std::int64_t rows, std::int64_t vocab_size, Tensor targets,
                              Tensor logits) override;
  void row_maxima(std::int64_t rows, std::int64_t cols, Tensor logits, Tensor maxima) override;
  void maximum(std::int64_t n, Tensor x, Tensor maxima) override;
  void vocabulary_sums(std::int64_t rows, std::int64_t cols, Tensor logits, Tensor targets,
                       Tensor maxima, Tensor sums, Tensor target_logits) override;
  void vocabulary_loss(std::int64_t rows, Tensor maxima, Tensor sums, Tensor target_logits,
                       Tensor loss) override;
  void vocabulary_backward(std::int64_t rows, std::int64_t cols, Tensor targets, Tensor maxima,
                           Tensor sums, Tensor logits) override;
  void choose_largest(const RowCopies& c, Tensor values) override;
  void sort_copies(const RowCopies& c, Tensor counts) override;
  void spread_rows(const RowCopies& c, Tensor x, Tensor probabilities, Tensor copies) override;
  void gather_copies(const RowCopies& c, Tensor copies, Tensor probabilities, Tensor residual,
                     Tensor y) override;
  void gather_copies_backward(const RowCopies& c, Tensor dy, Tensor copies,
                              Tensor dprobabilities) override;
  void squared_error(std::int64_t n, Tensor y, Tensor target, Tensor dy, Tensor loss) override;
  void clip(std::int64_t n, float limit, Tensor gradient) override;
  void sgd_step(std::int64_t n, const StepTensors& t, const SgdSettings& settings) override;
  void adamw_step(std::int64_t n, const StepTensors& t, const AdamwSettings& settings,
                  std::int64_t step) override;
  void muon_direction(std::int64_t n, const StepTensors& t, const MuonSettings& settings,
                      Tensor direction) override;
  void muon_step(std::int64_t n, const StepTensors& t, const MuonSettings& settings,
                 Tensor direction) override;
  void rotated_step(std::int64_t rows, std::int64_t cols, const StepTensors& t, Tensor kept,
                    Tensor scratch, const AdamwSettings& settings, std::int64_t step) override;

 private:
  template <class Work>
  void issue(Work work);

  Enqueue enqueue_;                // empty: the caller computes, and nothing is allocated for it
  RunControl* control_ = nullptr;  // where the caller computes
};

/// Throws SystemError when an OpenBLAS that calls itself so (openblas_get_parallel) cannot be
/// called by several threads at once: built without threads it mixes up their products.
void require_concurrent_blas(int parallel);
/// Of the BLAS in use.
int host_blas_parallel();

/// The BLAS in use and its kernels, for the description of a run.
std::string host_blas();

}  // namespace penstock

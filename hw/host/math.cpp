// SPDX-License-Identifier: Apache-2.0
#include "hw/host/math.hpp"

#include "base/error.hpp"
#include "hw/host/attention.hpp"
#include "hw/host/products.hpp"
#include "hw/host/rotation.hpp"
#include "hw/host/wide.hpp"
#include "hw/optimizer_kernels.hpp"
#include "hw/row_kernels.hpp"
#include "hw/run_control.hpp"

#include <cblas.h>

#include <cstring>
#include <utility>

namespace penstock {
namespace {

const kernels::HostTeam kAlone;

float* floats(Tensor t) { return t ? t.data<float>() : nullptr; }
std::int32_t* ints(Tensor t) { return t ? t.data<std::int32_t>() : nullptr; }

void multiply(const Gemm& g, const float* a, const float* b, float* c) {
  for (std::int64_t i = 0; i < g.batch; ++i) {
    penstock::multiply(g.m, g.n, g.k, g.alpha, {a + i * g.stride_a, g.lda, g.transpose_a},
                       {b + i * g.stride_b, g.ldb, g.transpose_b}, g.beta, c + i * g.stride_c,
                       g.ldc);
  }
}

}  // namespace

void require_concurrent_blas(int parallel) {
  if (parallel != OPENBLAS_SEQUENTIAL) return;
  throw SystemError(
      "this OpenBLAS was built without threads and gives wrong products to concurrent callers; "
      "install libopenblas-pthread-dev");
}

int host_blas_parallel() { return openblas_get_parallel(); }

std::string host_blas() { return openblas_get_config(); }

HostMath::HostMath(Enqueue enqueue) : enqueue_(std::move(enqueue)) { openblas_set_num_threads(1); }

HostMath::HostMath(RunControl& control) : control_(&control) { openblas_set_num_threads(1); }

template <class Work>
void HostMath::issue(Work work) {
  if (enqueue_) {
    enqueue_(std::move(work));
  } else {
    control_->throw_if_stopped();
    work();
    control_->progress();
  }
}

void HostMath::gemm(const Gemm& shape, Tensor a, Tensor b, Tensor c) {
  issue([=] { multiply(shape, floats(a), floats(b), floats(c)); });
}

void HostMath::layer_norm(std::int64_t rows, std::int64_t cols, Tensor x, Tensor gamma, Tensor beta,
                          Tensor y, Tensor mean, Tensor rstd) {
  issue([=] {
    wide::layer_norm(rows, cols, floats(x), floats(gamma), floats(beta), floats(y), floats(mean),
                     floats(rstd));
  });
}

void HostMath::layer_norm_backward(std::int64_t rows, std::int64_t cols, Tensor dy, Tensor x,
                                   Tensor gamma, Tensor mean, Tensor rstd, Tensor residual,
                                   Tensor dx) {
  issue([=] {
    wide::layer_norm_backward(rows, cols, floats(dy), floats(x), floats(gamma), floats(mean),
                              floats(rstd), floats(residual), floats(dx));
  });
}

void HostMath::layer_norm_backward_weight(std::int64_t rows, std::int64_t cols, Tensor dy, Tensor x,
                                          Tensor mean, Tensor rstd, Tensor dgamma, Tensor dbeta) {
  issue([=] {
    wide::layer_norm_backward_weight(rows, cols, floats(dy), floats(x), floats(mean), floats(rstd),
                                     floats(dgamma), floats(dbeta));
  });
}

void HostMath::attention_softmax(const AttentionRows& shape, Tensor scores) {
  issue([=] {
    for (std::int64_t r = 0; r < shape.rows; ++r) {
      wide::softmax_row(kernels::visible_keys(shape, r), shape.keys, shape.scale,
                        floats(scores) + r * shape.keys);
    }
  });
}

void HostMath::attention_softmax_backward(const AttentionRows& shape, Tensor probabilities,
                                          Tensor gradient) {
  issue([=] {
    for (std::int64_t r = 0; r < shape.rows; ++r) {
      wide::softmax_backward_row(kernels::visible_keys(shape, r), shape.keys, shape.scale,
                                 floats(probabilities) + r * shape.keys,
                                 floats(gradient) + r * shape.keys);
    }
  });
}

void HostMath::attention(const Attention& shape, Tensor qkv, Tensor context, Tensor log_sums) {
  issue([=] { attend(shape, floats(qkv), floats(context), floats(log_sums)); });
}

void HostMath::attention_backward(const Attention& shape, Tensor qkv, Tensor context,
                                  Tensor log_sums, Tensor dcontext, Tensor, Tensor dqkv) {
  issue([=] {
    attend_backward(shape, floats(qkv), floats(context), floats(log_sums), floats(dcontext),
                    floats(dqkv));
  });
}

void HostMath::gelu(std::int64_t n, Tensor z, Tensor y) {
  issue([=] { wide::gelu(n, floats(z), floats(y)); });
}

void HostMath::gelu_backward(std::int64_t n, Tensor dy, Tensor z, Tensor dz) {
  issue([=] { wide::gelu_backward(n, floats(dy), floats(z), floats(dz)); });
}

void HostMath::add_bias(std::int64_t rows, std::int64_t cols, Tensor bias, Tensor residual,
                        Tensor y) {
  issue([=] { wide::add_bias(rows, cols, floats(bias), floats(residual), floats(y)); });
}

void HostMath::bias_backward(std::int64_t rows, std::int64_t cols, Tensor dy, Tensor gradient) {
  issue([=] { wide::bias_backward(rows, cols, floats(dy), floats(gradient)); });
}

void HostMath::add_tensors(std::int64_t n, Tensor a, Tensor b, Tensor sum) {
  issue([=] { kernels::add_each(kAlone, n, floats(a), floats(b), floats(sum)); });
}

void HostMath::blend(std::int64_t n, float a, Tensor x, float b, Tensor y, Tensor sum) {
  issue([=] { kernels::blend_each(kAlone, n, a, floats(x), b, floats(y), floats(sum)); });
}

void HostMath::accumulate(std::int64_t n, Tensor x, Tensor sum) {
  issue([=] { kernels::add_each(kAlone, n, floats(sum), floats(x), floats(sum)); });
}

void HostMath::copy(std::int64_t bytes, Tensor from, Tensor to) {
  issue([=] { std::memcpy(to.data<char>(), from.data<char>(), static_cast<std::size_t>(bytes)); });
}

void HostMath::zero(std::int64_t bytes, Tensor to) {
  issue([=] { std::memset(to.data<char>(), 0, static_cast<std::size_t>(bytes)); });
}

void HostMath::round(std::int64_t n, Tensor fp32, Tensor working) {
  issue([=] { kernels::round_each(kAlone, n, floats(fp32), floats(working)); });
}

void HostMath::fill_uniform(std::int64_t n, std::uint64_t seed, std::uint64_t stream, Tensor to) {
  issue([=] { kernels::fill_uniform_each(kAlone, n, seed, stream, floats(to)); });
}

void HostMath::generate_tokens(const TokenSource& source, Tensor tokens, Tensor targets) {
  issue([=] { kernels::generate_tokens_each(kAlone, source, ints(tokens), ints(targets)); });
}

void HostMath::embedding(std::int64_t rows, std::int64_t cols, std::int64_t seq_length,
                         Tensor tokens, Tensor token_table, Tensor position_table, Tensor y) {
  issue([=] {
    for (std::int64_t r = 0; r < rows; ++r) {
      kernels::embedding_row(kAlone, r, cols, seq_length, ints(tokens), floats(token_table),
                             floats(position_table), floats(y));
    }
  });
}

void HostMath::embedding_backward(std::int64_t rows, std::int64_t cols, std::int64_t seq_length,
                                  Tensor tokens, Tensor dy, Tensor dtoken_table,
                                  Tensor dposition_table) {
  issue([=] {
    for (std::int64_t r = 0; r < rows; ++r) {
      kernels::token_table_backward_row(kAlone, r, rows, cols, ints(tokens), floats(dy),
                                        floats(dtoken_table));
    }
    for (std::int64_t p = 0; p < seq_length; ++p) {
      kernels::position_table_backward_row(kAlone, p, rows, cols, seq_length, floats(dy),
                                           floats(dposition_table));
    }
  });
}

void HostMath::cross_entropy(std::int64_t rows, std::int64_t vocab_size, Tensor logits,
                             Tensor targets, Tensor row_losses, Tensor loss) {
  issue([=] {
    for (std::int64_t r = 0; r < rows; ++r) {
      kernels::cross_entropy_row(kAlone, r, vocab_size, floats(logits), ints(targets),
                                 floats(row_losses));
    }
    kernels::mean_of(kAlone, rows, floats(row_losses), floats(loss));
  });
}

void HostMath::cross_entropy_backward(std::int64_t rows, std::int64_t vocab_size, Tensor targets,
                                      Tensor logits) {
  issue([=] {
    for (std::int64_t r = 0; r < rows; ++r) {
      kernels::cross_entropy_backward_row(kAlone, r, rows, vocab_size, ints(targets),
                                          floats(logits));
    }
  });
}

void HostMath::row_maxima(std::int64_t rows, std::int64_t cols, Tensor logits, Tensor maxima) {
  issue([=] {
    for (std::int64_t r = 0; r < rows; ++r)
      kernels::row_maximum(kAlone, r, cols, floats(logits), floats(maxima));
  });
}

void HostMath::maximum(std::int64_t n, Tensor x, Tensor maxima) {
  issue([=] { kernels::maximum_each(kAlone, n, floats(x), floats(maxima)); });
}

void HostMath::vocabulary_sums(std::int64_t rows, std::int64_t cols, Tensor logits, Tensor targets,
                               Tensor maxima, Tensor sums, Tensor target_logits) {
  issue([=] {
    for (std::int64_t r = 0; r < rows; ++r) {
      kernels::vocabulary_part_row(kAlone, r, cols, floats(logits), ints(targets), floats(maxima),
                                   floats(sums), floats(target_logits));
    }
  });
}

void HostMath::vocabulary_loss(std::int64_t rows, Tensor maxima, Tensor sums, Tensor target_logits,
                               Tensor loss) {
  issue([=] {
    kernels::vocabulary_losses_each(kAlone, rows, floats(maxima), floats(sums),
                                    floats(target_logits));
    kernels::mean_of(kAlone, rows, floats(target_logits), floats(loss));
  });
}

void HostMath::vocabulary_backward(std::int64_t rows, std::int64_t cols, Tensor targets,
                                   Tensor maxima, Tensor sums, Tensor logits) {
  issue([=] {
    for (std::int64_t r = 0; r < rows; ++r) {
      kernels::vocabulary_backward_row(kAlone, r, rows, cols, ints(targets), floats(maxima),
                                       floats(sums), floats(logits));
    }
  });
}

void HostMath::choose_largest(const RowCopies& c, Tensor values) {
  issue([=] {
    for (std::int64_t r = 0; r < c.rows; ++r)
      kernels::largest_row(kAlone, r, c.kinds, c.per_row, floats(values), ints(c.chosen));
  });
}

void HostMath::sort_copies(const RowCopies& c, Tensor counts) {
  issue([=] {
    for (std::int64_t k = 0; k < c.kinds; ++k)
      kernels::copies_of_kind(kAlone, k, c.copies(), ints(c.chosen), ints(counts));
    for (std::int64_t k = 0; k < c.kinds; ++k)
      kernels::places_of_kind(kAlone, k, c.copies(), ints(c.chosen), ints(counts), ints(c.places));
  });
}

void HostMath::spread_rows(const RowCopies& c, Tensor x, Tensor probabilities, Tensor copies) {
  issue([=] {
    for (std::int64_t r = 0; r < c.rows; ++r)
      kernels::spread_row(kAlone, r, c.cols, c.per_row, c.kinds, ints(c.chosen), ints(c.places),
                          floats(x), floats(probabilities), floats(copies));
  });
}

void HostMath::gather_copies(const RowCopies& c, Tensor copies, Tensor probabilities,
                             Tensor residual, Tensor y) {
  issue([=] {
    for (std::int64_t r = 0; r < c.rows; ++r)
      kernels::gather_row(kAlone, r, c.cols, c.per_row, c.kinds, ints(c.chosen), ints(c.places),
                          floats(copies), floats(probabilities), floats(residual), floats(y));
  });
}

void HostMath::gather_copies_backward(const RowCopies& c, Tensor dy, Tensor copies,
                                      Tensor dprobabilities) {
  issue([=] {
    for (std::int64_t r = 0; r < c.rows; ++r)
      kernels::gather_backward_row(kAlone, r, c.cols, c.per_row, c.kinds, ints(c.chosen),
                                   ints(c.places), floats(dy), floats(copies),
                                   floats(dprobabilities));
  });
}

void HostMath::squared_error(std::int64_t n, Tensor y, Tensor target, Tensor dy, Tensor loss) {
  issue([=] {
    kernels::squared_error_all(kAlone, n, floats(y), floats(target), floats(dy), floats(loss));
  });
}

void HostMath::clip(std::int64_t n, float limit, Tensor gradient) {
  issue([=] { kernels::clip_all(kAlone, n, limit, floats(gradient)); });
}

void HostMath::sgd_step(std::int64_t n, const StepTensors& t, const SgdSettings& settings) {
  issue([=] {
    kernels::sgd_each(kAlone, n, kernels::pointers<float>(t), kernels::factors(settings));
  });
}

void HostMath::adamw_step(std::int64_t n, const StepTensors& t, const AdamwSettings& settings,
                          std::int64_t step) {
  issue([=] {
    const kernels::AdamwFactors f = kernels::factors(settings, step);
    const kernels::StepPointers<float> p = kernels::pointers<float>(t);
    wide::adamw(n, f, p.master_in, p.master_out, p.gradient, p.first_moment, p.second_moment);
    if (p.working_out != nullptr)
      std::memcpy(p.working_out, p.master_out, static_cast<std::size_t>(n) * sizeof(float));
  });
}

void HostMath::muon_direction(std::int64_t n, const StepTensors& t, const MuonSettings& settings,
                              Tensor direction) {
  issue([=] {
    kernels::muon_direction_all(kAlone, n, floats(t.gradient), floats(t.first_moment),
                                kernels::factors(settings), floats(direction));
  });
}

void HostMath::muon_step(std::int64_t n, const StepTensors& t, const MuonSettings& settings,
                         Tensor direction) {
  issue([=] {
    kernels::muon_each(kAlone, n, kernels::pointers<float>(t), kernels::factors(settings),
                       floats(direction));
  });
}

void HostMath::rotated_step(std::int64_t rows, std::int64_t cols, const StepTensors& t, Tensor kept,
                            Tensor scratch, const AdamwSettings& settings, std::int64_t step) {
  issue([=] {
    const kernels::StepPointers<float> p = kernels::pointers<float>(t);
    penstock::rotated_step({rows, cols, p.master_in, p.master_out, p.gradient, p.first_moment,
                            p.second_moment, floats(kept), floats(scratch)},
                           kernels::factors(settings, step), step);
    if (p.working_out != nullptr)
      std::memcpy(p.working_out, p.master_out, static_cast<std::size_t>(rows * cols) * 4);
  });
}

}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
#include "hw/cuda/math.hpp"

#include "hw/cuda/attention.cuh"
#include "hw/cuda/gemm.hpp"
#include "hw/cuda/teams.cuh"
#include "hw/optimizer_kernels.hpp"

#include <initializer_list>
#include <optional>
#include <type_traits>
#include <vector>

namespace penstock::cuda {
namespace {

namespace k = kernels;
using std::int32_t;
using std::int64_t;

template <class T>
using MultiplyOf = std::conditional_t<sizeof(T) == 2, TensorMultiply, PlainMultiply>;

/// f(the size) of tiles that a head fits into, as a constant.
template <class F>
void with_tile_size(std::int64_t head_size, const F& f) {
  if (head_size <= 32) return f(std::integral_constant<int, 32>{});
  if (head_size <= 64) return f(std::integral_constant<int, 64>{});
  invariant(head_size <= kMostHeadSize, "a head of attention fits");
  f(std::integral_constant<int, 128>{});
}

/// T: the working type.
template <class T>
class CudaMath : public Math {
 public:
  CudaMath(const MathSettings& settings, std::function<void(std::function<void()>)> enqueue)
      : stream_(settings.stream),
        sms_(settings.sms),
        enqueue_(std::move(enqueue)),
        settings_(settings),
        gemm_(settings.stream, settings.sms, settings.bf16) {
    if (sms_ > 0) return;
    int gpu = 0;
    check(cudaGetDevice(&gpu), "find the GPU");
    check(cudaDeviceGetAttribute(&sms_, cudaDevAttrMultiProcessorCount, gpu), "count the SMs");
  }

  int element_bytes() const override { return sizeof(T); }
  std::string remarks() const override { return gemm_.describe_epilogues(); }

  void gemm(const Gemm& shape, Tensor a, Tensor b, Tensor c) override {
    enqueue_([=, this] { gemm_.run_gemm(shape, a, b, c); });
  }
  void gemm_with(const Gemm& shape, Tensor a, Tensor b, Tensor c, const Epilogue& e) override {
    enqueue_([=, this] {
      if (!gemm_.run_gemm(shape, a, b, c, e)) return multiply_then(shape, a, b, c, e);
      if (e.kind != Epilogue::Kind::bias_gradient) return;
      accumulate_now(shape.m, gemm_.bias_sums(), e.bias);
    });
  }

  void layer_norm(int64_t rows, int64_t cols, Tensor x, Tensor gamma, Tensor beta, Tensor y,
                  Tensor mean, Tensor rstd) override {
    enqueue_([=, this] {
      with_pieces(cols, {x, gamma, beta, y}, [&]<int n>(Piece<n>) {
        launch_rows<&k::layer_norm_row<n, BlockTeam, T>>(stream_, rows, 1, cols, in(x), in(gamma),
                                                         in(beta), out(y), fp32(mean), fp32(rstd));
      });
    });
  }
  void layer_norm_backward(int64_t rows, int64_t cols, Tensor dy, Tensor x, Tensor gamma,
                           Tensor mean, Tensor rstd, Tensor residual, Tensor dx) override {
    enqueue_([=, this] {
      with_pieces(cols, {dy, x, gamma, residual, dx}, [&]<int n>(Piece<n>) {
        launch_rows<&k::layer_norm_backward_row<n, BlockTeam, T>>(
            stream_, rows, 1, cols, in(dy), in(x), in(gamma), fp32_in(mean), fp32_in(rstd),
            in(residual), out(dx));
      });
    });
  }
  void layer_norm_backward_weight(int64_t rows, int64_t cols, Tensor dy, Tensor x, Tensor mean,
                                  Tensor rstd, Tensor dgamma, Tensor dbeta) override {
    enqueue_([=, this] {
      with_pieces(cols, {dy, x}, [&]<int n>(Piece<n>) {
        launch_rows<&k::layer_norm_backward_columns<n, BlockTeam, T>>(
            stream_, cols, BlockTeam::columns, rows, cols, in(dy), in(x), fp32_in(mean),
            fp32_in(rstd), fp32(dgamma), fp32(dbeta));
      });
    });
  }

  void attention_softmax(const AttentionRows& shape, Tensor scores) override {
    enqueue_([=, this] {
      with_pieces(shape.keys, {scores}, [&]<int n>(Piece<n>) {
        launch_rows<&k::attention_softmax_row<n, BlockTeam, T>>(stream_, shape.rows, 1, shape,
                                                                out(scores));
      });
    });
  }
  void attention_softmax_backward(const AttentionRows& shape, Tensor probabilities,
                                  Tensor gradient) override {
    enqueue_([=, this] {
      with_pieces(shape.keys, {probabilities, gradient}, [&]<int n>(Piece<n>) {
        launch_rows<&k::attention_softmax_backward_row<n, BlockTeam, T>>(
            stream_, shape.rows, 1, shape, in(probabilities), out(gradient));
      });
    });
  }

  void attention(const Attention& shape, Tensor qkv, Tensor context, Tensor log_sums) override {
    enqueue_([=, this] {
      with_tile_size(shape.head_size, [&](auto size) {
        launch_tiles(stream_, shape.sequences * shape.heads,
                     AttentionForward<MultiplyOf<T>, decltype(size)::value>{
                         AttentionShape::from_attention(shape, sizeof(T)), in(qkv), out(context),
                         fp32(log_sums)});
      });
    });
  }
  void attention_backward(const Attention& shape, Tensor qkv, Tensor context, Tensor log_sums,
                          Tensor dcontext, Tensor scratch, Tensor dqkv) override {
    enqueue_([=, this] {
      const AttentionShape of = AttentionShape::from_attention(shape, sizeof(T));
      with_pieces(shape.head_size, {context, dcontext}, [&]<int n>(Piece<n>) {
        launch_grid<&context_products_each<GridTeam, T, n>>(
            stream_, sms_, shape.sums(), of, in(context), in(dcontext), fp32(scratch));
      });
      with_tile_size(shape.head_size, [&](auto size) {
        constexpr int kSize = decltype(size)::value;
        const std::int64_t heads = shape.sequences * shape.heads;
        launch_tiles(stream_, heads,
                     AttentionBackward<MultiplyOf<T>, kSize, true>{
                         of, in(qkv), in(dcontext), fp32(log_sums), fp32(scratch), out(dqkv)});
        launch_tiles(stream_, heads,
                     AttentionBackward<MultiplyOf<T>, kSize, false>{
                         of, in(qkv), in(dcontext), fp32(log_sums), fp32(scratch), out(dqkv)});
      });
    });
  }

  void gelu(int64_t n, Tensor z, Tensor y) override {
    enqueue_([=, this] { gelu_now(n, z, y); });
  }
  void gelu_backward(int64_t n, Tensor dy, Tensor z, Tensor dz) override {
    enqueue_([=, this] { gelu_backward_now(n, dy, z, dz); });
  }

  void add_bias(int64_t rows, int64_t cols, Tensor bias, Tensor residual, Tensor y) override {
    enqueue_([=, this] { add_bias_now(rows, cols, bias, residual, y); });
  }
  void bias_backward(int64_t rows, int64_t cols, Tensor dy, Tensor gradient) override {
    enqueue_([=, this] { bias_backward_now(rows, cols, dy, gradient); });
  }

  void add_tensors(int64_t n, Tensor a, Tensor b, Tensor sum) override {
    enqueue_([=, this] {
      with_pieces(n, {a, b, sum}, [&]<int pieces>(Piece<pieces>) {
        launch_grid<&k::add_each<pieces, GridTeam, T>>(stream_, sms_, n / pieces, n, in(a), in(b),
                                                       out(sum));
      });
    });
  }
  void blend(int64_t n, float a, Tensor x, float b, Tensor y, Tensor sum) override {
    enqueue_([=, this] {
      with_pieces(n, {x, y, sum}, [&]<int pieces>(Piece<pieces>) {
        launch_grid<&k::blend_each<pieces, GridTeam, T>>(stream_, sms_, n / pieces, n, a, in(x), b,
                                                         in(y), out(sum));
      });
    });
  }
  void accumulate(int64_t n, Tensor x, Tensor sum) override {
    enqueue_([=, this] { accumulate_now(n, fp32_in(x), sum, x); });
  }
  void copy(int64_t bytes, Tensor from, Tensor to) override {
    enqueue_([=, this] {
      check(cudaMemcpyAsync(to.data<void>(), from.data<void>(), static_cast<std::size_t>(bytes),
                            cudaMemcpyDeviceToDevice, stream_),
            "copy on the GPU");
    });
  }
  void zero(int64_t bytes, Tensor to) override {
    enqueue_([=, this] {
      check(cudaMemsetAsync(to.data<void>(), 0, static_cast<std::size_t>(bytes), stream_),
            "clear memory");
    });
  }
  void round(int64_t n, Tensor from, Tensor working) override {
    enqueue_([=, this] {
      with_pieces(n, {from, working}, [&]<int pieces>(Piece<pieces>) {
        launch_grid<&k::round_each<pieces, GridTeam, T>>(stream_, sms_, n / pieces, n,
                                                         fp32_in(from), out(working));
      });
    });
  }
  void fill_uniform(int64_t n, std::uint64_t seed, std::uint64_t stream, Tensor to) override {
    enqueue_([=, this] {
      with_pieces(n, {to}, [&]<int pieces>(Piece<pieces>) {
        launch_grid<&k::fill_uniform_each<pieces, GridTeam, T>>(stream_, sms_, n / pieces, n, seed,
                                                                stream, out(to));
      });
    });
  }

  void generate_tokens(const TokenSource& source, Tensor tokens, Tensor targets) override {
    enqueue_([=, this] {
      launch_grid<&k::generate_tokens_each<GridTeam>>(stream_, sms_, source.rows(), source,
                                                      ids(tokens), ids(targets));
    });
  }
  void embedding(int64_t rows, int64_t cols, int64_t seq_length, Tensor tokens, Tensor token_table,
                 Tensor position_table, Tensor y) override {
    enqueue_([=, this] {
      with_pieces(cols, {token_table, position_table, y}, [&]<int n>(Piece<n>) {
        launch_rows<&k::embedding_row<n, BlockTeam, T>>(stream_, rows, 1, cols, seq_length,
                                                        ids_in(tokens), in(token_table),
                                                        in(position_table), out(y));
      });
    });
  }
  void embedding_backward(int64_t rows, int64_t cols, int64_t seq_length, Tensor tokens, Tensor dy,
                          Tensor dtoken_table, Tensor dposition_table) override {
    enqueue_([=, this] {
      with_pieces(cols, {dy, dtoken_table, dposition_table}, [&]<int n>(Piece<n>) {
        launch_rows<&k::token_table_backward_row<n, BlockTeam, T>>(
            stream_, rows, 1, rows, cols, ids_in(tokens), in(dy), fp32(dtoken_table));
        launch_rows<&k::position_table_backward_row<n, BlockTeam, T>>(
            stream_, seq_length, 1, rows, cols, seq_length, in(dy), fp32(dposition_table));
      });
    });
  }

  void cross_entropy(int64_t rows, int64_t vocab_size, Tensor logits, Tensor targets,
                     Tensor row_losses, Tensor loss) override {
    enqueue_([=, this] {
      with_pieces(vocab_size, {logits}, [&]<int n>(Piece<n>) {
        launch_rows<&k::cross_entropy_row<n, BlockTeam, T>>(
            stream_, rows, 1, vocab_size, in(logits), ids_in(targets), fp32(row_losses));
      });
      launch_block<&k::mean_of<BlockTeam>>(stream_, rows, fp32_in(row_losses), fp32(loss));
    });
  }
  void cross_entropy_backward(int64_t rows, int64_t vocab_size, Tensor targets,
                              Tensor logits) override {
    enqueue_([=, this] {
      with_pieces(vocab_size, {logits}, [&]<int n>(Piece<n>) {
        launch_rows<&k::cross_entropy_backward_row<n, BlockTeam, T>>(
            stream_, rows, 1, rows, vocab_size, ids_in(targets), out(logits));
      });
    });
  }
  void row_maxima(int64_t rows, int64_t cols, Tensor logits, Tensor maxima) override {
    enqueue_([=, this] {
      with_pieces(cols, {logits}, [&]<int n>(Piece<n>) {
        launch_rows<&k::row_maximum<n, BlockTeam, T>>(stream_, rows, 1, cols, in(logits),
                                                      fp32(maxima));
      });
    });
  }
  void maximum(int64_t n, Tensor x, Tensor maxima) override {
    enqueue_([=, this] {
      with_pieces(n, {x, maxima}, [&]<int pieces>(Piece<pieces>) {
        launch_grid<&k::maximum_each<pieces, GridTeam>>(stream_, sms_, n / pieces, n, fp32_in(x),
                                                        fp32(maxima));
      });
    });
  }
  void vocabulary_sums(int64_t rows, int64_t cols, Tensor logits, Tensor targets, Tensor maxima,
                       Tensor sums, Tensor target_logits) override {
    enqueue_([=, this] {
      with_pieces(cols, {logits}, [&]<int n>(Piece<n>) {
        launch_rows<&k::vocabulary_part_row<n, BlockTeam, T>>(stream_, rows, 1, cols, in(logits),
                                                              ids_in(targets), fp32_in(maxima),
                                                              fp32(sums), fp32(target_logits));
      });
    });
  }
  void vocabulary_loss(int64_t rows, Tensor maxima, Tensor sums, Tensor target_logits,
                       Tensor loss) override {
    enqueue_([=, this] {
      launch_block<&k::vocabulary_losses_each<BlockTeam>>(stream_, rows, fp32_in(maxima),
                                                          fp32_in(sums), fp32(target_logits));
      launch_block<&k::mean_of<BlockTeam>>(stream_, rows, fp32_in(target_logits), fp32(loss));
    });
  }
  void vocabulary_backward(int64_t rows, int64_t cols, Tensor targets, Tensor maxima, Tensor sums,
                           Tensor logits) override {
    enqueue_([=, this] {
      with_pieces(cols, {logits}, [&]<int n>(Piece<n>) {
        launch_rows<&k::vocabulary_backward_row<n, BlockTeam, T>>(stream_, rows, 1, rows, cols,
                                                                  ids_in(targets), fp32_in(maxima),
                                                                  fp32_in(sums), out(logits));
      });
    });
  }
  void choose_largest(const RowCopies& c, Tensor values) override {
    enqueue_([=, this] {
      launch_rows<&k::largest_row<BlockTeam, T>>(stream_, c.rows, 1, int64_t{c.kinds}, c.per_row,
                                                 in(values), ids(c.chosen));
    });
  }
  void sort_copies(const RowCopies& c, Tensor counts) override {
    enqueue_([=, this] {
      launch_rows<&k::copies_of_kind<BlockTeam>>(stream_, c.kinds, 1, c.copies(), ids_in(c.chosen),
                                                 ids(counts));
      launch_rows<&k::places_of_kind<BlockTeam>>(stream_, c.kinds, 1, c.copies(), ids_in(c.chosen),
                                                 ids_in(counts), ids(c.places));
    });
  }
  void spread_rows(const RowCopies& c, Tensor x, Tensor probabilities, Tensor copies) override {
    enqueue_([=, this] {
      launch_rows<&k::spread_row<BlockTeam, T>>(stream_, c.rows, 1, c.cols, c.per_row, c.kinds,
                                                ids_in(c.chosen), ids_in(c.places), in(x),
                                                in(probabilities), out(copies));
    });
  }
  void gather_copies(const RowCopies& c, Tensor copies, Tensor probabilities, Tensor residual,
                     Tensor y) override {
    enqueue_([=, this] {
      launch_rows<&k::gather_row<BlockTeam, T>>(stream_, c.rows, 1, c.cols, c.per_row, c.kinds,
                                                ids_in(c.chosen), ids_in(c.places), in(copies),
                                                in(probabilities), in(residual), out(y));
    });
  }
  void gather_copies_backward(const RowCopies& c, Tensor dy, Tensor copies,
                              Tensor dprobabilities) override {
    enqueue_([=, this] {
      launch_rows<&k::gather_backward_row<BlockTeam, T>>(
          stream_, c.rows, 1, c.cols, c.per_row, c.kinds, ids_in(c.chosen), ids_in(c.places),
          in(dy), in(copies), out(dprobabilities));
    });
  }
  void squared_error(int64_t n, Tensor y, Tensor target, Tensor dy, Tensor loss) override {
    enqueue_([=, this] {
      launch_block<&k::squared_error_all<BlockTeam, T>>(stream_, n, in(y), in(target), out(dy),
                                                        fp32(loss));
    });
  }

  void clip(int64_t n, float limit, Tensor gradient) override {
    enqueue_([=, this] {
      with_pieces(n, {gradient}, [&]<int pieces>(Piece<pieces>) {
        launch_block<&k::clip_all<pieces, BlockTeam>>(stream_, n, limit, fp32(gradient));
      });
    });
  }
  void sgd_step(int64_t n, const StepTensors& t, const SgdSettings& settings) override {
    enqueue_([=, this] {
      with_step_pieces(n, t, [&]<int pieces>(Piece<pieces>) {
        launch_grid<&k::sgd_each<pieces, GridTeam, T>>(stream_, sms_, n / pieces, n,
                                                       k::pointers<T>(t), k::factors(settings));
      });
    });
  }
  void adamw_step(int64_t n, const StepTensors& t, const AdamwSettings& settings,
                  int64_t step) override {
    enqueue_([=, this] {
      with_step_pieces(n, t, [&]<int pieces>(Piece<pieces>) {
        launch_grid<&k::adamw_each<pieces, GridTeam, T>>(
            stream_, sms_, n / pieces, n, k::pointers<T>(t), k::factors(settings, step));
      });
    });
  }
  void muon_direction(int64_t n, const StepTensors& t, const MuonSettings& settings,
                      Tensor direction) override {
    enqueue_([=, this] {
      with_pieces(n, {t.gradient, t.first_moment, direction}, [&]<int pieces>(Piece<pieces>) {
        launch_block<&k::muon_direction_all<pieces, BlockTeam, T>>(
            stream_, n, fp32_in(t.gradient), fp32(t.first_moment), k::factors(settings),
            out(direction));
      });
    });
  }
  void muon_step(int64_t n, const StepTensors& t, const MuonSettings& settings,
                 Tensor direction) override {
    enqueue_([=, this] {
      with_step_pieces(n, t, [&]<int pieces>(Piece<pieces>) {
        launch_grid<&k::muon_each<pieces, GridTeam, T, T>>(
            stream_, sms_, n / pieces, n, k::pointers<T>(t), k::factors(settings), in(direction));
      });
    });
  }
  void rotated_step(int64_t rows, int64_t cols, const StepTensors& t, Tensor kept, Tensor scratch,
                    const AdamwSettings& settings, int64_t step) override {
    enqueue_([=, this] {
      rotation_step_now({rows, cols, t, kept, scratch}, k::factors(settings, step), step);
    });
  }

 private:
  template <int n>
  using Piece = std::integral_constant<int, n>;
  /// f(how many elements are loaded at once): 16 bytes of the working type where all rows of all
  /// of them allow it. Of fp32 beside bf16 that is two loads.
  template <class F>
  static void with_pieces(int64_t cols, std::initializer_list<Tensor> tensors, const F& f) {
    constexpr int kPiece = 16 / sizeof(T);
    bool whole = cols % kPiece == 0;
    for (const Tensor& t : tensors) whole = whole && t.offset_bytes % 16 == 0;
    if (whole) return f(Piece<kPiece>{});
    f(Piece<1>{});
  }

  template <class F>
  static void with_step_pieces(int64_t n, const StepTensors& t, const F& f) {
    with_pieces(
        n, {t.master_in, t.master_out, t.working_out, t.gradient, t.first_moment, t.second_moment},
        f);
  }

  /// `at`: where x is, if it does not begin a block.
  void accumulate_now(int64_t n, const float* x, Tensor sum, Tensor at = {}) {
    with_pieces(n, {at, sum}, [&]<int pieces>(Piece<pieces>) {
      launch_grid<&k::add_each<pieces, GridTeam, float>>(stream_, sms_, n / pieces, n, fp32_in(sum),
                                                         x, fp32(sum));
    });
  }
  void gelu_now(int64_t n, Tensor z, Tensor y) {
    with_pieces(n, {z, y}, [&]<int pieces>(Piece<pieces>) {
      launch_grid<&k::gelu_each<pieces, GridTeam, T>>(stream_, sms_, n / pieces, n, in(z), out(y));
    });
  }
  void gelu_backward_now(int64_t n, Tensor dy, Tensor z, Tensor dz) {
    with_pieces(n, {dy, z, dz}, [&]<int pieces>(Piece<pieces>) {
      launch_grid<&k::gelu_backward_each<pieces, GridTeam, T>>(stream_, sms_, n / pieces, n, in(dy),
                                                               in(z), out(dz));
    });
  }
  void add_bias_now(int64_t rows, int64_t cols, Tensor bias, Tensor residual, Tensor y) {
    with_pieces(cols, {bias, residual, y}, [&]<int n>(Piece<n>) {
      launch_rows<&k::add_bias_row<n, BlockTeam, T>>(stream_, rows, 1, cols, in(bias), in(residual),
                                                     out(y));
    });
  }
  void bias_backward_now(int64_t rows, int64_t cols, Tensor dy, Tensor gradient) {
    with_pieces(cols, {dy}, [&]<int n>(Piece<n>) {
      launch_rows<&k::bias_backward_columns<n, BlockTeam, T>>(stream_, cols, BlockTeam::columns,
                                                              rows, cols, in(dy), fp32(gradient));
    });
  }
  /// As Math::gemm_with.
  void multiply_then(const Gemm& shape, Tensor a, Tensor b, Tensor c, const Epilogue& e) {
    const bool gelu_follows = e.kind == Epilogue::Kind::bias_gelu;
    const Tensor product = gelu_follows ? e.aux : c;
    gemm_.run_gemm(shape, a, b, product);
    switch (e.kind) {
      case Epilogue::Kind::bias_gelu:
      case Epilogue::Kind::bias: add_bias_now(shape.m, shape.n, e.bias, e.residual, product); break;
      case Epilogue::Kind::gelu_backward: return gelu_backward_now(shape.m * shape.n, c, e.aux, c);
      case Epilogue::Kind::bias_gradient: return bias_backward_now(shape.k, shape.m, a, e.bias);
    }
    if (gelu_follows) gelu_now(shape.m * shape.n, product, c);
  }
  /// A matrix whose step is rotated, as the host's is: `kept` and `scratch` have the same layout.
  struct Rotation {
    int64_t r, c;
    StepTensors t;
    Tensor kept, scratch;
    int64_t n() const { return r * c; }
    Tensor right_mean() const { return kept.at(4 * r * r); }
    Tensor bases() const { return kept.at(4 * (r * r + c * c)); }
    Tensor right() const { return bases().at(4 * r * r); }
    Tensor other() const { return scratch.at(4 * n()); }
  };
  void rotation_step_now(const Rotation& m, k::AdamwFactors f, int64_t step) {
    const int64_t r = m.r, c = m.c, n = m.n();
    const Tensor g = m.t.gradient, x = m.scratch;
    with_pieces(n, {g, m.t.first_moment}, [&]<int pieces>(Piece<pieces>) {
      launch_grid<&k::rotation_moment_each<pieces, GridTeam>>(stream_, sms_, n / pieces, n, fp32(g),
                                                              fp32(m.t.first_moment), f);
    });
    multiply_fp32({.m = r,
                   .n = r,
                   .k = c,
                   .transpose_b = true,
                   .lda = c,
                   .ldb = c,
                   .ldc = r,
                   .alpha = f.one_minus_beta2,
                   .beta = f.beta2},
                  g, g, m.kept);
    multiply_fp32({.m = c,
                   .n = c,
                   .k = r,
                   .transpose_a = true,
                   .lda = c,
                   .ldb = c,
                   .ldc = c,
                   .alpha = f.one_minus_beta2,
                   .beta = f.beta2},
                  g, g, m.right_mean());
    if (renews_bases(step)) renew_on_host(m, step);
    rotate(m, g, false);
    with_pieces(n, {x, m.t.second_moment}, [&]<int pieces>(Piece<pieces>) {
      launch_grid<&k::rotation_square_each<pieces, GridTeam>>(
          stream_, sms_, n / pieces, n, fp32_in(x), fp32(m.t.second_moment), f);
    });
    rotate(m, m.t.first_moment, false);
    with_pieces(n, {x, m.t.second_moment}, [&]<int pieces>(Piece<pieces>) {
      launch_grid<&k::rotation_quotient_each<pieces, GridTeam>>(
          stream_, sms_, n / pieces, n, fp32(x), fp32_in(m.t.second_moment), f);
    });
    rotate(m, x, true);
    with_step_pieces(n, m.t, [&]<int pieces>(Piece<pieces>) {
      launch_grid<&k::muon_each<pieces, GridTeam, T, float>>(
          stream_, sms_, n / pieces, n, k::pointers<T>(m.t), k::rotation_factors(f), fp32_in(x));
    });
  }
  /// To the first half of the scratch: into the bases, or back.
  void rotate(const Rotation& m, Tensor from, bool back) {
    const int64_t r = m.r, c = m.c;
    multiply_fp32({.m = r, .n = c, .k = r, .transpose_a = back, .lda = r, .ldb = c, .ldc = c},
                  m.bases(), from, m.other());
    multiply_fp32({.m = r, .n = c, .k = c, .transpose_b = !back, .lda = c, .ldb = c, .ldc = c},
                  m.other(), m.right(), m.scratch);
  }
  /// Copies what the bases follow from to the host, and the bases back. The thread of the queue
  /// waits for the GPU, which then waits for the host.
  void renew_on_host(const Rotation& m, int64_t step) {
    const int64_t n = m.n(), numbers = rotation_numbers(m.r, m.c);
    on_host_.resize(static_cast<std::size_t>(2 * n + numbers) +
                    static_cast<std::size_t>(rotation_scratch_numbers(m.r, m.c)));
    float *gradient = on_host_.data(), *second = gradient + n, *kept = second + n;
    const auto copy_floats = [&](void* to, const void* from, int64_t count, cudaMemcpyKind kind) {
      check(
          cudaMemcpyAsync(to, from, static_cast<std::size_t>(count) * sizeof(float), kind, stream_),
          "copy the bases of a rotation");
    };
    copy_floats(gradient, fp32(m.t.gradient), n, cudaMemcpyDeviceToHost);
    copy_floats(second, fp32(m.t.second_moment), n, cudaMemcpyDeviceToHost);
    copy_floats(kept, fp32(m.kept), numbers, cudaMemcpyDeviceToHost);
    settings_.settle();
    settings_.renew_bases(
        RotatedMatrix{m.r, m.c, nullptr, nullptr, gradient, nullptr, second, kept, kept + numbers},
        step);
    copy_floats(fp32(m.t.second_moment), second, n, cudaMemcpyHostToDevice);
    copy_floats(fp32(m.bases()), kept + numbers / 2, numbers / 2, cudaMemcpyHostToDevice);
    settings_.settle();  // the next matrix uses the same memory
  }
  void multiply_fp32(const Gemm& shape, Tensor a, Tensor b, Tensor c) {
    if constexpr (sizeof(T) == sizeof(float)) return gemm_.run_gemm(shape, a, b, c);
    if (!fp32_gemm_) fp32_gemm_.emplace(settings_.stream, settings_.sms, false);
    fp32_gemm_->run_gemm(shape, a, b, c);
  }

  // Arguments of kernels, with their exact types; null for a tensor left out.
  static const T* in(Tensor x) { return x ? x.data<T>() : nullptr; }
  static T* out(Tensor x) { return x ? x.data<T>() : nullptr; }
  static float* fp32(Tensor x) { return x ? x.data<float>() : nullptr; }
  static const float* fp32_in(Tensor x) { return fp32(x); }
  static int32_t* ids(Tensor x) { return x ? x.data<int32_t>() : nullptr; }
  static const int32_t* ids_in(Tensor x) { return ids(x); }

  cudaStream_t stream_;
  int sms_;
  std::function<void(std::function<void()>)> enqueue_;
  MathSettings settings_;
  GemmRunner gemm_;
  std::optional<GemmRunner> fp32_gemm_;  // beside a narrower one, once something needs it
  std::vector<float> on_host_;           // of a rotation
};

}  // namespace

std::unique_ptr<Math> make_cuda_math(const MathSettings& settings,
                                     std::function<void(std::function<void()>)> enqueue) {
  if (settings.bf16) return std::make_unique<CudaMath<__nv_bfloat16>>(settings, std::move(enqueue));
  return std::make_unique<CudaMath<float>>(settings, std::move(enqueue));
}

}  // namespace penstock::cuda

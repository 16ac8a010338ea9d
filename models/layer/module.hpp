// SPDX-License-Identifier: Apache-2.0
// A transformer's layer as a list of modules, in the order of F. What a layer has of parameters,
// FLOPs and bytes is written here once; everything else sums over the modules.
//
//   input_norm   qkv  [qk_norm]  [rotary]  core_attention  projection  [post_norm]  addition
//   [mlp_norm]   up   activation                 down        [post_norm]  addition
//
// With latent attention, q_down q_norm q_up and kv_down kv_norm kv_up stand in the place of qkv.
// With experts, router  dispatch  [sorting]  experts_up  experts_activation  experts_down  combine
// stand in that of the MLP, and shared_up  shared_activation  shared_down  [shared_gate] beside
// them. A layer that predicts a further token begins with embedding_norm  hidden_norm
// prediction_projection and ends with final_norm.
//
// Of b sequences of s tokens, a module whose matrix has k x n elements takes
//   F, I, W      2 b s k n FLOPs each (Narayanan et al., SC'21, appendix; Qi et al., ICLR'24)
//   experts      2 b s k n FLOPs for each of the experts that a token uses
//   attention    4 b q per pair of query and key that counts in F, twice that in I, none in W,
//                with q elements of a token's queries (SC'21, equation 2), or of its queries and
//                what attention makes of them, the mean
// and keeps (Korthikanti et al., MLSys'23, section 4.1), on one of t tensor ranks, what it makes:
//   until W      elements that a later product's or norm's gradient reads; those of `whole` are on
//                every rank, unless sequence parallelism divides them; those of `divided` are 1/t
//   until I      masks of dropout, a byte per element; scores and probabilities of attention,
//   unless
//                flash attention makes them again
// The layer's input is kept by `input`, what is made of it by the module that makes it. Products in
// a narrow type (models/product_types.hpp) read narrow operands, which kernels cast.
#pragma once

#include "models/product_types.hpp"
#include "models/recomputation.hpp"
#include "models/transformer.hpp"

#include <cstdint>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

namespace penstock {

/// Elements of a token, or of parameters.
struct Elements {
  std::int64_t whole = 0;    ///< on each tensor rank
  std::int64_t divided = 0;  ///< of which a rank has 1/t

  Elements& operator+=(const Elements& more) {
    whole += more.whole;
    divided += more.divided;
    return *this;
  }
};

struct Module {
  enum class Kind : std::uint8_t { product, attention, elementwise };
  /// Which GPUs divide a product's matrix.
  enum class DividedBy : std::uint8_t {
    tensor,   ///< the tensor ranks
    nobody,   ///< each tensor rank has it; with sequence parallelism for its own tokens
    experts,  ///< those that share the routed experts; its tokens are the tensor ranks'
  };

  std::string_view name;
  Kind kind = Kind::elementwise;
  std::int64_t rows = 0, columns = 0;  ///< product: of its matrix, k x n; ranks divide one of them
  bool by_columns = false;             ///< ranks divide what it makes, not what it reads
  DividedBy divided_by = DividedBy::tensor;
  int count = 1;                        ///< matrices of this shape: one of each routed expert
  int used = 1;                         ///< of which a token passes so many
  ProductClass of = ProductClass::mlp;  ///< product, attention: whose number type it has
  /// What it keeps is the input of such products, in their type where that is narrow.
  std::optional<ProductClass> feeds{};
  bool casts_for_product = false;  ///< a norm that can write the narrow type itself
  Elements narrow_copy{};  ///< product: kept until W beside what is kept, where it is narrow
  Elements vectors{};      ///< biases, norms' weights
  Elements moved{};        ///< elementwise: read and written of a token, F or backward
  Elements kept{};         ///< of a token, until W
  /// Bytes of a kept element, its narrow copy among them, where a model keeps activations in few
  /// bits; 0: as everywhere.
  double narrow_kept = 0;
  bool masks = false;  ///< keeps a mask of dropout as large as a token, until I
  /// Attention: bytes of the softmax and its dropout that are kept until I, of each pair of a query
  /// and a key and each head.
  double pair_bytes = 0;
  bool routed = false;      ///< done of the tokens that come to a GPU's experts, not of its own
  bool sums = false;        ///< tensor ranks gather its part's input and sum its output
  LayerParts again_with{};  ///< runs again, and keeps nothing, where one of these is recomputed
  /// Under every_second_product: the share that runs again, and what is kept then.
  double second_share = 0;
  Elements kept_of_first{};

  /// Returns the elements of all its matrices, and of those that a token passes.
  std::int64_t matrix() const { return rows * columns * count; }
  std::int64_t used_matrix() const { return rows * columns * used; }
  /// Returns a product's input and its result, of a token.
  Elements input() const { return side(rows, !by_columns); }
  Elements result() const { return side(columns, by_columns); }

 private:
  Elements side(std::int64_t size, bool divided) const {
    if (divided_by == DividedBy::experts) return {0, used * size};
    return divided && divided_by == DividedBy::tensor ? Elements{0, size} : Elements{size, 0};
  }
};

/// What modules of a layer do in F.
struct LayerWork {
  // All ranks together:
  double product_flops = 0;                           ///< and as many of I and of W
  std::array<double, kProductClasses> class_flops{};  ///< of these, by class
  double attention_flops = 0;
  // On each of the GPUs that share a stage:
  double operand_bytes = 0;    ///< that products read and write
  double moved_bytes = 0;      ///< that norms, activation, dropout and additions read and write
  double lone_bytes = 0;       ///< of these, what follows no product that is done, too
  double cast_bytes = 0;       ///< that casts of products' inputs read and write, F
  double cast_back_bytes = 0;  ///< the same of gradients, I
  int sums = 0;                ///< exchanges among the tensor ranks
};

/// What modules of a layer keep, in bytes on each of the GPUs that share a stage.
struct LayerKept {
  double until_weight = 0, until_input = 0;

  double bytes() const { return until_weight + until_input; }
};

struct LayerNarrow {
  double parameters = 0, bytes = 0;
};

/// A layer of a model; what it does and keeps is that of a microbatch of b sequences.
class Layer {
 public:
  /// The kind is the usual one of the model's layers where it is not said.
  explicit Layer(const TransformerSpec& model, const ExpertParallel& expert = {});
  Layer(const TransformerSpec& model, LayerKind kind, const ExpertParallel& expert = {});

  LayerKind kind() const { return kind_; }
  const std::vector<Module>& modules() const { return modules_; }
  /// Elements of the matrices, all ranks together.
  std::int64_t matrix_parameters() const;
  /// Parameters on each of the GPUs that share a stage; and of these, those of routed experts.
  std::int64_t parameters(const TensorParallel& tensor) const;
  std::int64_t expert_parameters() const;
  /// Adds the shapes that matrices have on each of the GPUs that share a stage, rows and columns.
  void add_shapes(const TensorParallel& tensor,
                  std::set<std::pair<std::int64_t, std::int64_t>>& shapes) const;
  /// Returns the parameters of the routed experts that a token does not use.
  std::int64_t idle_parameters() const;

  LayerWork work(double b, const TensorParallel& tensor) const;
  /// Returns what the modules do that run again with these parts.
  LayerWork work_again(double b, const TensorParallel& tensor, LayerParts parts) const;
  /// Returns what norms, dropout and residual additions move, were they not divided.
  double elementwise_bytes(double b) const;
  /// Returns elements of the matrices whose products are narrow, on each tensor rank, and their
  /// bytes in these types.
  LayerNarrow narrow(const TensorParallel& tensor) const;
  /// Returns what is kept where these parts run again.
  LayerKept kept(double b, const TensorParallel& tensor, LayerParts again = {}) const;
  double input_bytes(double b, const TensorParallel& tensor) const;
  /// Returns the bytes that casting an element for such products reads and writes, beside what
  /// their kernels do: a narrow type is written by rows and by columns.
  double cast_bytes(ProductClass products) const;

 private:
  /// Returns the work of all modules, each multiplied by `share(module)`.
  template <class Share>
  LayerWork work_of(double b, const TensorParallel& tensor, const Share& share) const;
  /// Returns how many GPUs divide a module's matrices.
  int parts(const Module& m, const TensorParallel& tensor) const;
  double tokens(double b) const { return b * static_cast<double>(seq_length_); }
  /// Returns what a module does over what it would with as many tokens for every GPU.
  double load(const Module& m) const { return m.routed ? expert_.rows : 1; }
  double bytes_of(ProductClass products) const { return operand_bytes_[std::size_t(products)]; }
  bool is_narrow(ProductClass products) const { return bytes_of(products) < element_bytes_; }

  std::vector<Module> modules_;
  std::int64_t hidden_size_, seq_length_, heads_;
  double element_bytes_, pairs_, attention_size_;
  std::int64_t qkv_size_, output_size_;
  LayerKind kind_;
  ExpertParallel expert_;
  ProductTypes types_;
  std::array<double, kProductClasses> operand_bytes_{};
};

}  // namespace penstock

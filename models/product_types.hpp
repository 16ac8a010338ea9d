// SPDX-License-Identifier: Apache-2.0
// Number types of matrix products, by class of product, as Transformer Engine and Megatron-LM use
// them (github.com/NVIDIA/TransformerEngine, docs/examples/fp8_primer): where linear layers
// multiply operands of 8 or 4 bits, attention itself, the LM head, embeddings, norms, additions and
// messages stay in 16 bits.
//
// A type that is narrower than the model's costs kernels that cast, which bytes moved tell: of each
// product's input (unless the norm before it writes the narrow type itself) and of each gradient
// that comes back, the wide numbers are read and two narrow copies written, by rows and by columns;
// scales that need the largest element first (`fp8-current`) read the wide numbers once more. What
// is kept of a product's input is one narrow copy.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace penstock {

enum class ProductClass : std::uint8_t {
  attention_projections,
  mlp,
  experts,
  head,
  attention,
  router
};
inline constexpr std::size_t kProductClasses = 6;
inline constexpr std::string_view kProductClassNames[kProductClasses] = {
    "attention_projections", "mlp", "experts", "head", "attention", "router"};

/// In the order of the key's choices (scenarios/keys.cpp).
enum class NumberType : std::uint8_t {
  model,  ///< as the model's other numbers
  bf16,
  fp16,
  fp32,
  fp8,          ///< a scale of each tensor, delayed: of the largest elements of earlier steps
  fp8_current,  ///< the same of this step's
  fp8_rowwise,  ///< a scale of each row, of this step's
  fp8_block,    ///< a scale of 1 x 128 activations, of 128 x 128 weights (DeepSeek-V3)
  mxfp8,        ///< a scale of 32 elements
  nvfp4         ///< 4 bits, a scale of 16 elements
};

struct NumberTypeFacts {
  std::string_view name;
  std::string_view peak;      ///< row of a device's peak rates
  std::string_view kernels;   ///< its measured products (models/kernels/kernel_times.hpp)
  double bytes = 2;           ///< of an element, with its share of the scales
  int amax_passes = 0;        ///< times that a cast reads its input beforehand
  bool casts_itself = false;  ///< measured products contain the cast of their left operand
};

const NumberTypeFacts& facts_of(NumberType type);

/// The types of a model's products.
struct ProductTypes {
  std::array<NumberType, kProductClasses> types{};
  int first_wide = 0, last_wide = 0;  ///< layers whose products are not narrow
  /// Linear layers' weights are held, and gathered by a sharded optimizer's ranks, in their
  /// products' type (Megatron-LM's --fp8-param-gather) instead of 16 bits beside it.
  bool narrow_parameters = false;
  /// Inputs of activation functions and attention's output are kept in 8 and 12 bits, as
  /// DeepSeek-V3 does.
  bool narrow_kept = false;

  NumberType of(ProductClass products) const { return types[static_cast<std::size_t>(products)]; }
  NumberType& of(ProductClass products) { return types[static_cast<std::size_t>(products)]; }
  bool operator==(const ProductTypes&) const = default;
};

/// Returns the value of `model.precision` that makes these types beside a model's own, such as
/// "mixed-bf16".
std::string precision_text(const ProductTypes& types, const std::string& own);

/// Returns what `precision: TYPE` means: the linear layers' products in that type.
ProductTypes linear_layers_in(NumberType type);

}  // namespace penstock

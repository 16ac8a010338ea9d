// SPDX-License-Identifier: Apache-2.0
#include "models/product_types.hpp"

namespace penstock {
namespace {

// In the order of NumberType. A scale of 32 bits for 128 elements, of 8 for 32 and for 16. Products
// of mxfp8 were not measured: tensor cores scale blocks at the rate of whole tensors, so theirs is
// assumed to be fp8's.
constexpr NumberTypeFacts kFacts[] = {{"model", "", "", 0},
                                      {"bf16", "bf16", "bf16", 2},
                                      {"fp16", "fp16", "fp16", 2},
                                      {"fp32", "fp32", "fp32", 4},
                                      {"fp8", "fp8", "fp8", 1},
                                      {"fp8-current", "fp8", "fp8", 1, 1},
                                      {"fp8-rowwise", "fp8", "fp8", 1, 1},
                                      {"fp8-block", "fp8", "fp8_block", 1 + 4.0 / 128, 0, true},
                                      {"mxfp8", "fp8", "fp8", 1 + 1.0 / 32},
                                      {"nvfp4", "nvfp4", "nvfp4", 0.5 + 1.0 / 16, 0, true}};

}  // namespace

const NumberTypeFacts& facts_of(NumberType type) { return kFacts[static_cast<std::size_t>(type)]; }

std::string precision_text(const ProductTypes& types, const std::string& own) {
  if (types == ProductTypes{}) return own;
  const NumberType base = types.of(ProductClass::mlp);
  const bool simple = own == "mixed-bf16" && types == linear_layers_in(base);
  if (simple && base >= NumberType::fp8) return std::string(facts_of(base).name);
  std::string text = "{base: " + own;
  for (std::size_t c = 0; c < kProductClasses; ++c)
    if (types.types[c] != NumberType::model)
      text += ", " + std::string(kProductClassNames[c]) + ": " +
              std::string(facts_of(types.types[c]).name);
  if (types.narrow_parameters) text += ", linear_weights: narrow";
  if (types.narrow_kept) text += ", kept_activations: narrow";
  if (types.first_wide > 0) text += ", first_wide_layers: " + std::to_string(types.first_wide);
  if (types.last_wide > 0) text += ", last_wide_layers: " + std::to_string(types.last_wide);
  return text + "}";
}

ProductTypes linear_layers_in(NumberType type) {
  ProductTypes types;
  for (const ProductClass products :
       {ProductClass::attention_projections, ProductClass::mlp, ProductClass::experts})
    types.of(products) = type;
  return types;
}

}  // namespace penstock

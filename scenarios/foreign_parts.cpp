// SPDX-License-Identifier: Apache-2.0
#include "scenarios/foreign_parts.hpp"

#include "base/error.hpp"
#include "scenarios/foreign_experts.hpp"
#include "scenarios/import_tables.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace penstock {
namespace {

bool holds_a_map(const Value::Entry& entry) { return entry.value.kind == Value::Kind::map; }

}  // namespace

std::int64_t vision_parameters(const Value& vision, double text_width) {
  constexpr double kMostOfSize = 1e5;  // products of three fit 63 bits
  const Value* type = vision.find("model_type");
  const auto size = [&](const char* key) {
    return static_cast<std::int64_t>(std::min(first_of(vision, {key}), kMostOfSize));
  };
  const std::int64_t h = size("hidden_size"), f = size("intermediate_size");
  const std::int64_t patch = size("patch_size"), image = size("image_size");
  const auto text = static_cast<std::int64_t>(std::min(text_width, kMostOfSize));
  if (type == nullptr || h == 0 || f == 0 || patch == 0 || image == 0) return 0;
  const std::int64_t layer = 4 * (h * h + h) + 2 * h * f + f + h + 4 * h;
  // The product that makes patches, and positions.
  const std::int64_t patches = 3 * patch * patch * h + image / patch * (image / patch) * h;
  const std::int64_t encoder = size("num_hidden_layers") * layer + patches + 2 * h;
  if (type->text == "siglip_vision_model") return encoder + h + h * text + h;
  if (type->text != "llama4_vision_model") return 0;
  // A class with its position, a second norm; an MLP of what is seen, and a projection.
  const std::int64_t in = size("projector_input_dim"), out = size("projector_output_dim");
  return encoder + 4 * h + f * in + in * out + size("vision_output_dim") * text;
}

bool is_part(const Value::Entry& entry) {
  return holds_a_map(entry) && entry.key.text.ends_with("_config") &&
         !lists(hf_table("settings"), entry.key.text);
}

std::string parts_beside(const Value& document, bool all) {
  std::string out;
  for (const Value::Entry& e : document.entries) {
    if (!is_part(e)) continue;
    const double size = first_of(
        e.value, {"hidden_size", "d_model", "embed_dim", "num_hidden_layers", "num_layers"});
    if (!all && size == 0) continue;
    const std::string_view part = said_of(hf_table("parts"), e.key.text);
    out +=
        (out.empty() ? "" : ", ") +
        (part.empty() ? fmt::format("the model in {}", printable(e.key.text)) : std::string(part));
  }
  return out;
}

void refuse_inner_model(const Value& document) {
  if (first_of(document, {"hidden_size", "n_embd", "d_model", "dim", "n_embed"}) > 0) return;
  for (const Value::Entry& e : document.entries) {
    if (!holds_a_map(e)) continue;
    const bool nested = e.value.find("text_config") != nullptr;
    const bool speaks = e.value.find("vocab_size") != nullptr &&
                        first_of(e.value, {"num_hidden_layers", "num_layers", "n_layer"}) > 0;
    if (!nested && !speaks) continue;
    throw InputError({e.key.diagnostic(
        fmt::format("its language model is in '{0}{1}', which is not read within another: put what "
                    "'{0}{1}' holds into a file of its own and give that",
                    printable(e.key.text), nested ? ".text_config" : ""))});
  }
}

}  // namespace penstock

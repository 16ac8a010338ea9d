// SPDX-License-Identifier: Apache-2.0
#include "models/recomputation.hpp"

#include "base/numbers.hpp"

#include <fmt/format.h>

#include <vector>

namespace penstock {

Recomputation Recomputation::block(int layers) {
  if (layers == 0) return Recompute::none;
  Recomputation r = Recompute::full;
  r.method = RecomputeMethod::block;
  r.layers = layers;
  return r;
}

Recomputation Recomputation::uniform(int layers) {
  Recomputation r = Recompute::full;
  r.layers = layers;
  return r;
}

std::vector<std::string_view> names_of(LayerParts parts) {
  std::vector<std::string_view> names;
  for (std::size_t i = 0; i < std::size(kLayerPartNames); ++i)
    if (parts.contains(static_cast<LayerPart>(i))) names.push_back(kLayerPartNames[i]);
  return names;
}

std::string to_string(const Recomputation& r) {
  if (r.offload > 0) {
    Recomputation rest = r;
    rest.offload = 0;
    return fmt::format("{}, offload {:.3g} %", to_string(rest), 100 * r.offload);
  }
  if (r.plain()) return std::string(kRecomputeNames[static_cast<std::size_t>(r.granularity)]);
  if (!r.in_full()) return fmt::format("selective {}", fmt::join(names_of(r.parts), "+"));
  return fmt::format("{} {}", kRecomputeMethodNames[static_cast<std::size_t>(r.method)], r.layers);
}

namespace {

/// Returns the selective recomputation of "mlp+layernorm".
std::optional<Recomputation> selective_named(std::string_view names) {
  Recomputation r = Recompute::selective;
  r.parts = {};
  while (!names.empty()) {
    const std::string_view name = names.substr(0, names.find('+'));
    const auto* const found = std::ranges::find(kLayerPartNames, name);
    if (found == std::end(kLayerPartNames)) return std::nullopt;
    r.parts = r.parts | static_cast<LayerPart>(found - std::begin(kLayerPartNames));
    names.remove_prefix(std::min(names.size(), name.size() + 1));
  }
  return r;
}

}  // namespace

std::optional<Recomputation> recomputation_named(std::string_view text) {
  for (const Recompute r : {Recompute::none, Recompute::selective, Recompute::full})
    if (text == kRecomputeNames[static_cast<std::size_t>(r)]) return r;
  const std::size_t space = text.find(' ');
  if (space == std::string_view::npos) return std::nullopt;
  if (text.starts_with("selective ")) return selective_named(text.substr(space + 1));
  const int layers = parse_number<int>(text.substr(space + 1)).value_or(0);
  if (layers < 1) return std::nullopt;
  if (text.substr(0, space) == "block") return Recomputation::block(layers);
  if (text.substr(0, space) == "uniform") return Recomputation::uniform(layers);
  return std::nullopt;
}

std::string recompute_text(const PerStage<Recomputation>& recompute) {
  std::vector<std::string> names;
  for (const Recomputation& value : recompute.values()) names.push_back(to_string(value));
  return recompute.alike() ? names[0] : fmt::format("[{}]", fmt::join(names, ", "));
}

}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
// Megatron's pipeline layouts (--pipeline-model-parallel-layout): what each virtual stage holds.
//
//   Et*2|(t*2|)*34,t*2L     E embedding, t transformer layer, m multi-token prediction layer, L
//   loss
//                           and head; '|' ends a stage, x*n repeats a character, (...)*n a part,
//                           commas mean nothing
//
// Stages are in the order of the forward pass. The embedding is in the first, the head in the last,
// as Megatron checks it (PipelineParallelLayerLayout), m after every t; stages may be empty.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace penstock {

struct StageLayers {
  bool embedding = false;
  int layers = 0;  ///< transformer layers
  int mtp = 0;     ///< multi-token prediction layers
  bool head = false;

  bool operator==(const StageLayers&) const = default;
};

/// What each virtual stage holds. Throws InputError with everything that is wrong, each with its
/// column; `origin` names the string in it.
std::vector<StageLayers> parse_layout(std::string_view text, const std::string& origin);

/// The shortest way to write a layout, of which there is one: the same for equal layouts.
std::string to_layout(const std::vector<StageLayers>& stages);

/// The layout of these numbers of layers: embedding first, head last.
std::vector<StageLayers> layout_of(const std::vector<int>& layers);

}  // namespace penstock

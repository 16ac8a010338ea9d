// SPDX-License-Identifier: Apache-2.0
// Small profiles made by hand, and requests for them.
#pragma once

#include "plan/plan_model.hpp"

#include <string>
#include <utility>
#include <vector>

namespace penstock {

struct TableLayer {
  double forward_s = 0, backward_s = 0, activation_bytes = 0, parameter_bytes = 0;
};

/// A chain of layers, profiled with one sample, whose parameters have no optimizer state.
inline ProfileModel table(const std::vector<TableLayer>& layers) {
  PipedreamProfile profile;
  for (const TableLayer& from : layers) {
    const auto next = static_cast<int>(profile.layers.size()) + 1;
    ProfiledLayer layer;
    layer.id = "layer" + std::to_string(next);
    layer.forward_s = from.forward_s;
    layer.backward_s = from.backward_s;
    layer.activation_bytes = from.activation_bytes;
    layer.parameter_bytes = from.parameter_bytes;
    layer.line = next;
    if (next < static_cast<int>(layers.size())) {
      layer.readers = {next};
      layer.last_reader = next;
    }
    profile.layers.push_back(std::move(layer));
  }
  return {std::move(profile), 1, {4, 0, 0, 4, 4}};
}

inline PlanRequest request_for(const PlanModel& model, std::vector<PlanLevel> levels) {
  PlanRequest request;
  request.model = &model;
  request.levels = std::move(levels);
  return request;
}

}  // namespace penstock

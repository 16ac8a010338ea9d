// SPDX-License-Identifier: Apache-2.0
#include "program/mesh.hpp"

#include <algorithm>
#include <numeric>

namespace penstock {
namespace {

std::int64_t sum(const PerStage<int>& each, std::uint32_t depth) {
  if (each.alike()) return std::int64_t{depth} * each.at(0);
  const std::vector<int> values = each.values();
  return std::accumulate(values.begin(), values.end(), std::int64_t{0});
}

}  // namespace

int Mesh::most() const { return std::ranges::max(width.values()); }

std::vector<int> Mesh::widths(std::uint32_t depth) const {
  return width.alike() ? std::vector<int>(depth, width.at(0)) : width.values();
}

std::int64_t Mesh::devices(std::uint32_t depth) const { return sum(turns(), depth); }

int Mesh::replica_gpus() const {
  int gpus = 1;
  for (const int ranks : inner) gpus *= ranks;
  return gpus;
}

int Mesh::replica_sharers() const {
  int sharers = 1;
  for (const Axis axis : kInnerAxes)
    if (traits(axis).same_weights) sharers *= size(axis);
  return sharers;
}

std::int64_t Mesh::ranks(std::uint32_t depth) const { return replica_gpus() * sum(width, depth); }

std::vector<std::vector<int>> Mesh::groups(int device, Axis axis) const {
  const std::vector<int>& mine = gpus[static_cast<std::size_t>(device)];
  const auto differs = [&](Axis inner) {
    return axis == Axis::data ? traits(inner).same_weights : inner == axis;
  };
  std::vector<std::vector<int>> found;
  for (std::size_t i = 0; i < mine.size(); ++i) {
    // The number of a group is made of the ranks in which its members do not differ.
    std::size_t rest = i, group = 0, groups = 1;
    for (const Axis inner : kInnerAxes) {
      const auto ranks = static_cast<std::size_t>(size(inner));
      if (!differs(inner)) {
        group += rest % ranks * groups;
        groups *= ranks;
      }
      rest /= ranks;
    }
    if (axis != Axis::data) group += rest * groups;
    if (group >= found.size()) found.resize(group + 1);
    found[group].push_back(mine[i]);
  }
  return found;
}

Mesh one_gpu_each(const std::vector<int>& gpus) {
  Mesh mesh;
  for (const int gpu : gpus) mesh.gpus.push_back({gpu});
  return mesh;
}

std::vector<std::vector<int>> reduction_groups(const Placement& placement, const Mesh& mesh,
                                               std::uint32_t position) {
  std::vector<std::vector<int>> groups(
      static_cast<std::size_t>(mesh.replica_gpus() / mesh.replica_sharers()));
  const auto add_replicas = [&](std::uint32_t at) {
    for (int r = 0; r < placement.widths()[at]; ++r) {
      const auto more =
          mesh.groups(placement.device_at(static_cast<std::uint32_t>(r), at), Axis::data);
      for (std::size_t i = 0; i < more.size(); ++i)
        groups[i].insert(groups[i].end(), more[i].begin(), more[i].end());
    }
  };
  add_replicas(position);
  if (placement.mirror_of(position) != position) add_replicas(placement.mirror_of(position));
  return groups;
}

namespace {

/// The GPUs of a position in the order of their ranks.
std::vector<int> gpus_at(const Placement& placement, const Mesh& mesh, std::uint32_t position) {
  std::vector<int> all;
  const int devices = mesh.divided ? 1 : placement.widths()[position];
  for (int r = 0; r < devices; ++r) {
    const int device = placement.device_at(static_cast<std::uint32_t>(r), position);
    const std::vector<int>& more = mesh.gpus[static_cast<std::size_t>(device)];
    all.insert(all.end(), more.begin(), more.end());
  }
  return all;
}

}  // namespace

std::vector<std::vector<int>> expert_groups(const Placement& placement, const Mesh& mesh,
                                            std::uint32_t position) {
  const std::vector<int> all = gpus_at(placement, mesh, position);
  const auto degree = static_cast<std::size_t>(mesh.expert);
  const auto tensor = static_cast<std::size_t>(mesh.expert_tensor);
  std::vector<std::vector<int>> groups(all.size() / degree);
  for (std::size_t i = 0; i < all.size(); ++i)
    groups[i / (degree * tensor) * tensor + i % tensor].push_back(all[i]);
  return groups;
}

std::vector<std::vector<int>> expert_reduction_groups(const Placement& placement, const Mesh& mesh,
                                                      std::uint32_t position) {
  const auto parts =
      static_cast<std::size_t>(mesh.expert) * static_cast<std::size_t>(mesh.expert_tensor);
  std::vector<std::vector<int>> groups(parts);
  const auto add_position = [&](std::uint32_t at) {
    const std::vector<int> all = gpus_at(placement, mesh, at);
    for (std::size_t i = 0; i < all.size(); ++i) groups[i % parts].push_back(all[i]);
  };
  add_position(position);
  if (placement.mirror_of(position) != position) add_position(placement.mirror_of(position));
  return groups;
}

}  // namespace penstock

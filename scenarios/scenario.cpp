// SPDX-License-Identifier: Apache-2.0
#include "scenarios/scenario.hpp"

#include "models/placement.hpp"
#include "program/op_costs.hpp"

#include <algorithm>

namespace penstock {

std::int64_t Scenario::capacity_bytes(int device) const {
  std::int64_t least = 0;
  for (const int gpu : gpus_of(device)) {
    const std::int64_t bytes = cluster.device_of(gpu).capacity_bytes();
    if (bytes > 0 && (least == 0 || bytes < least)) least = bytes;
  }
  return least;
}

std::string Scenario::left_out() const {
  return missing + (missing.empty() || missing_saves.empty() ? "" : ", ") + missing_saves;
}

std::optional<bool> Scenario::fits_in_truth(bool fits_here) const {
  const std::string& decides = fits_here ? missing : missing_saves;
  return decides.empty() ? std::optional(fits_here) : std::nullopt;
}

Placement Parallelism::placement() const {
  static const Schedule kUnknown;
  return placement_of(schedule != nullptr ? *schedule : kUnknown, shape);
}

std::vector<int> Parallelism::stage_widths() const {
  const std::vector<int> of_position = widths();
  std::vector<int> of_stage;
  const Placement where = placement();
  for (const std::uint32_t position : where.positions()) of_stage.push_back(of_position[position]);
  return of_stage;
}

std::vector<int> Parallelism::stage_parts(const Placement& where) const {
  std::vector<int> of_stage;
  for (const std::uint32_t position : where.positions())
    of_stage.push_back(mesh.together(position));
  return of_stage;
}

std::vector<std::uint32_t> sharing_positions(const Placement& placement) {
  std::vector<std::uint32_t> of_stage = placement.positions();
  for (std::uint32_t& position : of_stage)
    position = std::min(position, placement.mirror_of(position));
  return of_stage;
}

double Parallelism::samples_per_update() const {
  const double replicas = shape.replicas.at(0);
  const bool each = schedule->update == UpdateRule::stash;
  const std::uint32_t m = each ? shape.microbatches_per_update : shape.per_batch(0);
  return static_cast<double>(microbatch_size) * m * replicas;
}

std::optional<double> Scenario::given_forward_s_per_sample() const {
  if (transformer || layer_profile) return std::nullopt;
  double sum = 0;
  for (std::size_t s = 0; s < costs.size(); ++s)
    sum += costs[s][OpKind::forward].seconds * (mesh.divided ? mesh.together(s) : 1);
  return sum / static_cast<double>(microbatch_size);
}

std::vector<StageCosts> with_reduction_times(std::vector<StageCosts> costs, const Parallelism& job,
                                             const Cluster& cluster,
                                             const ReductionOptions& options) {
  const Placement where = job.placement();
  for (StageCosts& c : costs) c.reduce_grad_s = 0;
  for (std::uint32_t p = 0; p < static_cast<std::uint32_t>(where.depth()); ++p) {
    if (where.mirror_of(p) < p) continue;  // reduces with its mirror
    const auto bytes = at_position(where, costs, p, &StageCosts::reduced_bytes);
    costs[where.stages_at(p).front()].reduce_grad_s =
        price(reduction_phases(options, where, job.mesh, p,
                               [&](int gpu) { return cluster.node_of(gpu); }),
              cluster)
            .seconds(static_cast<double>(bytes));
  }
  return costs;
}

}  // namespace penstock

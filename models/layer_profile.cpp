// SPDX-License-Identifier: Apache-2.0
#include "models/layer_profile.hpp"

#include "models/stage_costs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

namespace penstock {
namespace {

constexpr double ProfilePart::*kPartFields[] = {&ProfilePart::forward_s,
                                                &ProfilePart::backward_s,
                                                &ProfilePart::backward_input_s,
                                                &ProfilePart::backward_weight_s,
                                                &ProfilePart::activation_bytes,
                                                &ProfilePart::activation_after_input_bytes,
                                                &ProfilePart::forward_workspace_bytes,
                                                &ProfilePart::backward_workspace_bytes};
constexpr std::size_t kTimes = 4;  // the first of these
constexpr ProfilePart ProfileRow::*kParts[] = {&ProfileRow::layer, &ProfileRow::embedding,
                                               &ProfileRow::head, &ProfileRow::overhead};

/// Of ascending loads: alone, or the smallest under load that covers the devices, else the largest.
int pick_load(const std::set<int>& loads, const ProfileUse& use) {
  if (!use.loaded) return *loads.begin();
  const auto covering = loads.lower_bound(std::max(2, use.devices));
  return covering == loads.end() ? *loads.rbegin() : *covering;
}

template <class Rows>
std::set<int> loads_of(const Rows& rows) {
  std::set<int> loads;
  for (const auto& row : rows) loads.insert(row.load);
  return loads;
}

ProfileRow between(const ProfileRow& a, const ProfileRow& b, double size) {
  const double share = (size - a.microbatch_size) / (b.microbatch_size - a.microbatch_size);
  ProfileRow row = a;
  row.microbatch_size = size;
  row.spread = std::max(a.spread, b.spread);
  for (const auto part : kParts) {
    for (const auto field : kPartFields)
      row.*part.*field = std::lerp(a.*part.*field, b.*part.*field, share);
  }
  return row;
}

/// The sum over a stage of one field of its parts.
class StageSum {
 public:
  StageSum(const ProfileRow& row, int layers, bool first, bool last)
      : row_(row), layers_(layers), first_(first), last_(last) {}

  double operator()(double ProfilePart::*field) const {
    return row_.overhead.*field + layers_ * row_.layer.*field +
           (first_ ? row_.embedding.*field : 0) + (last_ ? row_.head.*field : 0);
  }
  std::int64_t bytes(double ProfilePart::*field) const { return std::llround((*this)(field)); }

 private:
  const ProfileRow& row_;
  int layers_;
  bool first_, last_;
};

void set_profiled(StageCosts& c, const StageSum& sum) {
  c[OpKind::forward].seconds = sum(&ProfilePart::forward_s);
  c[OpKind::backward].seconds = sum(&ProfilePart::backward_s);
  c[OpKind::backward_input].seconds = sum(&ProfilePart::backward_input_s);
  c[OpKind::backward_weight].seconds = sum(&ProfilePart::backward_weight_s);
  c.activation_bytes = sum.bytes(&ProfilePart::activation_bytes);
  c.activation_after_input_bytes = sum.bytes(&ProfilePart::activation_after_input_bytes);
  c.forward_workspace_bytes = sum.bytes(&ProfilePart::forward_workspace_bytes);
  c.backward_workspace_bytes = sum.bytes(&ProfilePart::backward_workspace_bytes);
}

}  // namespace

LayerProfile::LayerProfile(std::vector<ProfileRow> rows, std::vector<ProfileStep> steps,
                           std::optional<bool> loaded)
    : rows_(std::move(rows)), steps_(std::move(steps)), loaded_(loaded) {
  std::ranges::stable_sort(rows_, {}, &ProfileRow::microbatch_size);
}

std::vector<ProfileRow> LayerProfile::rows_of(Recompute recompute) const {
  std::vector<ProfileRow> found;
  std::ranges::copy_if(rows_, std::back_inserter(found),
                       [&](const ProfileRow& row) { return row.recompute == recompute; });
  return found;
}

std::vector<ProfileRow> LayerProfile::rows_of(const ProfileUse& use) const {
  std::vector<ProfileRow> found = rows_of(use.recompute);
  if (found.empty()) return found;
  const int load = pick_load(loads_of(found), use);
  std::erase_if(found, [&](const ProfileRow& row) { return row.load != load; });
  return found;
}

bool LayerProfile::has_load(Recompute recompute) const {
  return std::ranges::any_of(
      rows_, [&](const ProfileRow& row) { return row.recompute == recompute && row.load > 1; });
}

ProfileUse LayerProfile::use(double microbatch_size, Recompute recompute, int devices) const {
  return {microbatch_size, recompute, loaded_.value_or(devices > 1 && has_load(recompute)),
          devices};
}

std::string LayerProfile::refuse_recompute(const ProfileUse& use) const {
  if (!rows_of(use.recompute).empty()) return "";
  std::set<std::string_view> known;
  for (const ProfileRow& row : rows_)
    known.insert(kRecomputeNames[static_cast<int>(row.recompute)]);
  return fmt::format("nothing was measured with recompute: {}, only with {}",
                     kRecomputeNames[static_cast<int>(use.recompute)], fmt::join(known, ", "));
}

std::string LayerProfile::refuse_load(const ProfileUse& use) const {
  const auto rows = rows_of(use);
  if (rows.empty() || (rows[0].load > 1) == use.loaded) return "";
  return use.loaded ? "nothing was measured under load (load: 2 and more)"
                    : "nothing was measured alone (load: 1)";
}

std::string LayerProfile::refuse_size(const ProfileUse& use) const {
  const auto rows = rows_of(use);
  if (rows.empty()) return "";
  const bool inside = use.microbatch_size >= rows.front().microbatch_size &&
                      use.microbatch_size <= rows.back().microbatch_size;
  if (inside) return "";
  std::vector<double> sizes;
  for (const ProfileRow& row : rows) sizes.push_back(row.microbatch_size);
  return fmt::format("microbatches of {} were not measured, only of {}{}", use.microbatch_size,
                     fmt::join(sizes, ", "), sizes.size() > 1 ? " (and between them)" : "");
}

ProfileRow LayerProfile::row(const ProfileUse& use) const {
  const auto rows = rows_of(use);
  const auto above = std::ranges::find_if(
      rows, [&](const ProfileRow& row) { return row.microbatch_size >= use.microbatch_size; });
  return above->microbatch_size == use.microbatch_size
             ? *above
             : between(*(above - 1), *above, use.microbatch_size);
}

ProfileStep LayerProfile::step(const ProfileUse& use) const {
  if (steps_.empty()) return {};
  const int load = pick_load(loads_of(steps_), use);
  return *std::ranges::find(steps_, load, &ProfileStep::load);
}

std::optional<ProfileRow> LayerProfile::least_row(double microbatch_size,
                                                  Recompute recompute) const {
  std::optional<ProfileRow> least;
  std::set<int> devices = loads_of(rows_);
  devices.insert(1);
  for (auto r = static_cast<int>(recompute); r <= static_cast<int>(Recompute::full); ++r) {
    const bool less_kept = r != static_cast<int>(recompute);
    for (const int d : devices) {
      const ProfileUse asked = use(microbatch_size, static_cast<Recompute>(r), d);
      if (!refuse_recompute(asked).empty() || !refuse_load(asked).empty() ||
          !refuse_size(asked).empty())
        continue;
      const ProfileRow other = row(asked);
      if (!least) least = other;
      for (const auto part : kParts)
        for (std::size_t i = 0; i < (less_kept ? kTimes : std::size(kPartFields)); ++i)
          (*least).*part.*kPartFields[i] =
              std::min((*least).*part.*kPartFields[i], other.*part.*kPartFields[i]);
    }
    if (!least) return least;
  }
  return least;
}

ProfileStep LayerProfile::least_step() const {
  if (steps_.empty()) return {};
  ProfileStep least = steps_.front();
  for (const ProfileStep& step : steps_) {
    least.overhead_s = std::min(least.overhead_s, step.overhead_s);
    least.s_per_parameter = std::min(least.s_per_parameter, step.s_per_parameter);
  }
  return least;
}

std::vector<StageCosts> profiled_stage_costs(const TransformerSpec& model,
                                             const PerStage<ProfileRow>& rows,
                                             const PerStage<ProfileStep>& steps,
                                             const std::vector<int>& layers) {
  // What does not depend on the device: parameters, FLOPs, messages.
  std::vector<StageCosts> costs =
      stage_costs(model, DeviceSpec{}, layers,
                  {rows.at(0).microbatch_size,
                   rows.map([](const ProfileRow& row) { return Recomputation(row.recompute); })});
  const auto stages = spans_of_stages(layers);
  for (std::size_t i = 0; i < costs.size(); ++i) {
    set_profiled(costs[i], StageSum(rows.at(i), layers[i], stages[i].first, stages[i].last));
    const auto parameters = static_cast<double>(stage_parameters(model, stages[i]));
    costs[i].step_s = steps.at(i).overhead_s + parameters * steps.at(i).s_per_parameter;
  }
  return costs;
}

std::vector<std::vector<LayerGradient>> profiled_stage_gradients(const TransformerSpec& model,
                                                                 const PerStage<ProfileRow>& rows,
                                                                 const std::vector<int>& layers) {
  std::vector<std::vector<LayerGradient>> stages;
  for (const LayerSpan& stage : spans_of_stages(layers)) {
    const ProfileRow& row = rows.at(stages.size());
    const PartBackward times{row.layer.backward_s, row.embedding.backward_s, row.head.backward_s};
    stages.push_back(stage_gradients(model, stage, times));
  }
  return stages;
}

std::vector<int> profiled_balanced_split(const TransformerSpec& model,
                                         const PerStage<ProfileRow>& rows,
                                         const std::vector<std::uint32_t>& positions) {
  const int stages = static_cast<int>(positions.size());
  const auto time = [&](int layers, int stage) {
    const ProfileRow& row = rows.at(static_cast<std::size_t>(stage));
    const StageSum sum(row, layers, stage == 0, stage + 1 == stages);
    return sum(&ProfilePart::forward_s) + sum(&ProfilePart::backward_s);
  };
  return balanced_split(model.num_layers, stages, time, positions);
}

}  // namespace penstock

#include "models/measured.hpp"

#include "models/stage_costs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

namespace penstock {
namespace {

constexpr double MeasuredPart::*kPartFields[] = {&MeasuredPart::forward_s,
                                                 &MeasuredPart::backward_s,
                                                 &MeasuredPart::backward_input_s,
                                                 &MeasuredPart::backward_weight_s,
                                                 &MeasuredPart::activation_bytes,
                                                 &MeasuredPart::activation_after_input_bytes,
                                                 &MeasuredPart::forward_workspace_bytes,
                                                 &MeasuredPart::backward_workspace_bytes};
constexpr std::size_t kTimes = 4;  // the first of these
constexpr MeasuredPart MeasuredRow::*kParts[] = {&MeasuredRow::layer, &MeasuredRow::embedding,
                                                 &MeasuredRow::head, &MeasuredRow::overhead};

/// Of ascending loads: alone, or the smallest under load that covers the devices, else the largest.
int pick_load(const std::set<int>& loads, const MeasuredUse& use) {
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

MeasuredRow between(const MeasuredRow& a, const MeasuredRow& b, double size) {
  const double share = (size - a.microbatch_size) / (b.microbatch_size - a.microbatch_size);
  MeasuredRow row = a;
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
  StageSum(const MeasuredRow& row, int layers, bool first, bool last)
      : row_(row), layers_(layers), first_(first), last_(last) {}

  double operator()(double MeasuredPart::*field) const {
    return row_.overhead.*field + layers_ * row_.layer.*field +
           (first_ ? row_.embedding.*field : 0) + (last_ ? row_.head.*field : 0);
  }
  std::int64_t bytes(double MeasuredPart::*field) const { return std::llround((*this)(field)); }

 private:
  const MeasuredRow& row_;
  int layers_;
  bool first_, last_;
};

void set_measured(StageCosts& c, const StageSum& sum) {
  c.forward_s = sum(&MeasuredPart::forward_s);
  c.backward_s = sum(&MeasuredPart::backward_s);
  c.backward_input_s = sum(&MeasuredPart::backward_input_s);
  c.backward_weight_s = sum(&MeasuredPart::backward_weight_s);
  c.activation_bytes = sum.bytes(&MeasuredPart::activation_bytes);
  c.activation_after_input_bytes = sum.bytes(&MeasuredPart::activation_after_input_bytes);
  c.forward_workspace_bytes = sum.bytes(&MeasuredPart::forward_workspace_bytes);
  c.backward_workspace_bytes = sum.bytes(&MeasuredPart::backward_workspace_bytes);
}

}  // namespace

MeasuredModel::MeasuredModel(std::vector<MeasuredRow> rows, std::vector<MeasuredStep> steps,
                             std::optional<bool> loaded)
    : rows_(std::move(rows)), steps_(std::move(steps)), loaded_(loaded) {
  std::ranges::stable_sort(rows_, {}, &MeasuredRow::microbatch_size);
}

std::vector<MeasuredRow> MeasuredModel::of(Recompute recompute) const {
  std::vector<MeasuredRow> found;
  std::ranges::copy_if(rows_, std::back_inserter(found),
                       [&](const MeasuredRow& row) { return row.recompute == recompute; });
  return found;
}

std::vector<MeasuredRow> MeasuredModel::of(const MeasuredUse& use) const {
  std::vector<MeasuredRow> found = of(use.recompute);
  if (found.empty()) return found;
  const int load = pick_load(loads_of(found), use);
  std::erase_if(found, [&](const MeasuredRow& row) { return row.load != load; });
  return found;
}

bool MeasuredModel::has_load(Recompute recompute) const {
  return std::ranges::any_of(
      rows_, [&](const MeasuredRow& row) { return row.recompute == recompute && row.load > 1; });
}

MeasuredUse MeasuredModel::use(double microbatch_size, Recompute recompute, int devices) const {
  return {microbatch_size, recompute, loaded_.value_or(devices > 1 && has_load(recompute)),
          devices};
}

std::string MeasuredModel::refuse_recompute(const MeasuredUse& use) const {
  if (!of(use.recompute).empty()) return "";
  std::set<std::string_view> known;
  for (const MeasuredRow& row : rows_)
    known.insert(kRecomputeNames[static_cast<int>(row.recompute)]);
  return fmt::format("nothing was measured with recompute: {}, only with {}",
                     kRecomputeNames[static_cast<int>(use.recompute)], fmt::join(known, ", "));
}

std::string MeasuredModel::refuse_load(const MeasuredUse& use) const {
  const auto rows = of(use);
  if (rows.empty() || (rows[0].load > 1) == use.loaded) return "";
  return use.loaded ? "nothing was measured under load (load: 2 and more)"
                    : "nothing was measured alone (load: 1)";
}

std::string MeasuredModel::refuse_size(const MeasuredUse& use) const {
  const auto rows = of(use);
  if (rows.empty()) return "";
  const bool inside = use.microbatch_size >= rows.front().microbatch_size &&
                      use.microbatch_size <= rows.back().microbatch_size;
  if (inside) return "";
  std::vector<double> sizes;
  for (const MeasuredRow& row : rows) sizes.push_back(row.microbatch_size);
  return fmt::format("microbatches of {} were not measured, only of {}{}", use.microbatch_size,
                     fmt::join(sizes, ", "), sizes.size() > 1 ? " (and between them)" : "");
}

MeasuredRow MeasuredModel::row(const MeasuredUse& use) const {
  const auto rows = of(use);
  const auto above = std::ranges::find_if(
      rows, [&](const MeasuredRow& row) { return row.microbatch_size >= use.microbatch_size; });
  return above->microbatch_size == use.microbatch_size
             ? *above
             : between(*(above - 1), *above, use.microbatch_size);
}

MeasuredStep MeasuredModel::step(const MeasuredUse& use) const {
  if (steps_.empty()) return {};
  const int load = pick_load(loads_of(steps_), use);
  return *std::ranges::find(steps_, load, &MeasuredStep::load);
}

std::optional<MeasuredRow> MeasuredModel::least_row(double microbatch_size,
                                                    Recompute recompute) const {
  std::optional<MeasuredRow> least;
  std::set<int> devices = loads_of(rows_);
  devices.insert(1);
  for (auto r = static_cast<int>(recompute); r <= static_cast<int>(Recompute::full); ++r) {
    const bool less_kept = r != static_cast<int>(recompute);
    for (const int d : devices) {
      const MeasuredUse asked = use(microbatch_size, static_cast<Recompute>(r), d);
      if (!refuse_recompute(asked).empty() || !refuse_load(asked).empty() ||
          !refuse_size(asked).empty())
        continue;
      const MeasuredRow other = row(asked);
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

MeasuredStep MeasuredModel::least_step() const {
  if (steps_.empty()) return {};
  MeasuredStep least = steps_.front();
  for (const MeasuredStep& step : steps_) {
    least.overhead_s = std::min(least.overhead_s, step.overhead_s);
    least.s_per_parameter = std::min(least.s_per_parameter, step.s_per_parameter);
  }
  return least;
}

std::vector<StageCosts> measured_stage_costs(const TransformerSpec& model,
                                             const PerStage<MeasuredRow>& rows,
                                             const PerStage<MeasuredStep>& steps,
                                             const std::vector<int>& layers) {
  // What does not depend on the device: parameters, FLOPs, messages.
  std::vector<StageCosts> costs =
      stage_costs(model, DeviceSpec{}, layers,
                  {rows.of(0).microbatch_size,
                   rows.map([](const MeasuredRow& row) { return Recomputation(row.recompute); })});
  for (std::size_t i = 0; i < costs.size(); ++i) {
    const bool first = i == 0, last = i + 1 == costs.size();
    set_measured(costs[i], StageSum(rows.of(i), layers[i], first, last));
    const auto parameters = static_cast<double>(stage_parameters(model, layers[i], first, last));
    costs[i].step_s = steps.of(i).overhead_s + parameters * steps.of(i).s_per_parameter;
  }
  return costs;
}

std::vector<std::vector<LayerGradient>> measured_stage_gradients(const TransformerSpec& model,
                                                                 const PerStage<MeasuredRow>& rows,
                                                                 const std::vector<int>& layers) {
  std::vector<std::vector<LayerGradient>> stages;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const MeasuredRow& row = rows.of(i);
    const PartBackward times{row.layer.backward_s, row.embedding.backward_s, row.head.backward_s};
    stages.push_back(stage_gradients(model, layers[i], i == 0, i + 1 == layers.size(), times));
  }
  return stages;
}

std::vector<int> measured_balanced_split(const TransformerSpec& model,
                                         const PerStage<MeasuredRow>& rows,
                                         const std::vector<std::uint32_t>& positions) {
  const int stages = static_cast<int>(positions.size());
  const auto time = [&](int layers, int stage) {
    const MeasuredRow& row = rows.of(static_cast<std::size_t>(stage));
    const StageSum sum(row, layers, stage == 0, stage + 1 == stages);
    return sum(&MeasuredPart::forward_s) + sum(&MeasuredPart::backward_s);
  };
  return balanced_split(model.num_layers, stages, time, positions);
}

}  // namespace penstock

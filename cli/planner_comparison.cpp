#include "cli/planner_comparison.hpp"

#include "base/table.hpp"

#include <fmt/format.h>

namespace penstock {

std::string comparison_table(const std::vector<ComparedPlanner>& planners) {
  using A = TextTable::Align;
  TextTable table({"planner", "versions", "predicts", "samples/s", "ours is faster by", "plan"},
                  {A::left, A::left, A::right, A::right, A::right, A::left});
  const auto rate = [](double r) { return r > 0 ? fmt::format("{:.4g}", r) : std::string("-"); };
  for (const ComparedPlanner& p : planners) {
    const bool runs = p.throughput_samples_per_s > 0;
    table.add({p.name, p.versions ? "several" : "one", rate(p.predicted_samples_per_s),
               rate(p.throughput_samples_per_s),
               runs && !p.is_ours() ? fmt::format("{:.1f} %", p.ours_is_faster_by * 100) : "-",
               runs             ? p.plan
               : p.plan.empty() ? p.why_not
                                : fmt::format("{}: {}", p.plan, p.why_not)});
  }
  return table.render();
}

Json to_json(const ComparedPlanner& p) {
  const auto known = [](bool is, double value) { return is ? Json(value) : Json(); };
  const bool runs = p.throughput_samples_per_s > 0;
  return {
      {"planner", p.name},
      {"plan", p.plan},
      {"several_versions", p.versions},
      {"predicted_samples_per_s", known(p.predicted_samples_per_s > 0, p.predicted_samples_per_s)},
      {"throughput_samples_per_s", known(runs, p.throughput_samples_per_s)},
      {"ours_is_faster_by", known(runs && !p.is_ours(), p.ours_is_faster_by)},
      {"why_not", p.why_not}};
}

}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
#include "report/scatter_section.hpp"

#include <cmath>

namespace penstock {
namespace {

bool on_log_axis(double value) { return std::isfinite(value) && value > 0; }

Json group_json(const ScatterGroup& group) {
  Json points = Json::array();
  for (const ScatterPoint& p : group.points)
    if (on_log_axis(p.measured) && on_log_axis(p.predicted))
      points.push_back({p.name, p.measured, p.predicted});
  return {{"name", group.name}, {"points", points}};
}

}  // namespace

std::string section_text(const ScatterSection& scatter) {
  Json json = section_json("scatter", scatter.text);
  json["panels"] = Json::array();
  for (const ScatterPanel& panel : scatter.panels) {
    Json groups = Json::array();
    for (const ScatterGroup& group : panel.groups) {
      Json drawn = group_json(group);
      if (!drawn["points"].empty()) groups.push_back(std::move(drawn));
    }
    if (groups.empty()) continue;  // nothing that a logarithmic axis could show
    json["panels"].push_back(
        {{"quantity", panel.quantity}, {"unit", panel.unit}, {"groups", groups}});
  }
  return to_text(json);
}

}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
#include "report/comparison_section.hpp"

namespace penstock {

std::string section_text(const ComparisonSection& comparison) {
  Json json = section_json("comparison", comparison.text);
  json["names"] = comparison.names;
  json["bad"] = Json::array();
  for (const bool bad : comparison.bad) json["bad"].push_back(bad);
  json["panels"] = Json::array();
  for (const ComparisonPanel& panel : comparison.panels) {
    Json bars = Json::array();
    for (const ComparisonBars& of : panel.bars) {
      Json values = Json::array();
      for (const double value : of.values) values.push_back(number_json(value));
      bars.push_back({{"name", of.name}, {"values", values}});
    }
    json["panels"].push_back({{"quantity", panel.quantity}, {"unit", panel.unit}, {"bars", bars}});
  }
  return to_text(json);
}

}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
#include "report/learning_section.hpp"

namespace penstock {

std::string section_text(const LearningSection& learning) {
  Json json = section_json("learning", learning.text);
  json["quantity"] = learning.quantity;
  json["lines"] = Json::array();
  for (const LearnedLine& line : learning.lines) {
    Json points = Json::array();
    for (const LearnedPoint& p : line.points)
      points.push_back({p.update, p.samples, p.simulated_s, number_json(p.mean),
                        number_json(p.least), number_json(p.most)});
    json["lines"].push_back({{"name", line.name}, {"points", points}});
  }
  return to_text(json);
}

}  // namespace penstock

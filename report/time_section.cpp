// SPDX-License-Identifier: Apache-2.0
#include "report/time_section.hpp"

#include <algorithm>

namespace penstock {

std::string section_text(const TimeSection& time) {
  Json json = section_json("time", time.text);
  json["makespan_s"] = number_json(time.makespan_s);
  json["rows"] = Json::array();
  for (const TimeRow& row : time.rows)
    json["rows"].push_back({{"name", row.name}, {"devices", row.devices}});
  json["parts"] = Json::array();
  for (const TimePart& part : time.parts) {
    if (std::ranges::none_of(part.seconds, [](double s) { return s > 0; })) continue;
    Json seconds = Json::array();
    for (const double s : part.seconds) seconds.push_back(number_json(s));
    json["parts"].push_back({{"kind", part.kind}, {"name", part.name}, {"seconds", seconds}});
  }
  return to_text(json);
}

}  // namespace penstock

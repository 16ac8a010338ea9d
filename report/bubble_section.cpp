#include "report/bubble_section.hpp"

namespace penstock {

std::string section_text(const BubbleSection& bubble) {
  SectionJson json = section_json("bubble", bubble.text);
  json["makespan_s"] = number_json(bubble.makespan_s);
  for (const std::string_view cause : kCauseNames) json["causes"].push_back(cause);
  json["busy"] = SectionJson::array();
  json["idle"] = SectionJson::array();
  for (const DeviceMetrics& device : bubble.devices) {
    json["busy"].push_back(number_json(device.busy_s));
    SectionJson& idle = json["idle"].emplace_back(SectionJson::array());
    for (const double seconds : device.idle_s) idle.push_back(number_json(seconds));
  }
  return to_text(json);
}

}  // namespace penstock

#include "report/bubble_section.hpp"

#include "traces/cause_words.hpp"

namespace penstock {

std::string section_text(const BubbleSection& bubble) {
  Json json = section_json("bubble", bubble.text);
  json["makespan_s"] = number_json(bubble.makespan_s);
  for (const std::string_view cause : kCauseNames) json["causes"].push_back(cause);
  for (const std::string_view words : kCauseWords) json["words"].push_back(words);
  json["busy"] = Json::array();
  json["idle"] = Json::array();
  for (const DeviceMetrics& device : bubble.devices) {
    json["busy"].push_back(number_json(device.busy_s));
    Json& idle = json["idle"].emplace_back(Json::array());
    for (const double seconds : device.idle_s) idle.push_back(number_json(seconds));
  }
  return to_text(json);
}

}  // namespace penstock

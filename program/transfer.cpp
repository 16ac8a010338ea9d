#include "program/transfer.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace penstock {

std::vector<int> crossed_by(const std::vector<LinkFlow>& flows) {
  std::vector<int> links;
  for (const LinkFlow& flow : flows)
    links.insert(links.end(), flow.links.begin(), flow.links.end());
  std::ranges::sort(links);
  links.erase(std::ranges::unique(links).begin(), links.end());
  return links;
}

std::vector<int> Transfer::crossed_links() const {
  std::vector<LinkFlow> flows;
  for (const Phase& phase : phases)
    flows.insert(flows.end(), phase.flows.begin(), phase.flows.end());
  return crossed_by(flows);
}

std::string Transfer::describe() const {
  switch (kind) {
    case Kind::message:
      return fmt::format("channel {}->{} {}", source, destination, backward ? "B" : "F");
    case Kind::norm: return fmt::format("the norm {}->{}", source, destination);
    case Kind::reduction:
      return replica < 0 ? fmt::format("the gradient reduction of stage {}", source)
                         : fmt::format("the update of replica {}", replica);
    case Kind::collective: return fmt::format("the {} of device {}", words(axis).traffic, source);
  }
  return "";
}

}  // namespace penstock

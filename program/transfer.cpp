// SPDX-License-Identifier: Apache-2.0
#include "program/transfer.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace penstock {

namespace {

void append_links(const std::vector<LinkFlow>& flows, std::vector<int>& links) {
  for (const LinkFlow& flow : flows)
    links.insert(links.end(), flow.links.begin(), flow.links.end());
}

std::vector<int> each_once(std::vector<int> links) {
  std::ranges::sort(links);
  links.erase(std::ranges::unique(links).begin(), links.end());
  return links;
}

}  // namespace

std::vector<int> crossed_by(const std::vector<LinkFlow>& flows) {
  std::vector<int> links;
  append_links(flows, links);
  return each_once(std::move(links));
}

std::vector<int> Transfer::crossed_links() const {
  std::vector<int> links;
  for (const Phase& phase : phases) append_links(phase.flows, links);
  return each_once(std::move(links));
}

std::string Transfer::describe() const {
  switch (kind) {
    case Kind::message:
      return fmt::format("channel {}->{} {}", source, destination, backward ? "B" : "F");
    case Kind::norm: return fmt::format("the norm {}->{}", source, destination);
    case Kind::reduction:
      return replica < 0 ? fmt::format("the gradient reduction of stage {}", source)
                         : fmt::format("the update of replica {}", replica);
    case Kind::collective:
      return fmt::format("the {} {}s of device {}", traits(axis).adjective,
                         kCollectiveNames[static_cast<std::size_t>(what)], source);
  }
  return "";
}

}  // namespace penstock

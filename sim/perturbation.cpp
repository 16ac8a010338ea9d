// SPDX-License-Identifier: Apache-2.0
// Links of a perturbation by name: those that the traffic of the run crosses.
#include "base/suggest.hpp"
#include "sim/engine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace penstock {
namespace {

/// The two ends in a link's name: "0->1 F", "a--b", "gpu3->gpu4"; empty for ports.
std::pair<std::string, std::string> ends_of(const std::string& name) {
  const std::size_t at = std::min(name.find("->"), name.find("--"));
  if (at == std::string::npos) return {};
  std::string second = name.substr(at + 2);
  if (second.ends_with(" F") || second.ends_with(" B")) second.resize(second.size() - 2);
  return {name.substr(0, at), second};
}

/// A device may be given by its number alone.
bool is_called(const std::string& end, const std::string& given) {
  return end == given || end == "gpu" + given;
}

bool concerns(const LinkChange& change, const std::string& link) {
  if (!change.link.empty()) return change.link == link;
  const auto [a, b] = ends_of(link);
  const auto& [c, d] = change.between;
  return (is_called(a, c) && is_called(b, d)) || (is_called(a, d) && is_called(b, c));
}

std::string unknown_link(const LinkChange& change, const std::vector<NetworkLink>& links) {
  constexpr std::size_t kShown = 12;
  std::vector<std::string> names;
  for (const NetworkLink& link : links) names.push_back(link.name);
  const std::string hint = change.link.empty() ? "" : did_you_mean(change.link, names);
  const std::size_t all = names.size();
  names.resize(std::min(all, kShown));
  const std::string what = change.link.empty()
                               ? fmt::format("no link of this run joins '{}' and '{}'",
                                             change.between[0], change.between[1])
                               : fmt::format("no link of this run is called '{}'", change.link);
  if (names.empty()) return what + ": its devices exchange no messages";
  return fmt::format("{}{} (there are {}{})", what, hint, fmt::join(names, ", "),
                     all > kShown ? fmt::format(" and {} more", all - kShown) : "");
}

}  // namespace

Perturbation perturbation_of(const PerturbationSpec& spec, int devices, const Traffic& traffic) {
  Perturbation p = perturbation_of(spec, devices);
  std::vector<Diagnostic> wrong;
  const auto refuse = [&](const LinkChange& change, std::string why) {
    wrong.push_back(change.where);
    wrong.back().message = std::move(why);
  };
  for (const LinkChange& change : spec.links) {
    p.link_share.resize(traffic.links().size());
    bool found = false;
    for (std::size_t l = 0; l < traffic.links().size(); ++l) {
      const NetworkLink& link = traffic.links()[l];
      if (!concerns(change, link.name)) continue;
      found = true;
      p.link_share[l].scale(change.from_s, change.until_s, change.share);
      if (!std::isinf(link.bytes_per_s)) continue;
      refuse(change, fmt::format("the link '{}' has no bandwidth that could change; give the "
                                 "cluster's link a 'bandwidth'",
                                 link.name));
      break;  // the others are no better
    }
    if (!found) refuse(change, unknown_link(change, traffic.links()));
  }
  if (!wrong.empty()) throw InputError(wrong);
  return p;
}

}  // namespace penstock

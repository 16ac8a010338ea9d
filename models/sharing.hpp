// How flows share links: max-min fairness, in closed form where nothing else uses the links.
#pragma once

#include "models/cluster.hpp"

namespace penstock {

/// Bytes that cross these links, all of them at one rate.
struct LinkFlow {
  std::vector<int> links;  ///< indices into the network's links
  double bytes = 0;
};

/// The links that any of these flows crosses, each once.
std::vector<int> crossed_by(const std::vector<LinkFlow>& flows);

/// Seconds until the last of these flows has ended when all start together and share every link
/// max-min fairly (progressive filling: Bertsekas and Gallager, Data Networks, 2nd ed., 6.5.2).
double shared_flows_s(const std::vector<LinkFlow>& flows, const std::vector<NetworkLink>& links);

}  // namespace penstock

#include "sim/engine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

namespace penstock {
namespace {

std::string describe(const Channel& c) {
  return fmt::format("{}->{} {}", c.source, c.destination, c.backward ? "B" : "F");
}

}  // namespace

Channels::Channels(const Program& program, const Cluster& cluster,
                   const std::vector<int>& gpu_of_device)
    : stages_(static_cast<std::uint32_t>(program.placement.stages())),
      width_(static_cast<std::uint32_t>(program.placement.width)),
      index_(std::size_t{2} * stages_ * width_, kNoOp) {
  Network network(cluster);
  std::map<std::tuple<int, int, bool>, std::uint32_t> known;
  const auto add = [&](std::uint32_t from, std::uint32_t to, std::uint32_t replica, bool backward) {
    const int source = program.placement.device_of(from, replica);
    const int destination = program.placement.device_of(to, replica);
    if (source == destination) return;
    const auto [it, added] = known.try_emplace({source, destination, backward},
                                               static_cast<std::uint32_t>(channels_.size()));
    index_[((backward ? stages_ : 0) + from) * width_ + replica] = it->second;
    if (!added) return;
    Route route = network.route(gpu_of_device[static_cast<std::size_t>(source)],
                                gpu_of_device[static_cast<std::size_t>(destination)], backward);
    channels_.push_back(
        {source, destination, backward, std::move(route.links), route.latency_s, 0, false});
  };
  for (std::uint32_t r = 0; r < width_; ++r) {
    for (std::uint32_t s = 0; s + 1 < stages_; ++s) {
      add(s, s + 1, r, false);
      add(s + 1, s, r, true);
    }
  }
  links_ = network.links();
  std::vector<int> users(links_.size(), 0);
  for (const Channel& c : channels_) {
    for (const int l : c.links) ++users[static_cast<std::size_t>(l)];
  }
  for (Channel& c : channels_) {
    c.bytes_per_s = std::numeric_limits<double>::infinity();
    for (const int l : c.links) {
      const auto& link = links_[static_cast<std::size_t>(l)];
      c.bytes_per_s = std::min(c.bytes_per_s, link.bytes_per_s);
      // A link without a limit is never fought over.
      if (users[static_cast<std::size_t>(l)] > 1 && !std::isinf(link.bytes_per_s))
        c.contended = true;
    }
  }
}

std::string Channels::contention() const {
  if (std::ranges::none_of(channels_, &Channel::contended)) return "";
  for (std::size_t l = 0; l < links_.size(); ++l) {
    const Channel* first = nullptr;
    if (std::isinf(links_[l].bytes_per_s)) continue;
    for (const Channel& c : channels_) {
      if (std::ranges::find(c.links, static_cast<int>(l)) == c.links.end()) continue;
      if (first != nullptr) {
        return fmt::format("channels {} and {} share the link '{}' ({})", describe(*first),
                           describe(c), links_[l].name, links_[l].fifo ? "fifo" : "fair");
      }
      first = &c;
    }
  }
  return "";
}

}  // namespace penstock

#include "sim/engine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

namespace penstock {
namespace {

std::string describe(const Channel& c) {
  return fmt::format("channel {}->{} {}", c.source, c.destination, c.backward ? "B" : "F");
}

/// Calls `use(links)` for every channel and, with all of its flows' links, every reduction.
template <class Use>
void for_each_user(const std::vector<Channel>& channels, const std::vector<Reduction>& reductions,
                   const Use& use) {
  for (const Channel& c : channels) use(c.links, describe(c));
  for (const Reduction& reduction : reductions) {
    std::vector<int> links;
    for (const auto& phase : reduction.phases) {
      for (const LinkFlow& flow : phase.flows)
        links.insert(links.end(), flow.links.begin(), flow.links.end());
    }
    std::ranges::sort(links);
    links.erase(std::ranges::unique(links).begin(), links.end());
    if (!links.empty()) use(links, reduction.describe());
  }
}

}  // namespace

std::string Reduction::describe() const {
  return replica < 0 ? fmt::format("the gradient reduction of stage {}", position)
                     : fmt::format("the update of replica {}", replica);
}

Channels::Channels(const Program& program, const Cluster& cluster,
                   const std::vector<int>& gpu_of_device, const ReductionOptions& reductions)
    : stages_(static_cast<std::uint32_t>(program.placement.stages())),
      width_(program.placement.round()),
      index_(std::size_t{2} * stages_ * width_, kNoOp) {
  Network network(cluster);
  add_channels(program, gpu_of_device, network);
  add_reductions(program, cluster, gpu_of_device, reductions, network);
  links_ = network.links();
  find_contention();
}

void Channels::add_channels(const Program& program, const std::vector<int>& gpus,
                            Network& network) {
  std::map<std::tuple<int, int, bool>, std::uint32_t> known;
  const auto add = [&](std::uint32_t from, std::uint32_t to, std::uint32_t turn, bool backward) {
    const int source = program.placement.device_of(from, turn);
    const int destination = program.placement.device_of(to, turn);
    if (source == destination) return;
    const auto [it, added] = known.try_emplace({source, destination, backward},
                                               static_cast<std::uint32_t>(channels_.size()));
    index_[((backward ? stages_ : 0) + from) * width_ + turn] = it->second;
    if (!added) return;
    Route route = network.route(gpus[static_cast<std::size_t>(source)],
                                gpus[static_cast<std::size_t>(destination)], backward);
    channels_.push_back(
        {source, destination, backward, std::move(route.links), route.latency_s, 0, false});
  };
  for (std::uint32_t turn = 0; turn < width_; ++turn) {
    for (std::uint32_t s = 0; s + 1 < stages_; ++s) {
      add(s, s + 1, turn, false);
      add(s + 1, s, turn, true);
    }
  }
}

void Channels::add_reductions(const Program& program, const Cluster& cluster,
                              const std::vector<int>& gpus, const ReductionOptions& options,
                              Network& network) {
  const auto node_of = [&](int gpu) { return cluster.node_of(gpu); };
  for (std::uint32_t p = 0; p < static_cast<std::uint32_t>(program.placement.depth()); ++p) {
    std::vector<int> members;
    for (int r = 0; r < program.placement.widths()[p]; ++r) {
      const int device = program.placement.device_at(static_cast<std::uint32_t>(r), p);
      members.push_back(gpus[static_cast<std::size_t>(device)]);
    }
    if (!program.asynchronous) {
      add_reduction(p, -1, all_reduce(options.algorithm, members, node_of, options.servers),
                    options, network);
      continue;
    }
    for (std::size_t r = 0; r < members.size(); ++r) {
      add_reduction(p, static_cast<int>(r), push_and_pull(members, members[r], options.servers),
                    options, network);
    }
  }
}

void Channels::add_reduction(std::uint32_t position, int replica,
                             const std::vector<CollectivePhase>& phases,
                             const ReductionOptions& options, Network& network) {
  Reduction& reduction = reductions_.emplace_back();
  reduction.position = position;
  reduction.replica = replica;
  reduction.buckets = {{1, 1}};
  if (position < options.buckets.size() && !options.buckets[position].empty())
    reduction.buckets = options.buckets[position];
  if (options.priced) return;
  for (const CollectivePhase& phase : phases) {
    auto& made = reduction.phases.emplace_back();
    for (const CollectiveFlow& flow : phase.flows) {
      Route route = network.route(flow.from, flow.to, true);
      made.latency_s = std::max(made.latency_s, phase.steps * route.latency_s);
      made.flows.push_back({std::move(route.links), flow.share});
    }
  }
}

void Channels::find_contention() {
  std::vector<int> users(links_.size(), 0);
  for_each_user(channels_, reductions_, [&](const std::vector<int>& links, const std::string&) {
    for (const int l : links) ++users[static_cast<std::size_t>(l)];
  });
  // A link without a limit is never fought over.
  const auto fought_over = [&](int l) {
    const auto i = static_cast<std::size_t>(l);
    return users[i] > 1 && !std::isinf(links_[i].bytes_per_s);
  };
  for (Channel& c : channels_) {
    c.bytes_per_s = std::numeric_limits<double>::infinity();
    for (const int l : c.links)
      c.bytes_per_s = std::min(c.bytes_per_s, links_[static_cast<std::size_t>(l)].bytes_per_s);
    c.contended = std::ranges::any_of(c.links, fought_over);
  }
  for (Reduction& reduction : reductions_) {
    for (const auto& phase : reduction.phases) {
      for (const LinkFlow& flow : phase.flows)
        reduction.contended |= std::ranges::any_of(flow.links, fought_over);
    }
  }
}

double Channels::alone_s(const Reduction& reduction, double bytes) const {
  double seconds = 0;
  for (const auto& phase : reduction.phases) {
    seconds += bytes * shared_flows_s(phase.flows, links_) + phase.latency_s;
  }
  return seconds;
}

std::string Channels::contention() const {
  std::vector<std::vector<std::string>> users(links_.size());
  for_each_user(channels_, reductions_,
                [&](const std::vector<int>& links, const std::string& user) {
                  for (const int l : links) users[static_cast<std::size_t>(l)].push_back(user);
                });
  for (std::size_t l = 0; l < links_.size(); ++l) {
    if (users[l].size() < 2 || std::isinf(links_[l].bytes_per_s)) continue;
    return fmt::format("{} and {} share the link '{}' ({})", users[l][0], users[l][1],
                       links_[l].name, links_[l].fifo ? "fifo" : "fair");
  }
  return "";
}

}  // namespace penstock

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

std::vector<int> crossed_by(const Reduction& reduction) {
  std::vector<LinkFlow> flows;
  for (const FlowGroup& phase : reduction.phases)
    flows.insert(flows.end(), phase.flows.begin(), phase.flows.end());
  return crossed_by(flows);
}

/// Calls `use(links, name)` for everybody that moves something; `name()` says who it is.
template <class Use>
void for_each_user(const Channels& channels, const Use& use) {
  for (const Channel& c : channels.all()) {
    if (channels.messages_take_time()) use(crossed_by(c.flows), [&] { return describe(c); });
  }
  for (const Reduction& r : channels.reductions()) use(crossed_by(r), [&] { return r.describe(); });
  for (std::size_t d = 0; d < channels.exchanges().size(); ++d) {
    use(crossed_by(channels.exchanges()[d].ring.flows),
        [&] { return fmt::format("the tensor-parallel all-reduces of device {}", d); });
  }
}

std::size_t index(int link) { return static_cast<std::size_t>(link); }

/// A link at which flows of one group stand in line; -1: none. Where it is all that they cross, it
/// takes them as long one by one as side by side.
int own_line(const std::vector<LinkFlow>& flows, const std::vector<NetworkLink>& links) {
  std::map<int, std::vector<const LinkFlow*>> users;
  for (const LinkFlow& flow : flows) {
    for (const int l : flow.links) {
      if (links[index(l)].fifo && !std::isinf(links[index(l)].bytes_per_s))
        users[l].push_back(&flow);
    }
  }
  for (const auto& [link, here] : users) {
    const bool elsewhere =
        std::ranges::any_of(here, [](const LinkFlow* flow) { return flow->links.size() > 1; });
    if (here.size() > 1 && elsewhere) return link;
  }
  return -1;
}

/// Bytes per second of flows that start together, whose shares are of 1 byte.
double rate_alone(const std::vector<LinkFlow>& flows, const std::vector<NetworkLink>& links) {
  double narrowest = std::numeric_limits<double>::infinity();
  if (flows.size() != 1) {
    const double seconds = shared_flows_s(flows, links);
    return seconds > 0 ? 1 / seconds : narrowest;
  }
  for (const int l : flows[0].links) narrowest = std::min(narrowest, links[index(l)].bytes_per_s);
  return narrowest / flows[0].bytes;
}

/// Flows of these shares along their routes, and the slowest one's latency.
FlowGroup along_routes(const std::vector<CollectiveFlow>& flows, bool backward, Network& network) {
  FlowGroup group;
  for (const CollectiveFlow& flow : flows) {
    Route route = network.route(flow.from, flow.to, backward);
    group.latency_s = std::max(group.latency_s, route.latency_s);
    group.flows.push_back({std::move(route.links), flow.share});
  }
  return group;
}

/// Who sends which share of a microbatch to whom: rank to rank, and replica to replica as their
/// parts of its samples overlap.
std::vector<CollectiveFlow> message_flows(const std::vector<int>& from, const std::vector<int>& to,
                                          int tensor) {
  const int senders = static_cast<int>(from.size()) / tensor;
  const int receivers = static_cast<int>(to.size()) / tensor;
  std::vector<CollectiveFlow> flows;
  for (int i = 0; i < senders; ++i) {
    for (int j = 0; j < receivers; ++j) {
      // In parts of 1 / (senders receivers): those of sender i against those of receiver j.
      const int common =
          std::min((i + 1) * receivers, (j + 1) * senders) - std::max(i * receivers, j * senders);
      if (common <= 0) continue;
      const double share = static_cast<double>(common) / (senders * receivers);
      for (int rank = 0; rank < tensor; ++rank)
        flows.push_back({from[index(i * tensor + rank)], to[index(j * tensor + rank)], share});
    }
  }
  return flows;
}

}  // namespace

std::string Reduction::describe() const {
  return replica < 0 ? fmt::format("the gradient reduction of stage {}", position)
                     : fmt::format("the update of replica {}", replica);
}

std::vector<std::vector<int>> reduction_groups(const Placement& placement, const Seats& seats,
                                               std::uint32_t position) {
  std::vector<std::vector<int>> groups(static_cast<std::size_t>(seats.tensor));
  const auto add_replicas = [&](std::uint32_t at) {
    for (int r = 0; r < placement.widths()[at]; ++r) {
      const int device = placement.device_at(static_cast<std::uint32_t>(r), at);
      const std::vector<int>& gpus = seats.gpus[index(device)];
      for (std::size_t i = 0; i < gpus.size(); ++i) groups[i % groups.size()].push_back(gpus[i]);
    }
  };
  add_replicas(position);
  if (placement.twin(position) != position) add_replicas(placement.twin(position));
  return groups;
}

Channels::Channels(const Program& program, const Cluster& cluster, const Seats& seats,
                   const ReductionOptions& reductions)
    : messages_take_time_(program.transfers != Transfers::free),
      stages_(static_cast<std::uint32_t>(program.placement.stages())),
      round_(program.placement.round()),
      mirrored_(program.placement.mirrored()),
      width_(program.placement.ways()),
      placement_(program.placement),
      index_(std::size_t{2} * stages_ * width_, kNoOp) {
  Network network(cluster);
  add_channels(program, seats, network);
  if (program.step_sync == StepSync::post_validation) find_norm_channels(program);
  add_reductions(program, cluster, seats, reductions, network);
  if (seats.tensor > 1) add_exchanges(seats, network);
  links_ = network.links();
  find_contention();
}

void Channels::add_channels(const Program& program, const Seats& seats, Network& network) {
  std::map<std::tuple<int, int, bool>, std::uint32_t> known;
  const auto add = [&](std::uint32_t from, std::uint32_t to, std::uint32_t turn, bool backward) {
    const int source = program.placement.device_on(from, turn);
    const int destination = program.placement.device_on(to, turn);
    if (source == destination) return;
    const auto [it, added] = known.try_emplace({source, destination, backward},
                                               static_cast<std::uint32_t>(channels_.size()));
    index_[((backward ? stages_ : 0) + from) * width_ + turn] = it->second;
    if (!added) return;
    const auto flows =
        message_flows(seats.gpus[index(source)], seats.gpus[index(destination)], seats.tensor);
    FlowGroup group = along_routes(flows, backward, network);
    channels_.push_back(
        {source, destination, backward, std::move(group.flows), group.latency_s, 0, false});
  };
  for (std::uint32_t turn = 0; turn < width_; ++turn) {
    for (std::uint32_t s = 0; s + 1 < stages_; ++s) {
      add(s, s + 1, turn, false);
      add(s + 1, s, turn, true);
    }
  }
}

/// The first stages of two neighbouring positions are neighbours.
void Channels::find_norm_channels(const Program& program) {
  for (int d = 0; d < program.placement.devices(); ++d) {
    const int from = program.placement.norm_from(d);
    const auto found = std::ranges::find_if(channels_, [&](const Channel& c) {
      return c.source == from && c.destination == d && !c.backward;
    });
    invariant(from < 0 || found != channels_.end(), "a partial norm has no channel to travel by");
    norm_channels_.push_back(from < 0 ? kNoOp
                                      : static_cast<std::uint32_t>(found - channels_.begin()));
  }
}

void Channels::add_reductions(const Program& program, const Cluster& cluster, const Seats& seats,
                              const ReductionOptions& options, Network& network) {
  const auto node_of = [&](int gpu) { return cluster.node_of(gpu); };
  for (std::uint32_t p = 0; p < static_cast<std::uint32_t>(program.placement.depth()); ++p) {
    if (program.placement.twin(p) < p) {  // reduces with its twin
      add_reduction(p, -1, {}, options, network);
      continue;
    }
    const auto groups = reduction_groups(program.placement, seats, p);
    if (!program.asynchronous) {
      add_reduction(p, -1, all_reduce(options.algorithm, groups, node_of, options.servers), options,
                    network);
      continue;
    }
    for (std::size_t r = 0; r < groups.front().size(); ++r) {
      std::vector<std::vector<CollectivePhase>> ranks;
      for (const std::vector<int>& gpus : groups)
        ranks.push_back(push_and_pull(gpus, gpus[r], options.servers));
      add_reduction(p, static_cast<int>(r), side_by_side(ranks), options, network);
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
  for (const CollectivePhase& phase : phases) {
    for (const CollectiveFlow& flow : phase.flows) reduction.sent += flow.share;
  }
  if (options.priced) return;
  for (const CollectivePhase& phase : phases) {
    reduction.phases.push_back(along_routes(phase.flows, true, network));
    reduction.phases.back().latency_s *= phase.steps;
  }
}

void Channels::add_exchanges(const Seats& seats, Network& network) {
  const auto ranks = static_cast<std::size_t>(seats.tensor);
  for (const std::vector<int>& gpus : seats.gpus) {
    std::vector<std::vector<int>> rings;
    for (std::size_t i = 0; i < gpus.size(); i += ranks) {
      const auto first = gpus.begin() + static_cast<std::ptrdiff_t>(i);
      rings.emplace_back(first, first + seats.tensor);
    }
    const auto phases = all_reduce(ReductionAlgorithm::ring, rings, [](int) { return 0; });
    Exchange& exchange = exchanges_.emplace_back();
    exchange.ring = along_routes(phases[0].flows, true, network);
    exchange.ring.latency_s *= phases[0].steps;
  }
}

void Channels::find_contention() {
  std::vector<int> users(links_.size(), 0);
  for_each_user(*this, [&](const std::vector<int>& links, const auto&) {
    for (const int l : links) ++users[index(l)];
  });
  // A link without a limit is never fought over.
  const auto fought_over = [&](const std::vector<LinkFlow>& flows) {
    return own_line(flows, links_) >= 0 || std::ranges::any_of(crossed_by(flows), [&](int l) {
             return users[index(l)] > 1 && !std::isinf(links_[index(l)].bytes_per_s);
           });
  };
  for (Channel& c : channels_) {
    c.bytes_per_s = rate_alone(c.flows, links_);
    c.contended = fought_over(c.flows);
  }
  for (Reduction& r : reductions_) {
    r.contended = std::ranges::any_of(
        r.phases, [&](const FlowGroup& phase) { return fought_over(phase.flows); });
  }
  for (Exchange& e : exchanges_) {
    e.s_per_byte = shared_flows_s(e.ring.flows, links_);
    e.contended = fought_over(e.ring.flows);
  }
}

double Channels::alone_s(const Reduction& reduction, double bytes) const {
  double seconds = 0;
  for (const FlowGroup& phase : reduction.phases)
    seconds += bytes * shared_flows_s(phase.flows, links_) + phase.latency_s;
  return seconds;
}

std::vector<std::uint32_t> Channels::flows_of_one() const {
  std::vector<std::uint32_t> most(links_.size(), 0), now(links_.size(), 0);
  const auto look_at = [&](const std::vector<LinkFlow>& flows) {
    for (const LinkFlow& flow : flows) {
      for (const int l : flow.links) {
        const std::uint32_t flows_now = links_[index(l)].fifo ? 1 : ++now[index(l)];
        most[index(l)] = std::max(most[index(l)], flows_now);
      }
    }
    for (const LinkFlow& flow : flows) {
      for (const int l : flow.links) now[index(l)] = 0;
    }
  };
  for (const Channel& c : channels_) {
    if (messages_take_time_) look_at(c.flows);
  }
  for (const Reduction& reduction : reductions_) {
    for (const FlowGroup& phase : reduction.phases) look_at(phase.flows);
  }
  for (const Exchange& exchange : exchanges_) look_at(exchange.ring.flows);
  return most;
}

std::optional<Contention> Channels::contention() const {
  const auto none = [](const auto& users) {
    return std::ranges::none_of(users, [](const auto& user) { return user.contended; });
  };
  if (none(channels_) && none(reductions_) && none(exchanges_)) return std::nullopt;
  std::vector<std::vector<std::string>> users(links_.size());
  for_each_user(*this, [&](const std::vector<int>& links, const auto& name) {
    for (const int l : links) {
      if (users[index(l)].size() < 2) users[index(l)].push_back(name());
    }
  });
  for (std::size_t l = 0; l < links_.size(); ++l) {
    if (users[l].size() > 1 && !std::isinf(links_[l].bytes_per_s))
      return Contention{users[l][0], users[l][1], static_cast<int>(l)};
  }
  for (const Channel& c : channels_) {
    const int link = messages_take_time_ ? own_line(c.flows, links_) : -1;
    if (link >= 0) return Contention{describe(c), "", link};
  }
  for (const Reduction& r : reductions_) {
    for (const FlowGroup& phase : r.phases) {
      const int link = own_line(phase.flows, links_);
      if (link >= 0) return Contention{r.describe(), "", link};
    }
  }
  return std::nullopt;
}

}  // namespace penstock

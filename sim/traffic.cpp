// SPDX-License-Identifier: Apache-2.0
#include "sim/traffic.hpp"

#include "base/error.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>
#include <utility>

namespace penstock {
namespace {

std::size_t index(int link) { return static_cast<std::size_t>(link); }

/// A link at which flows of one phase stand in line; -1: none. Where it is all that they cross, it
/// takes them as long one by one as side by side.
int own_line(const std::vector<LinkFlow>& flows, const std::vector<NetworkLink>& links) {
  if (flows.size() < 2) return -1;
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

/// Do the GPUs of a position exchange along it, whichever devices they belong to?
bool of_positions(Axis axis) { return axis == Axis::data || axis == Axis::expert; }

/// Returns the bytes that all flows of a phase move, over the bytes of its Transfer.
double shares(const Transfer::Phase& phase) {
  double sum = 0;
  for (const LinkFlow& flow : phase.flows) sum += flow.bytes;
  return sum / phase.pace;
}

/// Who sends which share of a microbatch to whom: rank to rank, and replica to replica as their
/// parts of its samples overlap.
std::vector<CollectiveFlow> message_flows(const std::vector<int>& from, const std::vector<int>& to,
                                          int ranks) {
  const int senders = static_cast<int>(from.size()) / ranks;
  const int receivers = static_cast<int>(to.size()) / ranks;
  std::vector<CollectiveFlow> flows;
  for (int i = 0; i < senders; ++i) {
    for (int j = 0; j < receivers; ++j) {
      // In parts of 1 / (senders receivers): those of sender i against those of receiver j.
      const int common =
          std::min((i + 1) * receivers, (j + 1) * senders) - std::max(i * receivers, j * senders);
      if (common <= 0) continue;
      const double share = static_cast<double>(common) / (senders * receivers);
      for (int rank = 0; rank < ranks; ++rank)
        flows.push_back({from[index(i * ranks + rank)], to[index(j * ranks + rank)], share});
    }
  }
  return flows;
}

}  // namespace

std::vector<AxisCollective> collectives_of(const std::vector<StageCosts>& costs) {
  std::vector<AxisCollective> found;
  const auto add_pass = [&](const PassCosts& pass) {
    const auto add_segment = [&](const Segment& s) {
      const AxisCollective collective{s.axis, s.what};
      if (s.exchanges() && std::ranges::find(found, collective) == found.end())
        found.push_back(collective);
    };
    for (const OpCost& op : pass.ops) op.recipe.for_each(add_segment);
    if (pass.gathering) pass.gathering->recipe.for_each(add_segment);
  };
  for (const StageCosts& stage : costs) {
    add_pass(stage);
    if (stage.stored) add_pass(*stage.stored);
  }
  return found;
}

Traffic::Traffic(const Program& program, const Cluster& cluster, const Mesh& mesh,
                 const ReductionOptions& reductions, const std::vector<AxisCollective>& collectives)
    : messages_take_time_(program.transfers != Transfers::free),
      reductions_hold_(!program.asynchronous && !program.detached_reductions),
      stages_(static_cast<std::uint32_t>(program.placement.stages())),
      round_(program.placement.round()),
      mirrored_(program.placement.mirrored()),
      shard_group_(reductions.sharding.group),
      width_(program.placement.routes()),
      placement_(program.placement),
      index_(std::size_t{2} * stages_ * width_, kNoOp) {
  for (auto& of_axis : first_collective_) of_axis.fill(kNoOp);
  ranks_.fill(1);
  for (const Axis axis : kInnerAxes) ranks_[static_cast<std::size_t>(axis)] = mesh.size(axis);
  ranks_[static_cast<std::size_t>(Axis::expert)] = std::max(1, mesh.expert);
  Network network(cluster);
  add_messages(program, mesh, network);
  add_reductions(program, cluster, mesh, reductions, network);
  order_buckets(program);
  for (const AxisCollective& collective : collectives)
    add_collectives(collective, program, cluster, mesh, network);
  if (program.step_sync == StepSync::post_validation) add_norms(program);
  links_ = network.links();
  find_contention();
}

void Traffic::add_messages(const Program& program, const Mesh& mesh, Network& network) {
  std::map<std::tuple<int, int, bool>, std::uint32_t> known;
  const auto add = [&](std::uint32_t from, std::uint32_t to, std::uint32_t turn, bool backward) {
    const int source = program.placement.device_on(from, turn);
    const int destination = program.placement.device_on(to, turn);
    if (source == destination) return;
    const auto [it, added] = known.try_emplace({source, destination, backward}, messages_);
    index_[((backward ? stages_ : 0) + from) * width_ + turn] = it->second;
    if (!added) return;
    const auto flows =
        message_flows(mesh.gpus[index(source)], mesh.gpus[index(destination)], mesh.replica_gpus());
    Transfer& message = transfers_.emplace_back();
    message.source = source;
    message.destination = destination;
    message.backward = backward;
    message.phases.push_back(routed(flows, backward, network));
    message.latency_s = message.phases[0].latency_s;
    message.sent_per_byte = shares(message.phases[0]);
    ++messages_;
  };
  for (std::uint32_t turn = 0; turn < width_; ++turn) {
    for (std::uint32_t s = 0; s + 1 < stages_; ++s) {
      add(s, s + 1, turn, false);
      add(s + 1, s, turn, true);
    }
  }
}

void Traffic::add_reductions(const Program& program, const Cluster& cluster, const Mesh& mesh,
                             const ReductionOptions& options, Network& network) {
  const auto node_of = [&](int gpu) { return cluster.node_of(gpu); };
  for (std::uint32_t p = 0; p < static_cast<std::uint32_t>(program.placement.depth()); ++p) {
    if (program.placement.mirror_of(p) < p) {  // reduces with its mirror
      add_reduction(p, -1, {}, options, network);
      continue;
    }
    if (!program.asynchronous) {
      add_reduction(p, -1, reduction_phases(options, program.placement, mesh, p, node_of), options,
                    network);
      continue;
    }
    const auto groups = reduction_groups(program.placement, mesh, p);
    for (std::size_t r = 0; r < groups.front().size(); ++r) {
      std::vector<std::vector<CollectivePhase>> ranks;
      for (const std::vector<int>& gpus : groups)
        ranks.push_back(push_and_pull(gpus, gpus[r], options.servers));
      add_reduction(p, static_cast<int>(r), side_by_side(ranks), options, network);
    }
  }
}

void Traffic::add_reduction(std::uint32_t position, int replica,
                            const std::vector<CollectivePhase>& phases,
                            const ReductionOptions& options, Network& network) {
  Transfer& reduction = transfers_.emplace_back();
  reduction.kind = Transfer::Kind::reduction;
  reduction.source = static_cast<int>(position);
  reduction.replica = replica;
  auto& buckets = buckets_.emplace_back(std::vector<GradientBucket>{{1, 1}});
  if (position < options.buckets.size() && !options.buckets[position].empty())
    buckets = options.buckets[position];
  for (const CollectivePhase& phase : phases) {
    for (const CollectiveFlow& flow : phase.flows) reduction.sent_per_byte += flow.share;
  }
  if (!options.priced) reduction.phases = priced(phases, network);
}

/// The parts of several stages follow one another as the first device of a replica group completes
/// their gradients.
void Traffic::order_buckets(const Program& program) {
  const auto several = [](const auto& buckets) { return buckets.size() > 1; };
  if (program.asynchronous || std::ranges::none_of(buckets_, several)) return;
  gradient_ends_ = GradientEnds(program);
  const OpLists& ops = program.ops;
  for (std::uint32_t p = 0; p < buckets_.size(); ++p) {
    const std::vector<std::uint32_t>& stages = program.placement.stages_at(p);
    if (stages.size() == 1)
      for (GradientBucket& bucket : buckets_[p])
        bucket.stage = static_cast<std::uint16_t>(stages[0]);
    const int d = program.placement.device_at(0, p);
    std::uint32_t reduce = ops.begin(d);
    while (reduce < ops.end(d) && ops[reduce].kind != OpKind::reduce_grad) ++reduce;
    const std::vector<std::uint16_t> order = gradient_ends_.stages_in_order(reduce);
    std::ranges::stable_sort(buckets_[p], {}, [&](const GradientBucket& bucket) {
      return std::pair(std::ranges::find(order, bucket.stage), bucket.ready);
    });
  }
}

/// The groups that divide a position's weights, or its experts, are priced together and go in
/// lockstep; each device has the flows that its own GPUs send.
void Traffic::add_groups_of_positions(const AxisCollective& of, const Program& program,
                                      const Cluster& cluster, const Mesh& mesh, Network& network) {
  const bool experts = of.axis == Axis::expert;
  std::vector<int> device_of(static_cast<std::size_t>(cluster.devices()), -1);
  for (std::size_t d = 0; d < mesh.gpus.size(); ++d)
    for (const int gpu : mesh.gpus[d]) device_of[index(gpu)] = static_cast<int>(d);
  const std::size_t first = transfers_.size();
  transfers_.resize(first + mesh.gpus.size());
  for (std::uint32_t p = 0; p < static_cast<std::uint32_t>(program.placement.depth()); ++p) {
    // Who divides weights is there with its mirror; who divides experts is not.
    if (!experts && program.placement.mirror_of(p) < p) continue;
    const GpuGroups groups =
        experts ? expert_groups(program.placement, mesh, p)
                : cut_into(reduction_groups(program.placement, mesh, p), shard_group_);
    const Exchange exchange{.what = of.what, .routing = experts ? mesh.routing : TokenRouting{}};
    const auto phases = phases_of(exchange, groups, [&](int gpu) { return cluster.node_of(gpu); });
    const std::vector<Transfer::Phase> whole = priced(phases, network);
    for (std::size_t i = 0; i < phases.size(); ++i) {
      for (const GpuGroups::value_type& group : groups) {
        for (const int gpu : group) {
          auto& own = transfers_[first + index(device_of[index(gpu)])].phases;
          own.resize(phases.size());
          own[i].latency_s = whole[i].latency_s;
          own[i].s_per_byte = whole[i].s_per_byte;
          own[i].join = whole[i].join;
          own[i].pace = whole[i].pace;
        }
      }
      for (std::size_t f = 0; f < phases[i].flows.size(); ++f)
        transfers_[first + index(device_of[index(phases[i].flows[f].from)])]
            .phases[i]
            .flows.push_back(whole[i].flows[f]);
    }
  }
  for (std::size_t t = first; t < transfers_.size(); ++t)
    for (const Transfer::Phase& phase : transfers_[t].phases)
      transfers_[t].sent_per_byte += shares(phase);
}

void Traffic::add_collectives(const AxisCollective& of, const Program& program,
                              const Cluster& cluster, const Mesh& mesh, Network& network) {
  const bool host = of.axis == Axis::host;
  const bool by_position = of_positions(of.axis);
  if (of.axis == Axis::expert && mesh.expert < 2) return;
  if (!host && !by_position && mesh.size(of.axis) == 1) return;
  ranks_[index(static_cast<int>(of.axis))] = std::max(2, ranks(of.axis));
  const bool measured =
      !cluster.measured.empty() || std::ranges::any_of(cluster.groups, [](const NodeGroup& group) {
        return !group.node.measured.empty();
      });
  const auto alike = std::ranges::find_if(collectives_, [&](const AxisCollective& known) {
    return !host && known.axis == of.axis && flows_alike(known.what, of.what) &&
           !measured;  // a library takes its own time for each
  });
  const std::optional<std::uint32_t> known =
      alike == collectives_.end() ? std::nullopt : std::optional(collective_of(0, *alike));
  collectives_.push_back(of);
  first_collective_[index(static_cast<int>(of.axis))][index(static_cast<int>(of.what))] =
      static_cast<std::uint32_t>(transfers_.size());
  if (known) {
    for (std::size_t device = 0; device < mesh.gpus.size(); ++device) {
      transfers_.push_back(Transfer(transfers_[*known + device]));
      transfers_.back().what = of.what;
    }
    return;
  }
  const bool by_rank = traits(of.axis).by_rank;
  const auto node_of = [&](int gpu) { return by_rank ? 0 : cluster.node_of(gpu); };
  const std::size_t first = transfers_.size();
  if (by_position) add_groups_of_positions(of, program, cluster, mesh, network);
  transfers_.resize(first + mesh.gpus.size());
  for (int device = 0; device < static_cast<int>(mesh.gpus.size()); ++device) {
    Transfer& ring = transfers_[first + index(device)];
    ring.kind = Transfer::Kind::collective;
    ring.axis = of.axis;
    ring.what = of.what;
    ring.source = device;
    if (by_position) continue;
    if (host)
      ring.phases = {
          host_copies(mesh.gpus[index(device)], of.what == Collective::copy_out, network)};
    else
      ring.phases = priced(phases_of({of.what}, mesh.groups(device, of.axis), node_of), network);
    ring.sent_per_byte = shares(ring.phases[0]);
  }
}

/// A norm goes as the forward messages do: the first stages of two neighbouring positions are
/// neighbours.
void Traffic::add_norms(const Program& program) {
  for (int d = 0; d < program.placement.devices(); ++d) {
    const int from = program.placement.norm_from(d);
    if (from < 0) {
      norms_.push_back(kNoOp);  // the norm begins here
      continue;
    }
    const auto found = std::ranges::find_if(messages(), [&](const Transfer& t) {
      return t.source == from && t.destination == d && !t.backward;
    });
    invariant(found != messages().end(), "a partial norm has no channel to travel by");
    norms_.push_back(static_cast<std::uint32_t>(transfers_.size()));
    Transfer norm;
    norm.kind = Transfer::Kind::norm;
    norm.source = from;
    norm.destination = d;
    norm.latency_s = messages_take_time_ ? found->latency_s : 0;
    transfers_.push_back(std::move(norm));
  }
}

void Traffic::set_private(std::uint32_t message, double latency_s, double bytes_per_s) {
  Transfer& changed = transfers_[message];
  changed.latency_s = latency_s;
  changed.bytes_per_s = bytes_per_s;
  changed.phases = {Transfer::Phase{{}, latency_s, 0}};
  changed.contended = false;
  for (const std::uint32_t n : norms_) {
    if (n == kNoOp || changed.backward || !messages_take_time_) continue;
    Transfer& norm = transfers_[n];
    if (norm.source == changed.source && norm.destination == changed.destination)
      norm.latency_s = latency_s;
  }
}

bool Traffic::in_turn(const Transfer& one, const Transfer& other) const {
  if (other.kind != Transfer::Kind::collective) return false;
  if (one.kind == Transfer::Kind::collective) {
    const bool sharded = one.axis == Axis::data, other_sharded = other.axis == Axis::data;
    if (sharded != other_sharded) return false;  // they go side by side
    // Groups of a position are priced together.
    const bool together = one.axis == other.axis && of_positions(one.axis);
    return one.source == other.source ||
           (together && placement_.position_of(one.source) == placement_.position_of(other.source));
  }
  if (one.kind != Transfer::Kind::reduction || !reductions_hold_) return false;
  const std::uint32_t position = placement_.position_of(other.source);
  const auto& buckets = buckets_[index(one.source)];
  return std::min(position, placement_.mirror_of(position)) ==
             static_cast<std::uint32_t>(one.source) &&
         buckets.size() == 1 && buckets[0].ready >= 1;
}

std::vector<Traffic::Users> Traffic::users_of_links() const {
  std::vector<Users> users(links_.size());
  for (const Transfer& transfer : transfers_) {
    if (!uses_links(transfer)) continue;
    for (const int l : transfer.crossed_links()) {
      Users& here = users[index(l)];
      // Collectives come after reductions: of two devices whose ranks reduce together they compete.
      if (here.first == nullptr || in_turn(*here.first, transfer))
        here.first = &transfer;
      else if (here.second == nullptr)
        here.second = &transfer;
    }
  }
  return users;
}

void Traffic::find_contention() {
  const std::vector<Users> users = users_of_links();
  // A link without a limit is never fought over.
  const auto fought_over = [&](const Transfer::Phase& phase) {
    const auto contested = [&](int l) {
      return users[index(l)].second != nullptr && !std::isinf(links_[index(l)].bytes_per_s);
    };
    return own_line(phase.flows, links_) >= 0 ||
           std::ranges::any_of(phase.flows, [&](const LinkFlow& flow) {
             return std::ranges::any_of(flow.links, contested);
           });
  };
  for (Transfer& transfer : transfers_) {
    transfer.contended = uses_links(transfer) && std::ranges::any_of(transfer.phases, fought_over);
    if (transfer.kind == Transfer::Kind::message)
      transfer.bytes_per_s = rate_alone(transfer.phases[0].flows, links_);
  }
}

std::vector<std::uint32_t> Traffic::flows_of_one() const {
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
  // Groups of a position go in lockstep.
  std::map<std::tuple<Axis, Collective, std::uint32_t, std::size_t>, std::vector<LinkFlow>> groups;
  for (const Transfer& transfer : transfers_) {
    if (!uses_links(transfer)) continue;
    const bool together =
        transfer.kind == Transfer::Kind::collective && of_positions(transfer.axis);
    for (std::size_t p = 0; p < transfer.phases.size(); ++p) {
      const std::vector<LinkFlow>& flows = transfer.phases[p].flows;
      if (!together) {
        look_at(flows);
        continue;
      }
      auto& all =
          groups[{transfer.axis, transfer.what, placement_.position_of(transfer.source), p}];
      all.insert(all.end(), flows.begin(), flows.end());
    }
  }
  for (const auto& [key, flows] : groups) look_at(flows);
  return most;
}

std::optional<Contention> Traffic::contention() const {
  if (std::ranges::none_of(transfers_, &Transfer::contended)) return std::nullopt;
  const std::vector<Users> users = users_of_links();
  for (std::size_t l = 0; l < links_.size(); ++l) {
    const auto [first, second] = users[l];
    if (second != nullptr && !std::isinf(links_[l].bytes_per_s))
      return Contention{first->describe(), second->describe(), static_cast<int>(l)};
  }
  for (const Transfer& transfer : transfers_) {
    if (!uses_links(transfer)) continue;
    for (const Transfer::Phase& phase : transfer.phases) {
      const int link = own_line(phase.flows, links_);
      if (link >= 0) return Contention{transfer.describe(), "", link};
    }
  }
  return std::nullopt;
}

}  // namespace penstock

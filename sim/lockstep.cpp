// SPDX-License-Identifier: Apache-2.0
#include "sim/lockstep.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <tuple>
#include <unordered_map>

namespace penstock {
namespace {

std::size_t at(int i) { return static_cast<std::size_t>(i); }

/// splitmix64 (Steele et al., 2014).
std::uint64_t scrambled(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27U)) * 0x94d049bb133111eb;
  return x ^ (x >> 31U);
}

/// The same but for rounding.
bool same(double a, double b) { return a == b || std::abs(a - b) <= 1e-13 * std::abs(a); }

/// Do they take equally long, alone?
bool alike(const Transfer& a, const Transfer& b) {
  return a.contended == b.contended && same(a.latency_s, b.latency_s) &&
         same(a.bytes_per_s, b.bytes_per_s) &&
         std::ranges::equal(a.phases, b.phases, [](const auto& x, const auto& y) {
           return same(x.latency_s, y.latency_s) && same(x.s_per_byte, y.s_per_byte) &&
                  x.join == y.join && x.flows.size() == y.flows.size();
         });
}

/// Do replicas run the same ops, each of its own share of the microbatches?
bool replicas_alike(const SimulationInput& input) {
  const Placement& placement = input.program.placement;
  const OpLists& ops = input.program.ops;
  if (!placement.replicated() || !placement.even() || input.program.asynchronous ||
      input.unlike != nullptr)
    return false;
  const std::uint32_t width = placement.width();
  const auto as_long = [&](const Op& a, const Op& b) {
    const DrawnCosts* drawn = input.costs[a.stage].drawn.get();
    return drawn == nullptr || !is_compute(a.kind) ||
           drawn->times[a.microbatch] == drawn->times[b.microbatch];
  };
  for (int d = 0; d < ops.devices(); ++d) {
    const auto leader = ops.of_device(placement.device_at(0, placement.position_of(d)));
    const bool same_ops =
        std::ranges::equal(leader, ops.of_device(d), [&](const Op& a, const Op& b) {
          return a.kind == b.kind && a.stage == b.stage && a.flags == b.flags &&
                 a.microbatch / width == b.microbatch / width && as_long(a, b);
        });
    if (!same_ops) return false;
  }
  return true;
}

/// By transfer: the first one that is its like in the leading replica.
std::vector<std::uint32_t> classes_of_transfers(const Traffic& traffic, const Placement& placement,
                                                bool replicas) {
  using Key = std::tuple<Transfer::Kind, Axis, Collective, std::uint32_t, std::uint32_t, bool>;
  std::map<Key, std::uint32_t> first;
  std::vector<std::uint32_t> classes;
  for (std::uint32_t t = 0; t < traffic.all().size(); ++t) {
    const Transfer& transfer = traffic[t];
    const bool of_devices = transfer.kind != Transfer::Kind::reduction;
    if (!replicas || !of_devices) {
      classes.push_back(t);
      continue;
    }
    const bool collective = transfer.kind == Transfer::Kind::collective;
    const Key key{transfer.kind,
                  transfer.axis,
                  transfer.what,
                  placement.position_of(transfer.source),
                  collective ? 0 : placement.position_of(transfer.destination),
                  transfer.backward};
    classes.push_back(first.try_emplace(key, t).first->second);
  }
  return classes;
}

/// Classes of the flows and links of contended transfers.
class Colours {
 public:
  Colours(const Traffic& traffic, const std::vector<std::uint32_t>& class_of)
      : traffic_(traffic), class_of_(class_of), links_(traffic.links().size()) {
    for (std::uint32_t t = 0; t < traffic.all().size(); ++t) {
      if (traffic[t].contended) add_transfer(t);
    }
    for (std::size_t l = 0; l < links_.size(); ++l)
      links_[l].colour = std::bit_cast<std::uint64_t>(traffic.links()[l].bytes_per_s);
    for (std::size_t had = 0, has = refine(); has > had; has = refine()) had = has;
    number();
  }

  /// Is the partition equitable, and has every transfer the flows of its leader? A link that serves
  /// one after the other knows no lockstep.
  bool hold() const {
    for (std::size_t l = 0; l < links_.size(); ++l) {
      if (links_[l].number < 0) continue;  // no flow that is played crosses it
      const Link& leader = links_[first_link_[at(links_[l].number)]];
      const NetworkLink &link = traffic_.links()[l], &first = traffic_.links()[leader.index];
      if (link.fifo || link.bytes_per_s != first.bytes_per_s || links_[l].users != leader.users)
        return false;
    }
    for (const Flow& flow : flows_) {
      if (routes_[flow.number] != route(flow)) return false;
    }
    return std::ranges::all_of(phases_, [&](const auto& entry) {
      const auto& [transfer, phase] = entry.first;
      return phases_.at({class_of_[transfer], phase}) == entry.second;
    });
  }

  std::vector<int> link_classes() const {
    std::vector<int> classes;
    for (const Link& link : links_) classes.push_back(link.number);
    return classes;
  }
  /// By class, the first link of it.
  const std::vector<std::size_t>& first_links() const { return first_link_; }

  /// A flow for each class of this phase.
  std::vector<LinkFlow> folded(std::uint32_t transfer, std::size_t phase) const {
    std::vector<LinkFlow> flows;
    const auto found = phases_.find({transfer, phase});
    if (found == phases_.end()) return flows;
    std::vector<std::uint32_t> numbers = found->second;
    numbers.erase(std::ranges::unique(numbers).begin(), numbers.end());
    for (const std::uint32_t number : numbers) {
      LinkFlow& flow = flows.emplace_back();
      flow.bytes = flows_[first_flow_[number]].flow->bytes;
      for (const int l : routes_[number]) {
        const auto& users = links_[first_link_[at(l)]].users;
        flow.links.insert(flow.links.end(), at(static_cast<int>(std::ranges::count(users, number))),
                          l);
      }
    }
    return flows;
  }

 private:
  struct Flow {
    const LinkFlow* flow;
    std::uint32_t transfer;
    std::size_t phase;
    std::uint64_t colour;
    std::uint32_t number = 0;  // of its class
  };
  struct Link {
    std::uint64_t colour = 0, sum = 0;
    int number = -1;  // of its class
    std::size_t index = 0;
    std::vector<std::uint32_t> users{};  // classes of the flows that cross it, sorted
  };

  void add_transfer(std::uint32_t t) {
    for (std::size_t p = 0; p < traffic_[t].phases.size(); ++p) {
      for (const LinkFlow& flow : traffic_[t].phases[p].flows) {
        const std::uint64_t place = scrambled(scrambled(class_of_[t]) + p);
        flows_.push_back(
            {&flow, t, p, scrambled(place + std::bit_cast<std::uint64_t>(flow.bytes))});
      }
    }
  }

  /// One step; how many classes of flows there are now.
  std::size_t refine() {
    for (Link& link : links_) link.sum = 0;
    for (const Flow& flow : flows_)
      for (const int l : flow.flow->links) links_[at(l)].sum += scrambled(flow.colour);
    for (Link& link : links_) link.colour = scrambled(link.colour + scrambled(link.sum));
    std::vector<std::uint64_t> colours;
    for (Flow& flow : flows_) {
      std::uint64_t sum = 0;
      for (const int l : flow.flow->links) sum += scrambled(links_[at(l)].colour);
      colours.push_back(flow.colour = scrambled(flow.colour + scrambled(sum)));
    }
    std::ranges::sort(colours);
    return static_cast<std::size_t>(std::ranges::unique(colours).begin() - colours.begin());
  }

  void number() {
    std::unordered_map<std::uint64_t, std::uint32_t> flow_numbers, link_numbers;
    for (std::size_t f = 0; f < flows_.size(); ++f) {
      Flow& flow = flows_[f];
      const auto count = static_cast<std::uint32_t>(flow_numbers.size());
      const auto [found, added] = flow_numbers.try_emplace(flow.colour, count);
      flow.number = found->second;
      if (added) first_flow_.push_back(f);
      phases_[{flow.transfer, flow.phase}].push_back(flow.number);
      for (const int l : flow.flow->links) links_[at(l)].users.push_back(flow.number);
    }
    for (auto& [phase, numbers] : phases_) std::ranges::sort(numbers);
    for (std::size_t l = 0; l < links_.size(); ++l) {
      Link& link = links_[l];
      link.index = l;
      if (link.users.empty()) continue;
      std::ranges::sort(link.users);
      const auto count = static_cast<std::uint32_t>(link_numbers.size());
      const auto [found, added] = link_numbers.try_emplace(link.colour, count);
      link.number = static_cast<int>(found->second);
      if (added) first_link_.push_back(l);
    }
    for (const std::size_t f : first_flow_) routes_.push_back(route(flows_[f]));
  }

  /// Classes of the links that a flow crosses, each once.
  std::vector<int> route(const Flow& flow) const {
    std::vector<int> classes;
    for (const int l : flow.flow->links) classes.push_back(links_[at(l)].number);
    std::ranges::sort(classes);
    classes.erase(std::ranges::unique(classes).begin(), classes.end());
    return classes;
  }

  const Traffic& traffic_;
  const std::vector<std::uint32_t>& class_of_;
  std::vector<Flow> flows_;
  std::vector<Link> links_;               // of the traffic
  std::vector<std::size_t> first_flow_;   // by class
  std::vector<std::vector<int>> routes_;  // by class of flows
  std::vector<std::size_t> first_link_;   // by class
  std::map<std::pair<std::uint32_t, std::size_t>, std::vector<std::uint32_t>> phases_;
};

}  // namespace

Lockstep::Lockstep(const SimulationInput& input, bool fold_what_is_alike)
    : traffic_(input.traffic), placement_(input.program.placement) {
  if (!fold_what_is_alike || input.perturbation != nullptr) return;
  folded_ = (replicas_alike(input) && fold(placement_.width())) || fold(1);
}

bool Lockstep::fold(std::uint32_t replicas) {
  class_of_ = classes_of_transfers(traffic_, placement_, replicas > 1);
  for (std::uint32_t t = 0; t < traffic_.all().size(); ++t)
    if (!alike(traffic_[t], traffic_[class_of_[t]])) return false;
  const Colours colours(traffic_, class_of_);
  if (!colours.hold()) return false;
  replicas_ = replicas;
  link_class_ = colours.link_classes();
  for (const std::size_t l : colours.first_links()) links_.push_back(traffic_.links()[l]);
  for (std::uint32_t t = 0; t < traffic_.all().size(); ++t) {
    auto& phases = flows_.emplace_back();
    if (class_of_[t] != t) continue;
    for (std::size_t p = 0; p < traffic_[t].phases.size(); ++p)
      phases.push_back(colours.folded(t, p));
  }
  return true;
}

void Lockstep::complete(const OpLists& ops, const std::vector<std::uint32_t>& peaks,
                        Timeline& timeline) const {
  for (std::size_t l = 0; l < timeline.peak_flows.size(); ++l) {
    const int counted = folded_ ? link_class_[l] : static_cast<int>(l);
    if (counted >= 0) timeline.peak_flows[l] = std::max(timeline.peak_flows[l], peaks[at(counted)]);
  }
  for (int d = 0; d < ops.devices(); ++d) {
    if (leads(d)) continue;
    const std::uint32_t from = ops.begin(placement_.device_at(0, placement_.position_of(d)));
    for (std::uint32_t g = ops.begin(d), i = from; g < ops.end(d); ++g, ++i) {
      timeline.op(g) = timeline.op(i);
      timeline.message(g) = timeline.message(i);
    }
  }
}

}  // namespace penstock

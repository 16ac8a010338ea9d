// Links whose bandwidth changes while flows are on them.
//
// SimGrid caps a flow for ever at the bandwidth that its route had when it started, so that
// `set_bandwidth` slows a running flow down but never speeds it up again. Here the bandwidth of a
// link stays what it is; a callback of the solver takes the share of it that there is now, and
// setting the same bandwidth again makes the solver look. Over a link without any bandwidth left
// nothing can move, which the solver cannot say: its flows are suspended until all of their links
// are back.
#pragma once

#include "sim/engine.hpp"

#include <simgrid/kernel/Timer.hpp>
#include <simgrid/s4u.hpp>

#include <algorithm>
#include <map>
#include <set>

namespace penstock {

class LinkRates {
 public:
  explicit LinkRates(const SimulationInput& input) : input_(input) {
    if (input.perturbation == nullptr) return;
    profiles_ = input.perturbation->link_share;
    for (const RateProfile& profile : profiles_) share_.push_back(profile.at(0));
  }
  LinkRates(const LinkRates&) = delete;
  LinkRates& operator=(const LinkRates&) = delete;

  /// Does a channel cross a link whose bandwidth changes? Its messages must be flows.
  bool concern(const Channel& channel) const {
    return std::ranges::any_of(channel.links, [&](int l) { return changes(index(l)); });
  }

  /// To be called before the link is sealed.
  void attach(std::size_t link, simgrid::s4u::Link* made) {
    if (!changes(link)) return;
    made->set_sharing_policy(simgrid::s4u::Link::SharingPolicy::NONLINEAR,
                             // Of a link without bandwidth no flow is left that could move.
                             [this, link](double capacity, int) {
                               return share_[link] > 0 ? capacity * share_[link] : capacity;
                             });
    made_[link] = made;
  }

  /// To be called before the clock runs.
  void start() {
    std::set<double> times;
    for (const RateProfile& profile : profiles_) {
      for (const RateProfile::Step& step : profile.steps()) {
        if (step.from_s > 0) times.insert(step.from_s);
      }
    }
    for (const double time_s : times)
      simgrid::kernel::timer::Timer::set(time_s, [this, time_s] { change(time_s); });
  }

  void began(std::size_t channel, const simgrid::s4u::CommPtr& comm) {
    if (!concern(channel_at(channel))) return;
    running_[channel] = {comm, false};
    hold_or_release(channel);
  }
  void ended(std::size_t channel) { running_.erase(channel); }

  /// Why flows stand still for ever; "" when none does.
  std::string stalled() const {
    for (const auto& [channel, flow] : running_) {
      for (const int l : channel_at(channel).links) {
        if (share_[index(l)] > 0) continue;
        const Channel& c = channel_at(channel);
        return "the link '" + input_.channels.links()[index(l)].name +
               "' fails and never recovers, and messages from device " + std::to_string(c.source) +
               " to device " + std::to_string(c.destination) + " wait for it";
      }
    }
    return "";
  }

 private:
  struct Flow {
    simgrid::s4u::CommPtr comm;
    bool held = false;
  };
  static std::size_t index(int link) { return static_cast<std::size_t>(link); }
  bool changes(std::size_t link) const {
    return link < profiles_.size() && !profiles_[link].constant();
  }
  const Channel& channel_at(std::size_t channel) const { return input_.channels.all()[channel]; }

  void change(double time_s) {
    for (const auto& [link, made] : made_) {
      const double share = profiles_[link].at(time_s);
      if (share == share_[link]) continue;
      share_[link] = share;
      made->set_bandwidth(input_.channels.links()[link].bytes_per_s);
    }
    for (const auto& [channel, flow] : running_) hold_or_release(channel);
  }

  void hold_or_release(std::size_t channel) {
    Flow& flow = running_.at(channel);
    const bool dead = std::ranges::any_of(channel_at(channel).links, [&](int l) {
      return changes(index(l)) && share_[index(l)] == 0;
    });
    if (dead == flow.held) return;
    flow.held = dead;
    if (dead) {
      flow.comm->suspend();
    } else {
      flow.comm->resume();
    }
  }

  const SimulationInput& input_;
  std::vector<RateProfile> profiles_;  // per link; empty: none changes
  std::vector<double> share_;          // now
  std::map<std::size_t, simgrid::s4u::Link*> made_;
  std::map<std::size_t, Flow> running_;  // by channel: flows over links that change
};

}  // namespace penstock

// Links whose bandwidth changes while flows are on them.
//
// SimGrid caps a flow for ever at the bandwidth that its route had when it started, so that
// `set_bandwidth` slows a running flow down but never speeds it up again. Here the bandwidth of a
// link stays what it is; a callback of the solver takes the share of it that there is now, and
// setting the same bandwidth again makes the solver look. The solver cannot take a share of 0 (and
// a Comm can be suspended only once), so a failed link keeps 1e-30 of its bandwidth, which moves
// less than a byte in the age of the universe; a flow that would end with that never does.
#pragma once

#include "sim/engine.hpp"

#include <simgrid/kernel/Timer.hpp>
#include <simgrid/s4u.hpp>

#include <algorithm>
#include <map>
#include <set>

namespace penstock {

/// SimGrid counts whole units: so many of ours are one byte. A power of two changes no digit.
inline constexpr double kUnitsPerByte = 1024;

class LinkRates {
 public:
  explicit LinkRates(const SimulationInput& input) : input_(input) {
    if (input.perturbation == nullptr) return;
    profiles_ = input.perturbation->link_share;
    for (const RateProfile& profile : profiles_) share_.push_back(profile.at(0));
  }
  LinkRates(const LinkRates&) = delete;
  LinkRates& operator=(const LinkRates&) = delete;

  /// Is there a link among these whose bandwidth changes? What crosses it must be flows.
  bool concern(const std::vector<int>& links) const {
    return std::ranges::any_of(links, [&](int l) { return changes(index(l)); });
  }

  /// To be called before the link is sealed.
  void attach(std::size_t link, simgrid::s4u::Link* made) {
    if (!changes(link)) return;
    made->set_sharing_policy(
        simgrid::s4u::Link::SharingPolicy::NONLINEAR,
        [this, link](double capacity, int) { return capacity * std::max(share_[link], kNothing); });
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

  /// A flow has ended now: was it in finite time? If not, it stands still for ever.
  static bool in_time(double now_s) { return now_s < kNever; }

  /// The first of these links that carries nothing now; "" when there is none.
  std::string failed(const std::vector<int>& links) const {
    for (const int l : links) {
      if (changes(index(l)) && share_[index(l)] == 0) return input_.traffic.links()[index(l)].name;
    }
    return "";
  }

 private:
  static constexpr double kNothing = 1e-30;  // share of a failed link
  static constexpr double kNever = 1e15;     // seconds; no run that ends is so long
  static std::size_t index(int link) { return static_cast<std::size_t>(link); }
  bool changes(std::size_t link) const {
    return link < profiles_.size() && !profiles_[link].constant();
  }

  void change(double time_s) {
    for (const auto& [link, made] : made_) {
      const double share = profiles_[link].at(time_s);
      if (share == share_[link]) continue;
      share_[link] = share;
      made->set_bandwidth(input_.traffic.links()[link].bytes_per_s * kUnitsPerByte);
    }
  }

  const SimulationInput& input_;
  std::vector<RateProfile> profiles_;  // per link; empty: none changes
  std::vector<double> share_;          // now
  std::map<std::size_t, simgrid::s4u::Link*> made_;
};

}  // namespace penstock

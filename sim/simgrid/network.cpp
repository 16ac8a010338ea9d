// SPDX-License-Identifier: Apache-2.0
// SimGrid shares the links and, while flows are under way, owns the clock.
//
// Driven from maestro, without actors and without a static DAG (both are slower by far in SimGrid
// 3.32): what is due is one SimGrid timer, flows are Comms. Latency is not SimGrid's, because it
// weighs the shares of a link by the latency of the routes.
#include "sim/simgrid/module.hpp"

#include <simgrid/kernel/Timer.hpp>
#include <simgrid/s4u.hpp>

#include <signal.h>

#include <array>
#include <set>

namespace penstock {
namespace {

namespace sg4 = simgrid::s4u;
using simgrid::kernel::timer::Timer;

/// SimGrid catches SIGINT and SIGSEGV for itself; here they keep the meaning they had.
class KeepSignals {
 public:
  KeepSignals() {
    for (std::size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], nullptr, &before_[i]);
  }
  ~KeepSignals() {
    for (std::size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &before_[i], nullptr);
  }
  KeepSignals(const KeepSignals&) = delete;
  KeepSignals& operator=(const KeepSignals&) = delete;

 private:
  static constexpr std::array<int, 4> kSignals{SIGINT, SIGSEGV, SIGABRT, SIGPIPE};
  std::array<struct sigaction, 4> before_{};
};

void configure() {
  const KeepSignals signals;
  static char program[] = "penstock";
  static char quiet[] = "--log=root.thres:critical";
  static char* arguments[] = {program, quiet, nullptr};
  int count = 2;
  // A singleton of the process, never destroyed: SimGrid cannot be started twice.
  new sg4::Engine(&count, arguments);  // NOLINT(clang-analyzer-cplusplus.NewDeleteLeaks)
  for (const char* setting :
       {"network/model:CM02", "network/crosstraffic:0", "network/TCP-gamma:1e30",
        "surf/precision:1e-12", "maxmin/precision:1e-9", "network/loopback-lat:0"}) {
    sg4::Engine::set_config(setting);
  }
}

class SimgridNetwork final : public FlowNetwork {
 public:
  /// Links as SimGrid links; one host per flow, whose way to the common sink crosses them.
  void open(const std::vector<NetworkLink>& links, const std::vector<const LinkFlow*>& routes,
            LinkShares& shares) override {
    shares_ = &shares;
    links_ = &links;
    auto* zone = sg4::create_star_zone("penstock");
    for (std::size_t l = 0; l < links.size(); ++l) {
      const double rate = std::isinf(links[l].bytes_per_s) ? 1e30 : units_per_s(l);
      auto* made = zone->create_link(links[l].name, rate);
      made->set_latency(0);
      follow_share(l, made);
      made_.push_back(made->seal());
    }
    sink_ = zone->create_host("sink", 1e9);
    sink_->seal();
    const auto connect = [&](sg4::Host* host, const std::vector<sg4::LinkInRoute>& route) {
      zone->add_route(host->get_netpoint(), nullptr, nullptr, nullptr, route, true);
    };
    connect(sink_, {});
    for (std::size_t f = 0; f < routes.size(); ++f) {
      sources_.push_back(zone->create_host("flow" + std::to_string(f), 1e9)->seal());
      std::vector<sg4::LinkInRoute> route;
      for (const int l : routes[f]->links) route.emplace_back(made_[static_cast<std::size_t>(l)]);
      connect(sources_.back(), route);
    }
    zone->seal();
    comms_.resize(routes.size());
    for (const double time_s : shares.times())
      Timer::set(time_s, [this, time_s] { change_shares(time_s); });
    sg4::Activity::on_completion_cb([this](const sg4::Activity& activity) {
      const auto tag =
          reinterpret_cast<std::size_t>(const_cast<sg4::Activity&>(activity).get_data<void>());
      end(tag - 1);
    });
  }

  void start(std::size_t flow, std::uint64_t units) override {
    sg4::CommPtr& comm = comms_[flow];
    comm = sg4::Comm::sendto_init();
    comm->set_payload_size(units);
    comm->set_data(reinterpret_cast<void*>(flow + 1));  // NOLINT(performance-no-int-to-ptr)
    comm->set_source(sources_[flow])->set_destination(sink_);
    if (comm->get_state() != sg4::Activity::State::STARTED) comm->vetoable_start();
  }

  void wake_at(double time_s) override {
    wake_at_s_ = time_s;
    Timer::set(time_s, [this, time_s] {
      if (time_s != wake_at_s_) return;  // superseded by an earlier one
      wake_at_s_ = -1;
      due(time_s);
    });
  }
  double now_s() const override { return sg4::Engine::get_clock(); }
  void run() override { sg4::Engine::get_instance()->run(); }
  /// SimGrid may still look at what has ended while it is in a callback.
  void forget() override { graveyard_.clear(); }
  std::vector<std::size_t> stalled() const override { return {stalled_.begin(), stalled_.end()}; }

 private:
  static constexpr double kNothing = 1e-30;  // share of a failed link
  static constexpr double kNever = 1e15;     // seconds; no run that ends is so long

  double units_per_s(std::size_t link) const { return (*links_)[link].bytes_per_s * kUnitsPerByte; }

  // SimGrid caps a flow for ever at the bandwidth that its route had when it started, so that
  // `set_bandwidth` slows a running flow down but never speeds it up again. Here the bandwidth of a
  // link stays what it is; a callback of the solver takes the share of it that there is now, and
  // setting the same bandwidth again makes the solver look. The solver cannot take a share of 0
  // (and a Comm can be suspended only once), so a failed link keeps 1e-30 of its bandwidth, which
  // moves less than a byte in the age of the universe; a flow that would end with that never does.
  void follow_share(std::size_t link, sg4::Link* made) {
    if (!shares_->changes(link)) return;
    made->set_sharing_policy(sg4::Link::SharingPolicy::NONLINEAR,
                             [this, link](double capacity, int) {
                               return capacity * std::max(shares_->share_of(link), kNothing);
                             });
  }
  void change_shares(double time_s) {
    for (const std::size_t link : shares_->change(time_s))
      made_[link]->set_bandwidth(units_per_s(link));
  }

  void end(std::size_t flow) {
    if (sg4::Engine::get_clock() >= kNever) {
      stalled_.insert(flow);
      return;
    }
    graveyard_.push_back(std::move(comms_[flow]));
    ended(flow);
  }

  const std::vector<NetworkLink>* links_ = nullptr;
  LinkShares* shares_ = nullptr;
  std::vector<sg4::Link*> made_;
  std::vector<sg4::Host*> sources_;  // per flow
  sg4::Host* sink_ = nullptr;
  std::vector<sg4::CommPtr> comms_;  // per flow
  std::vector<sg4::CommPtr> graveyard_;
  std::set<std::size_t> stalled_;
  double wake_at_s_ = -1;
};

}  // namespace

extern "C" void penstock_simgrid_start() { configure(); }
extern "C" FlowNetwork* penstock_simgrid_network() { return new SimgridNetwork; }

}  // namespace penstock

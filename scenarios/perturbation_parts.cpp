// SPDX-License-Identifier: Apache-2.0
#include "scenarios/parts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>

namespace penstock {
namespace {

constexpr double kMostFailures = 1e7;  // that anybody waits for

class PerturbationReader {
 public:
  PerturbationReader(const Section& section, int devices, Transfers transfers)
      : section_(section), devices_(devices), transfers_(transfers) {}

  PerturbationSpec read() {
    PerturbationSpec spec;
    if (const Value* at = map_of("jitter"))
      spec.jitter = read_jitter({*at, "jitter", section_.diagnostics()});
    each("slow_devices", "slow_device", [&](const Section& s) { read_slow(s, spec.slow_devices); });
    each("throttle", "throttle", [&](const Section& s) { read_throttle(s, spec.throttle); });
    each("links", "link_change", [&](const Section& s) { read_link(s, spec.links); });
    read_reliability(spec);
    return spec;
  }

 private:
  const Value* map_of(const char* key) const {
    const bool there = section_.has(key) && section_.at(key).kind == Value::Kind::map;
    return there ? &section_.at(key) : nullptr;
  }

  template <class F>
  void each(const char* key, const char* kind, F&& read_one) {
    if (!section_.has(key)) return;
    for (const Value& item : section_.at(key).items) {
      if (item.kind == Value::Kind::map) read_one(Section(item, kind, section_.diagnostics()));
    }
  }

  /// Are the keys there that an entry cannot do without, and well-formed?
  bool complete(const Section& s, const char* what, std::initializer_list<const char*> keys) {
    bool all = true;
    for (const char* key : keys) {
      if (!s.has(key)) s.refuse(fmt::format("{} needs '{}'", what, key));
      all = all && s.has(key) && !s.broken(key);
    }
    return all;
  }

  bool device_exists(const Section& s) {
    const std::int64_t device = s.integer("device").value_or(0);
    if (devices_ == 0 || device < devices_) return true;
    s.refuse("device", fmt::format("there is no device {}; the run has devices 0 to "
                                   "{}",
                                   device, devices_ - 1));
    return false;
  }

  bool positive(const Section& s, const char* key, const char* instead) {
    if (s.number(key).value_or(1) > 0) return true;
    s.refuse(key, fmt::format("'{}' must be more than 0{}", key, instead));
    return false;
  }

  /// [at, until), by default always.
  std::optional<std::pair<double, double>> span_of(const Section& s) {
    const double from = s.number("at").value_or(0);
    const double until = s.number("until").value_or(kForever);
    if (s.broken("at") || s.broken("until")) return std::nullopt;
    if (until > from) return std::pair(from, until);
    s.refuse("until", "'until' must be later than 'at'");
    return std::nullopt;
  }

  Jitter read_jitter(const Section& s) {
    Jitter j;
    complete(s, "jitter", {"spread"});
    j.spread = s.number("spread").value_or(0);
    j.distribution = static_cast<Jitter::Distribution>(s.choice("distribution").value_or(0));
    j.seed = static_cast<std::uint64_t>(s.integer("seed").value_or(1));
    j.runs = static_cast<int>(s.integer("runs").value_or(100));
    const bool normal = j.distribution == Jitter::Distribution::normal;
    const double most = normal                                              ? kMostNormalSpread
                        : j.distribution == Jitter::Distribution::lognormal ? kForever
                                                                            : kMostUniformSpread;
    if (j.spread > most) {
      s.refuse("spread", fmt::format("a {} distribution of more than {:.0f}% would have negative "
                                     "times; use lognormal",
                                     normal ? "normal" : "uniform", 100 * most));
    }
    if (j.runs > 100'000) s.refuse("runs", "'runs' must be at most 100000");
    return j;
  }

  void read_slow(const Section& s, std::vector<SlowDevice>& out) {
    if (!complete(s, "a slow device", {"device", "factor"}) || !device_exists(s)) return;
    if (!positive(s, "factor", "; 1.1 is 10 % slower")) return;
    const int device = static_cast<int>(*s.integer("device"));
    if (std::ranges::find(out, device, &SlowDevice::device) != out.end())
      s.refuse("device", fmt::format("device {} is given twice", device));
    out.push_back({device, *s.number("factor")});
  }

  void read_throttle(const Section& s, std::vector<Throttle>& out) {
    if (!complete(s, "a throttled device", {"device", "speed"}) || !device_exists(s)) return;
    const auto span = span_of(s);
    if (!positive(s, "speed", "; a device that stops is one of 'failures'") || !span) return;
    out.push_back(
        {static_cast<int>(*s.integer("device")), span->first, span->second, *s.number("speed")});
  }

  void read_link(const Section& s, std::vector<LinkChange>& out) {
    if (transfers_ == Transfers::free) s.refuse("with transfers: free no message crosses a link");
    if (s.has("link") == s.has("between"))
      return s.refuse("a change of a link needs either 'link' or 'between'");
    const bool failed = s.boolean("failed").value_or(false);
    if (!s.broken("failed") && !s.broken("bandwidth") && failed == s.has("bandwidth")) {
      return s.refuse("a change of a link needs either 'bandwidth' or 'failed: true'");
    }
    const auto span = span_of(s);
    const Value& name = s.at(s.has("link") ? "link" : "between");
    if (!span || s.broken("link") || s.broken("between")) return;
    LinkChange change;
    change.link = s.text("link").value_or("");
    if (s.has("between")) {
      for (std::size_t i = 0; i < 2; ++i) change.between[i] = name.items[i].text;
    }
    change.from_s = span->first;
    change.until_s = span->second;
    change.share = failed ? 0 : s.number("bandwidth").value_or(1);
    change.where = name.diagnostic("");
    out.push_back(std::move(change));
  }

  void read_reliability(PerturbationSpec& spec) {
    Reliability r;
    each("failures", "failure", [&](const Section& s) {
      if (complete(s, "a failure", {"device", "at"}) && device_exists(s))
        r.failures.push_back({static_cast<int>(*s.integer("device")), *s.number("at")});
    });
    std::ranges::stable_sort(r.failures, {}, &DeviceFailure::at_s);
    const bool fails = section_.has("failures") || section_.has("mtbf");
    const Value* checkpoint = map_of("checkpoint");
    for (const char* key : {"seed", "horizon"}) {
      const bool idle = key[0] == 's' ? !section_.has("mtbf") : !fails && checkpoint == nullptr;
      if (section_.has(key) && idle)
        section_.refuse(key, fmt::format("'{}' has a meaning with '{}' only", key,
                                         key[0] == 's' ? "mtbf" : "checkpoint"));
    }
    if (!fails && checkpoint == nullptr) return;
    if (section_.has("failures") && section_.has("mtbf"))
      section_.refuse("mtbf", "give either 'failures' or 'mtbf'");
    if (!section_.has("checkpoint")) {
      section_.refuse(section_.has("mtbf") ? "mtbf" : "failures",
                      "failures need a 'checkpoint' that the job can restart from");
    }
    if (checkpoint != nullptr)
      read_checkpoint({*checkpoint, "checkpoint", section_.diagnostics()}, r);
    r.mtbf_s = section_.number("mtbf");
    r.seed = static_cast<std::uint64_t>(section_.integer("seed").value_or(1));
    r.horizon_s = section_.number("horizon").value_or(r.horizon_s);
    if (!positive(section_, "mtbf", "") || !positive(section_, "horizon", "")) return;
    if (r.mtbf_s && r.horizon_s / *r.mtbf_s > kMostFailures)
      section_.refuse("mtbf", "'horizon' holds more than 10 million failures");
    spec.reliability = std::move(r);
  }

  void read_checkpoint(const Section& s, Reliability& r) {
    complete(s, "a checkpoint", {"every"});
    r.checkpoint_every = static_cast<int>(s.integer("every").value_or(1));
    r.save_s = s.number("save").value_or(0);
    r.restart_s = s.number("restart").value_or(0);
  }

  const Section& section_;
  int devices_;
  Transfers transfers_;
};

}  // namespace

PerturbationSpec read_perturbations(const Section& section, int devices, Transfers transfers) {
  return PerturbationReader(section, devices, transfers).read();
}

}  // namespace penstock

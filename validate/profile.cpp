// SPDX-License-Identifier: Apache-2.0
#include "validate/profile.hpp"

#include "base/error.hpp"
#include "base/units.hpp"
#include "models/line_fit.hpp"
#include "models/shape_keys.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

namespace penstock {
namespace {

constexpr double kShared = 1.5;  // slowdown of two flows that says they share a link
constexpr double kTiny = 1e-12;  // seconds: no measured time is below

// --- stages -------------------------------------------------------------------------------------

double ProfilePart::*time_field(OpKind kind) {
  switch (kind) {
    case OpKind::forward: return &ProfilePart::forward_s;
    case OpKind::backward: return &ProfilePart::backward_s;
    case OpKind::backward_input: return &ProfilePart::backward_input_s;
    default: return &ProfilePart::backward_weight_s;
  }
}

constexpr OpKind kTimedKinds[] = {OpKind::forward, OpKind::backward, OpKind::backward_input,
                                  OpKind::backward_weight};

/// Returns the bytes of a stage as the memory accounting of a run counts them.
ProfilePart bytes_of(const StageSizes& s) {
  ProfilePart p;
  const auto sum = [](std::initializer_list<std::int64_t> parts) {
    double total = 0;
    for (const std::int64_t part : parts) total += static_cast<double>(part);
    return total;
  };
  const std::int64_t until_weight = s.weight_needs_input ? s.input_bytes : 0;
  p.activation_bytes = sum({s.input_bytes, s.saved_bytes, s.saved_for_weight_bytes});
  p.activation_after_input_bytes = sum({until_weight, s.saved_for_weight_bytes, s.kept_bytes});
  p.forward_workspace_bytes = sum({s.forward_workspace_bytes, s.output_bytes});
  // While B or I runs, what I makes for W is there beside all that F kept.
  p.backward_workspace_bytes = sum({s.backward_workspace_bytes, s.input_bytes, s.kept_bytes});
  return p;
}

constexpr double ProfilePart::*kByteFields[] = {
    &ProfilePart::activation_bytes, &ProfilePart::activation_after_input_bytes,
    &ProfilePart::forward_workspace_bytes, &ProfilePart::backward_workspace_bytes};

/// Fits the row of one microbatch size, recomputation and load of a result.
class RowFit {
 public:
  RowFit(const CalibrationResult& result, std::int64_t size, Recompute recompute, int load)
      : result_(result) {
    row_.microbatch_size = static_cast<double>(size);
    row_.recompute = recompute;
    row_.load = load;
    for (const OpKind kind : kTimedKinds) fit_time(kind);
    for (const auto field : kByteFields) fit_bytes(field);
  }

  Profile::Row row() const {
    return {row_, fmt::format("at least {} times each, spread up to {} ({}), fitted within {}", n_,
                              format_percent(row_.spread), noisiest_, format_percent(residual_))};
  }

 private:
  bool belongs(const StageShape& s) const {
    return static_cast<double>(s.microbatch_size) == row_.microbatch_size &&
           s.recompute == row_.recompute;
  }

  std::vector<FitPoint> times(StageRole role, OpKind kind) {
    std::vector<FitPoint> points;
    for (const OpMeasurement& m : result_.ops) {
      if (!belongs(m.stage) || m.load != row_.load || m.stage.role != role || m.kind != kind)
        continue;
      points.push_back({static_cast<double>(m.stage.layers), std::max(m.time.median_s, kTiny)});
      note(m);
    }
    if (points.empty())
      throw InputError("calibration result", fmt::format("has no {} of a {} stage", token(kind),
                                                         kStageRoleNames[static_cast<int>(role)]));
    return points;
  }

  void note(const OpMeasurement& m) {
    n_ = n_ == 0 ? m.time.n : std::min(n_, m.time.n);
    if (m.time.spread() < row_.spread) return;
    row_.spread = m.time.spread();
    noisiest_ = fmt::format("{} of a {} stage", token(m.kind),
                            kStageRoleNames[static_cast<int>(m.stage.role)]);
  }

  void fit_time(OpKind kind) {
    const auto field = time_field(kind);
    const LineFit fit = fit_line(times(StageRole::middle, kind));
    residual_ = std::max(residual_, fit.residual);
    row_.layer.*field = fit.slope;
    row_.overhead.*field = fit.intercept;
    row_.embedding.*field = beyond(fit, times(StageRole::first, kind));
    row_.head.*field = beyond(fit, times(StageRole::last, kind));
  }

  /// Returns what the stages take beyond the line, on average; never less than nothing.
  static double beyond(const LineFit& fit, const std::vector<FitPoint>& points) {
    double sum = 0;
    for (const FitPoint& p : points) sum += p.y - fit.at(p.x);
    return std::max(0.0, sum / static_cast<double>(points.size()));
  }

  std::vector<FitPoint> bytes(StageRole role, double ProfilePart::*field) const {
    std::vector<FitPoint> points;
    for (const StageMeasurement& m : result_.stages) {
      if (belongs(m.stage) && m.stage.role == role)
        points.push_back({static_cast<double>(m.stage.layers), bytes_of(m.sizes).*field});
    }
    std::ranges::sort(points, {}, &FitPoint::x);
    return points;
  }

  /// Fits the line through the fewest and the most layers, as sizes are exact.
  void fit_bytes(double ProfilePart::*field) {
    const auto middle = bytes(StageRole::middle, field);
    if (middle.size() < 2) throw InputError("calibration result", "lacks sizes of middle stages");
    const FitPoint& a = middle.front();
    const FitPoint& b = middle.back();
    LineFit line;
    line.slope = std::max(0.0, (b.y - a.y) / (b.x - a.x));
    line.intercept = std::max(0.0, a.y - line.slope * a.x);
    row_.layer.*field = line.slope;
    row_.overhead.*field = line.intercept;
    row_.embedding.*field = beyond(line, bytes(StageRole::first, field));
    row_.head.*field = beyond(line, bytes(StageRole::last, field));
  }

  const CalibrationResult& result_;
  ProfileRow row_;
  int n_ = 0;
  double residual_ = 0;
  std::string noisiest_ = "F";
};

std::set<int> loads_of(const CalibrationResult& result) {
  std::set<int> loads;
  for (const OpMeasurement& m : result.ops) loads.insert(m.load);
  return loads;
}

Profile::Step fit_step(const CalibrationResult& result, int load) {
  std::vector<FitPoint> points;
  for (const OpMeasurement& m : result.ops) {
    if (m.kind != OpKind::step || m.load != load) continue;
    const auto& r = m.stage;
    const LayerSpan layers{
        .layers = r.layers, .first = r.role == StageRole::first, .last = r.role == StageRole::last};
    const auto parameters = static_cast<double>(stage_parameters(result.request.model, layers));
    points.push_back({parameters, std::max(m.time.median_s, kTiny)});
  }
  if (points.empty()) throw InputError("calibration result", "has no STEP");
  const LineFit fit = fit_line(points);
  return {{load, fit.intercept, fit.slope},
          fmt::format("fitted within {}", format_percent(fit.residual))};
}

/// Returns what a parameter takes in a run of hw/: fp32 gradients, and masters beside bf16 weights.
ParameterBytes parameter_bytes(const CalibrationRequest& request) {
  const double working = request.precision == Precision::bf16 ? 2 : 4;
  const double moments = request.optimizer.kind == OptimizerSpec::Kind::adamw ? 8 : 0;
  const double master = request.precision == Precision::bf16 ? 4 : 0;
  return {working, 4, master + moments, working, 4};
}

// --- links --------------------------------------------------------------------------------------

/// Holds the messages that were sent, by kind of traffic and load.
class Messages {
 public:
  explicit Messages(const CalibrationResult& result) : result_(result) {}

  std::vector<FitPoint> points(TrafficPattern traffic, int load) const {
    std::vector<FitPoint> points;
    for (const LinkMeasurement& m : result_.links) {
      if (m.traffic == traffic && m.load == load)
        points.push_back({static_cast<double>(m.bytes), std::max(m.last.median_s, kTiny)});
    }
    return points;
  }

  /// Returns the time of two flows over that of one, for the largest messages, without load; 0: not
  /// measured.
  double slowdown(TrafficPattern traffic, Sample LinkMeasurement::*which) const {
    const LinkMeasurement *one = nullptr, *two = nullptr;
    for (const LinkMeasurement& m : result_.links) {
      if (m.load != 1) continue;
      if (m.traffic == TrafficPattern::one_way && (one == nullptr || m.bytes > one->bytes))
        one = &m;
      if (m.traffic == traffic && (two == nullptr || m.bytes > two->bytes)) two = &m;
    }
    if (one == nullptr || two == nullptr) return 0;
    return (two->*which).median_s / std::max(kTiny, one->last.median_s);
  }

  /// Returns the spread of the largest messages of such traffic with all devices idle.
  double spread(TrafficPattern traffic) const {
    const LinkMeasurement* largest = nullptr;
    for (const LinkMeasurement& m : result_.links) {
      const bool counts = m.load == 1 && m.traffic == traffic;
      if (counts && (largest == nullptr || m.bytes > largest->bytes)) largest = &m;
    }
    return largest == nullptr ? 0 : largest->last.spread();
  }

 private:
  const CalibrationResult& result_;
};

std::string link_line(const LineFit& fit) {
  return fmt::format("{} + bytes / ({})", format_time(fit.intercept),
                     format_bandwidth(fit.slope > 0 ? 1 / fit.slope : INFINITY));
}

/// Fits latency and bandwidth, under load where that was measured, since pipelines always compute.
void fit_link(const Messages& messages, int load, Profile& profile) {
  const LineFit alone = fit_line(messages.points(TrafficPattern::one_way, 1));
  const auto loaded = messages.points(TrafficPattern::one_way, load);
  const LineFit fit = loaded.empty() ? alone : fit_line(loaded);
  LinkSpec& link = profile.cluster.intra;
  link.latency_s = fit.intercept;
  if (fit.slope > 0) link.bytes_per_s = 1 / fit.slope;
  profile.link_notes.push_back(
      fmt::format("a message takes {}, within {}", link_line(fit), format_percent(fit.residual)));
  if (!loaded.empty() && load > 1) {
    profile.link_notes.back() += fmt::format(" ({} devices at work)", load);
    profile.link_notes.push_back(fmt::format("with all devices idle it takes {}, within {}",
                                             link_line(alone), format_percent(alone.residual)));
  }
}

void fit_sharing(const Messages& messages, Profile& profile) {
  const auto last = [&](TrafficPattern t) { return messages.slowdown(t, &LinkMeasurement::last); };
  const auto note = [&](const char* what, TrafficPattern t) {
    if (last(t) > 0)
      profile.link_notes.push_back(
          fmt::format("two flows {}: {:.2f} times the time of one (spread {})", what, last(t),
                      format_percent(messages.spread(t))));
  };
  note("in opposite directions", TrafficPattern::both_ways);
  note("in the same direction", TrafficPattern::same_way);
  note("out of one device", TrafficPattern::out);
  note("into one device", TrafficPattern::into);
  note("between different devices", TrafficPattern::apart);
  Cluster& cluster = profile.cluster;
  cluster.intra.full_duplex = last(TrafficPattern::both_ways) <= kShared;
  const double first = messages.slowdown(TrafficPattern::same_way, &LinkMeasurement::first);
  cluster.intra.fifo = last(TrafficPattern::same_way) > kShared && first < (1 + kShared) / 2;
  const bool port = last(TrafficPattern::out) > kShared || last(TrafficPattern::into) > kShared;
  cluster.attachment = port ? Attachment::port : Attachment::pairs;
  if (last(TrafficPattern::apart) > kShared)
    profile.link_notes.emplace_back(
        "devices that have nothing to do with each other share bandwidth: no key says that");
}

std::string fact(const Description& machine, std::initializer_list<const char*> keys) {
  for (const char* key : keys) {
    if (const auto it = machine.find(key); it != machine.end()) return it->second;
  }
  return "measured device";
}

Cluster cluster_of(const CalibrationResult& result) {
  Cluster cluster;
  cluster.devices_per_node = result.request.workers;
  cluster.device.name = fact(result.machine, {"gpu", "processor"});
  cluster.name =
      fmt::format("{} x {} ({})", result.request.workers, cluster.device.name, result.backend);
  if (const auto it = result.machine.find("memory_bytes"); it != result.machine.end())
    cluster.device.memory_bytes = std::strtoll(it->second.c_str(), nullptr, 10);
  return cluster;
}

// --- YAML ---------------------------------------------------------------------------------------

/// Returns seven digits in the largest unit that leaves a number above 1.
std::string quantity(double seconds) {
  static constexpr std::pair<const char*, double> kUnits[] = {
      {"s", 1}, {"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9}};
  if (seconds == 0) return "0 s";
  const auto* unit =
      std::ranges::find_if(kUnits, [&](const auto& u) { return seconds >= u.second; });
  if (unit == std::end(kUnits)) --unit;
  return fmt::format("{:.7g} {}", seconds / unit->second, unit->first);
}

std::string bytes_quantity(double bytes) { return fmt::format("{:.0f} B", bytes); }

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) >= 0x20) out += c;
  }
  return out + "\"";
}

std::string part_yaml(const char* name, const ProfilePart& p) {
  return fmt::format(
      "      {}:\n"
      "        {{forward: {}, backward: {}, backward_input: {},\n"
      "         backward_weight: {}, activation: {}, activation_after_input: {},\n"
      "         forward_workspace: {}, backward_workspace: {}}}\n",
      name, quantity(p.forward_s), quantity(p.backward_s), quantity(p.backward_input_s),
      quantity(p.backward_weight_s), bytes_quantity(p.activation_bytes),
      bytes_quantity(p.activation_after_input_bytes), bytes_quantity(p.forward_workspace_bytes),
      bytes_quantity(p.backward_workspace_bytes));
}

std::string row_yaml(const Profile::Row& row) {
  const ProfileRow& r = row.costs;
  return fmt::format(
             "    # {}\n    - microbatch_size: {}\n      recompute: {}\n      load: {}\n"
             "      spread: {:.3g}\n",
             row.note, r.microbatch_size, kRecomputeNames[static_cast<int>(r.recompute)], r.load,
             r.spread) +
         part_yaml("layer", r.layer) + part_yaml("embedding", r.embedding) +
         part_yaml("head", r.head) + part_yaml("overhead", r.overhead);
}

std::string shape_yaml(const TransformerSpec& m) {
  std::string text = fmt::format("  name: {}\n", quoted(m.name));
  for (const auto& [key, value] : shape_keys(m)) text += fmt::format("  {}: {}\n", key, value);
  const ParameterBytes& b = m.bytes;
  return text + fmt::format(
                    "  bytes_per_parameter: {{weights: {}, gradients: {}, optimizer: {}, version: "
                    "{}, reduced: {}}}\n",
                    b.weights, b.gradients, b.optimizer, b.version, b.reduced);
}

std::string model_yaml(const Profile& profile) {
  std::string text = "model:\n" + shape_yaml(profile.model) + "  measured:\n";
  for (const Profile::Row& row : profile.rows) text += row_yaml(row);
  text += "  measured_step:\n";
  for (const Profile::Step& step : profile.steps) {
    text += fmt::format("    - {{load: {}, overhead: {}, per_parameter: {}}}  # {}\n",
                        step.costs.load, quantity(step.costs.overhead_s),
                        quantity(step.costs.s_per_parameter), step.note);
  }
  return text;
}

std::string link_yaml(const Cluster& cluster) {
  const LinkSpec& link = cluster.intra;
  const std::string bandwidth =
      std::isinf(link.bytes_per_s)
          ? ""
          : fmt::format("bandwidth: {:.7g} MB/s, ", link.bytes_per_s / 1e6);
  return fmt::format("  intra: {{{}latency: {}, duplex: {}, sharing: {}, attachment: {}}}\n",
                     bandwidth, quantity(link.latency_s), link.full_duplex ? "full" : "half",
                     link.fifo ? "fifo" : "fair",
                     cluster.attachment == Attachment::port ? "switch" : "pairs");
}

std::string cluster_yaml(const Profile& profile) {
  const Cluster& c = profile.cluster;
  const std::string memory =
      c.device.memory_bytes > 0 ? fmt::format(", memory: {} B", c.device.memory_bytes) : "";
  std::string text = fmt::format(
      "cluster:\n  name: {}\n  device: {{name: {}{}}}\n"
      "  devices_per_node: {}\n",
      quoted(c.name), quoted(c.device.name), memory, c.devices_per_node);
  for (const std::string& note : profile.link_notes) text += "  # " + note + "\n";
  return text + link_yaml(c);
}

}  // namespace

Profile fit_profile(const CalibrationResult& result) {
  Profile profile;
  const CalibrationRequest& request = result.request;
  profile.machine.emplace_back("backend", result.backend);
  for (const auto& [key, value] : result.machine) {
    if (key != "backend") profile.machine.emplace_back(key, value);
  }
  profile.model = request.model;
  profile.model.bytes = parameter_bytes(request);
  for (const int load : loads_of(result)) {
    for (const Recompute recompute : request.recompute) {
      for (const std::int64_t size : request.microbatch_sizes)
        profile.rows.push_back(RowFit(result, size, recompute, load).row());
    }
    profile.steps.push_back(fit_step(result, load));
  }
  profile.cluster = cluster_of(result);
  const Messages messages(result);
  if (!messages.points(TrafficPattern::one_way, 1).empty()) {
    fit_link(messages, request.workers, profile);
    fit_sharing(messages, profile);
  }
  return profile;
}

std::string to_yaml(const Profile& profile) {
  std::string text =
      "# A profile measured by `penstock calibrate`. In a scenario, `model: THIS-FILE` takes the\n"
      "# measured stages and `cluster: THIS-FILE` the measured links (docs/scenario.md).\n"
      "# Times are medians; `spread` is (p95 - p5) / median of the noisiest op.\n"
      "machine:\n";
  for (const auto& [key, value] : profile.machine)
    text += fmt::format("  {}: {}\n", quoted(key), quoted(value));
  return text + model_yaml(profile) + cluster_yaml(profile);
}

}  // namespace penstock

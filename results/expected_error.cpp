// SPDX-License-Identifier: Apache-2.0
#include "results/expected_error.hpp"

#include "base/error.hpp"
#include "base/suggest.hpp"
#include "base/terminal.hpp"
#include "base/units.hpp"
#include "scenarios/document.hpp"
#include "scenarios/stack_parts.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <sstream>
#include <utility>

namespace penstock {
namespace {

/// "A100" of A100-40 and A100-80, "B200" of GB200: what computes, whatever memory is beside it.
std::string chip_of(const std::string& device) {
  const std::string chip = device.substr(0, device.find('-'));
  return chip.starts_with("GB") ? chip.substr(1) : chip;
}

/// What a job and measured runs do not have in common, and how much that weighs.
struct Differences {
  int weight = 0;
  bool other_stack = false, other_chip = false;
  std::vector<std::string> said;

  void add(bool different, int how_much, std::string what) {
    if (!different) return;
    weight += how_much;
    said.push_back(std::move(what));
  }
};

bool is_shipped(const std::string& name, const char* folder) {
  const std::vector<std::string> names = shipped_names(folder);
  return std::ranges::find(names, name) != names.end();
}

/// A GPU with the software, as they are shipped.
Scenario as_shipped(const std::string& device, const std::string& stack) {
  return parse_scenario(
      fmt::format("model: {{forward: 1 s, backward: 1 s}}\ncluster: {{devices: 1, device: {}}}\n"
                  "stack: {}\nschedule: 1f1b\npipeline: {{stages: 1, microbatches: 1}}\n",
                  device, stack),
      "as shipped");
}

/// How the loss is made and kernels are launched are no numbers that were fitted.
bool same_numbers(const StackSpec& a, StackSpec b) {
  if (b.logits_traffic == logits_traffic_of(b.cross_entropy))
    b.logits_traffic = logits_traffic_of(a.cross_entropy);
  if (a.cuda_graphs) b.forward_host_s = b.backward_host_s = b.tensor_host_s = 0;
  const auto same = [&](const StackNumber& number) {
    return std::visit([&](auto field) { return a.*field == b.*field; }, number.field);
  };
  return std::ranges::all_of(stack_numbers(), same) && a.gathers_again == b.gathers_again &&
         a.overlaps_reduction == b.overlaps_reduction && a.measured_kernels == b.measured_kernels;
}

/// But for its memory, which other jobs of the kind may have more or less of.
bool same_numbers(DeviceSpec a, const DeviceSpec& b) {
  a.name = b.name;
  a.memory_bytes = b.memory_bytes;
  a.memory_bytes_per_s = b.memory_bytes_per_s;
  a.reserved_bytes = b.reserved_bytes;
  a.allocator_slack = b.allocator_slack;
  a.headroom = b.headroom;
  return a == b;
}

/// What is other than what is shipped under the names of the scenario's software and chip, whether
/// a map or a file says so.
struct Replaced {
  bool stack, chip;

  explicit Replaced(const Scenario& s) {
    const std::string device = folded(s.cluster.device.name);
    const bool known_stack = is_shipped(s.stack.name, "models/stacks");
    const bool known_device = is_shipped(device, "models/devices");
    Scenario shipped = as_shipped(known_device ? device : shipped_names("models/devices").front(),
                                  known_stack ? s.stack.name : "none");
    stack = (known_stack || !s.stack.takes_layers_apart()) &&
            !same_numbers(s.stack, known_stack ? shipped.stack : StackSpec{});
    if (s.stack.cuda_graphs) shipped.cluster.device.launch_s = 0;
    chip = !known_device || !same_numbers(s.cluster.device, shipped.cluster.device);
  }
};

/// Bytes/s that a GPU of the job can send within its node and to other nodes, before the software's
/// share of them; 0 where the job does not or where its cluster does not say it by node.
struct LinkRates {
  double within = 0, between = 0;

  explicit LinkRates(const Scenario& s) {
    const Cluster& c = s.cluster;
    if (c.link || c.network || s.gpu_count() < 2) return;
    const double share = s.stack.link_efficiency;
    if (c.devices_per_node > 1) within = slowest_link(c, 1) / share;
    if (s.gpu_count() > c.devices_per_node && c.nodes > 1)
      between = std::min(slowest_link(c, c.devices_per_node),
                         c.inter.bytes_per_s * c.nics_per_node / c.devices_per_node) /
                share;
  }

 private:
  static double slowest_link(const Cluster& cluster, int to) {
    Network network(cluster);
    double least = std::numeric_limits<double>::infinity();
    for (const int link : network.route(0, to, false).links)
      least = std::min(least, network.links()[static_cast<std::size_t>(link)].bytes_per_s);
    return least;
  }
};

/// Is one of two known rates over `most` times the other?
bool apart(double rate, double measured, double most) {
  return rate > 0 && measured > 0 && (rate > most * measured || measured > most * rate);
}

/// Half to twice as many GPUs are of one kind, as are links within nodes; what leaves a node weighs
/// more on the time, so that 1.5 times is another kind.
Differences differences(const Scenario& s, const Replaced& replaced, const LinkRates& links,
                        const MeasuredRuns& m) {
  const std::int64_t gpus = s.gpu_count();
  const int tensor = s.mesh.size(Axis::tensor);
  const bool neutral = !s.stack.takes_layers_apart() && !s.layer_profile;
  const std::string stack = neutral ? "" : s.stack.name;
  const std::string type = s.transformer->peak_of(ProductClass::mlp);
  Differences d;
  d.other_stack = stack != m.stack || replaced.stack;
  d.other_chip = chip_of(s.cluster.device.name) != m.chip || replaced.chip;
  d.add(stack != m.stack, 32, stack.empty() ? "no stack" : "stack " + stack);
  d.add(s.layer_profile.has_value() != m.profiled, 32,
        m.profiled ? "layers not measured" : "layers measured elsewhere");
  d.add(chip_of(s.cluster.device.name) != m.chip, 16, "on " + s.cluster.device.name);
  d.add(replaced.stack, 32, "numbers of the stack changed");
  d.add(replaced.chip, 16, "numbers of the device changed");
  d.add(!s.unlike.kind.empty(), 16, "with devices of several kinds");
  d.add(type != "fp16" && type != "bf16" && (type == "fp32" || !m.narrow), 8, "in " + type);
  d.add(s.transformer->experts.has_value() != m.experts, 8,
        m.experts ? "without experts" : "with experts");
  d.add(!s.missing.empty(), 8, "parts left out");
  d.add((s.mesh.replica_sharers() > 1) != m.context, 4,
        m.context ? "sequences not divided" : "sequences divided");
  d.add(tensor < m.least_tensor || tensor > m.most_tensor, 4, fmt::format("tensor {}", tensor));
  d.add(m.pipelined && s.shape.depth < 2, 2, "no pipeline");
  d.add(gpus > 2 * m.most_gpus || 2 * gpus < m.least_gpus, 2, counted(gpus, "GPU"));
  d.add(apart(links.between, m.between_bytes_per_s, 1.5), 1,
        fmt::format("{} a GPU between nodes", format_bandwidth(links.between)));
  d.add(apart(links.within, m.within_bytes_per_s, 2), 1,
        fmt::format("{} within nodes", format_bandwidth(links.within)));
  d.add(s.perturbations.changes_times(), 1, "perturbed");
  return d;
}

/// Measured runs, and what a job does not have in common with them.
struct Neighbour {
  const MeasuredRuns* runs = nullptr;
  Differences differs;
};

/// The runs whose kind is nearest; of equally near ones the first.
Neighbour nearest_of(const std::vector<Neighbour>& all) {
  return *std::ranges::min_element(all, {}, [](const Neighbour& n) { return n.differs.weight; });
}

/// What a job is to expect beyond the error of the nearest runs, which have another chip or
/// software: what was lost where a stack was carried to a chip that it was not fitted on, and what
/// predictions on the job's chip lose that know nothing of the software.
std::vector<const MeasuredRuns*> cautions(const std::vector<Neighbour>& all,
                                          const Neighbour& nearest) {
  std::vector<const MeasuredRuns*> found;
  std::vector<Neighbour> on_chip;
  for (const Neighbour& n : all) {
    if (n.runs->carried && nearest.differs.other_chip) found.push_back(n.runs);
    if (*n.runs->stack == '\0' && !n.differs.other_chip) on_chip.push_back(n);
  }
  if (!on_chip.empty() && (nearest.differs.other_chip || nearest.differs.other_stack))
    found.push_back(nearest_of(on_chip).runs);
  std::erase_if(found,
                [&](const MeasuredRuns* runs) { return runs->median <= nearest.runs->median; });
  return found;
}

Json number_or_null(double number) { return number > 0 ? Json(number) : Json(nullptr); }

Json errors_of(const MeasuredRuns& runs) {
  return {{"basis", runs.called},
          {"runs", runs.runs},
          {"fraction", runs.median},
          {"nine_of_ten", number_or_null(runs.p90)},
          {"memory_fraction", number_or_null(runs.memory_median)},
          {"fitted", runs.fitted}};
}

/// "24 runs of Megatron on 8 B200".
std::string runs_text(const Json& errors) {
  return counted(errors.at("runs").get<std::int64_t>(), "run") + " of " +
         errors.at("basis").get<std::string>();
}

/// "median; nine of ten within 4.7 %; the stack was fitted on them".
std::string spread_text(const Json& errors) {
  const auto percent = [&](const char* key) {
    return format_percent(errors.at(key).get<double>());
  };
  std::string text = "median";
  if (!errors.at("nine_of_ten").is_null()) text += "; nine of ten within " + percent("nine_of_ten");
  if (!errors.at("memory_fraction").is_null())
    text += "; their peaks by " + percent("memory_fraction");
  if (errors.at("fitted").get<bool>()) text += "; the stack was fitted on them";
  return text;
}

/// "24 runs of Megatron on 8 B200, were off by 2.5 %".
std::string off_by(const Json& errors) {
  return fmt::format("{}, were off by {}", runs_text(errors),
                     format_percent(errors.at("fraction").get<double>()));
}

}  // namespace

const std::vector<MeasuredRuns>& measured_runs() {
  static const std::vector<MeasuredRuns> kAll = {
#include "results/measured_runs.inc"
  };
  return kAll;
}

std::optional<Json> expected_error(const Scenario& scenario) {
  if (!scenario.transformer) return std::nullopt;
  const Replaced replaced(scenario);
  const LinkRates links(scenario);
  std::vector<Neighbour> all;
  for (const MeasuredRuns& runs : measured_runs())
    all.push_back({&runs, differences(scenario, replaced, links, runs)});
  const Neighbour nearest = nearest_of(all);
  const bool near = nearest.differs.weight == 0;
  Json error = errors_of(*nearest.runs);
  error["near"] = near;
  error["differs"] = fmt::format("{}", fmt::join(nearest.differs.said, ", "));
  error["nearest"] = Json::array();
  if (near) return error;
  error["nearest"].push_back(errors_of(*nearest.runs));
  for (const MeasuredRuns* runs : cautions(all, nearest))
    error["nearest"].push_back(errors_of(*runs));
  for (const char* promise : {"fraction", "nine_of_ten", "memory_fraction"}) error[promise] = {};
  return error;
}

std::string expected_error_text(const Json& error) {
  if (error.at("near").get<bool>())
    return fmt::format("± {}, as {} were off ({})",
                       format_percent(error.at("fraction").get<double>()), runs_text(error),
                       spread_text(error));
  const Json& nearest = error.at("nearest");
  std::string text =
      fmt::format("unknown, no such runs were measured (here: {}): the nearest, {} (median{})",
                  error.at("differs").get<std::string>(), off_by(nearest[0]),
                  nearest[0].at("fitted").get<bool>() ? "; fitted on them" : "");
  // Of those that were off by more, the worst.
  const auto worst = std::ranges::max_element(
      nearest, {}, [](const Json& runs) { return runs.at("fraction").get<double>(); });
  if (worst != nearest.begin()) text += "; expect more: " + off_by(*worst);
  return text;
}

std::string how_sure_text(const Json& error) {
  constexpr std::size_t kColumns = 120;
  const std::string indent(10, ' ');
  std::string text, line = "How sure? ";
  std::istringstream words(expected_error_text(error));
  for (std::string word; words >> word;) {
    if (display_width(line) + 1 + display_width(word) > kColumns) {
      text += line + "\n";
      line = indent;
    }
    line += " " + word;
  }
  return text + line + "\n";
}

}  // namespace penstock

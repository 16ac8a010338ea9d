// SPDX-License-Identifier: Apache-2.0
#include "scenarios/file_import.hpp"

#include "base/error.hpp"
#include "base/json.hpp"
#include "base/numbers.hpp"
#include "base/say.hpp"
#include "base/suggest.hpp"
#include "base/units.hpp"
#include "models/layout_string.hpp"
#include "models/pipedream_profile.hpp"
#include "models/shape_keys.hpp"
#include "scenarios/config_import.hpp"
#include "scenarios/scenario.hpp"
#include "schedules/formats/torch_reader.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <sstream>

namespace penstock {
namespace {

std::optional<std::size_t> positive_count(const std::string& text) {
  const auto count = parse_number<std::size_t>(text);
  return count.value_or(0) > 0 ? count : std::nullopt;
}

/// `--stages`: devices of the pipeline; every virtual stage has its own unless told otherwise.
std::size_t devices_of(const std::string& given, std::size_t stages) {
  if (given.empty()) return stages;
  const auto devices = positive_count(given);
  if (devices && stages % *devices == 0) return *devices;
  std::vector<std::size_t> legal;
  for (std::size_t n = 1; n <= stages; ++n)
    if (stages % n == 0) legal.push_back(n);
  throw InputError("--stages",
                   fmt::format("must divide the layout's {} virtual stages (one of {}), "
                               "got '{}'",
                               stages, fmt::join(legal, ", "), given));
}

/// Of a file, or of the folder of one that is called as all are.
std::string name_of_model(const std::filesystem::path& path) {
  const auto folder = std::filesystem::absolute(path).parent_path().filename();
  return (path.filename() == "config.json" ? folder : path.stem()).string();
}

}  // namespace

std::string import_layout(const std::string& text, const std::string& stages) {
  const auto layout = parse_layout(text, "layout");
  const std::size_t devices = devices_of(stages, layout.size());
  std::vector<int> layers;
  int all = 0, mtp = 0;
  for (const StageLayers& s : layout) {
    layers.push_back(s.layers);
    all += s.layers;
    mtp += s.mtp;
  }
  std::string out = fmt::format("# {}: {} layers\n", to_layout(layout), all);
  if (mtp > 0)
    out += fmt::format(
        "# its multi-token prediction layers (m) are the model's mtp_layers: {}, on the last "
        "stage\n",
        mtp);
  out += fmt::format("pipeline:\n  stages: {}\n", devices);
  if (devices < layout.size()) out += fmt::format("  chunks: {}\n", layout.size() / devices);
  return out + fmt::format("  split: [{}]\n", fmt::join(layers, ", "));
}

std::string import_csv(const std::string& text, const std::string& path) {
  const ImportedSchedule s = read_torch_csv(text, path);
  std::string out = fmt::format(
      "# {} with unit costs\nmodel: {{forward: 1 s, {}}}\ncluster: {{link: {{latency: 0}}}}\n",
      path, s.split_backward ? "backward_input: 1 s, backward_weight: 1 s" : "backward: 2 s");
  return out + fmt::format("schedule: {}\npipeline: {{stages: {}, {}microbatches: {}}}\n", path,
                           s.depth, s.chunks > 1 ? fmt::format("chunks: {}, ", s.chunks) : "",
                           s.microbatches);
}

std::string import_model(const std::string& path) {
  ForeignModel nearest = foreign_model(path);
  TransformerSpec& m = nearest.model;
  std::string out = fmt::format("# from {}\n", path);
  for (const std::string& note : nearest.notes)
    out += fmt::format("# {}\n", without_controls(note));
  m.name = name_of_model(path);
  const auto line = [&](std::string_view key, const auto& value) {
    out += fmt::format("{}: {}\n", key, value);
  };
  line("name", Json(m.name).dump());
  for (const auto& [key, value] : shape_keys(m)) {
    if (key == "seq_length")
      out += "# the longest the model can take: set it to what you train with\n";
    line(key, value);
  }
  if (!nearest.missing.empty()) line("missing", Json(nearest.missing).dump());
  return out;
}

std::string import_profile(const std::string& path, const std::string& devices) {
  const bool pipedream = !path.ends_with(".csv");  // whose profiles are for its own schedule
  const PipedreamProfile profile = load_pipedream_profile(path);
  const std::size_t most = profile.layers.size();
  const auto stages = devices.empty() ? std::min<std::size_t>(4, most) : positive_count(devices);
  if (!stages || *stages > most)
    throw InputError("--stages", fmt::format("must be an integer from 1 to the {} layers, got '{}'",
                                             most, devices));
  double forward = 0, backward = 0, parameters = 0, sent = 0, kept = 0;
  for (const ProfiledLayer& layer : profile.layers) {
    forward += layer.forward_s;
    backward += layer.backward_s;
    parameters += layer.parameter_bytes;
    sent = std::max(sent, layer.activation_bytes);
    kept += layer.kept_bytes();
  }
  return fmt::format(
      "# {}: {} layers, forward {}, backward {}, parameters {}\n"
      "# a layer sends its activation on, at most {}; all keep {} for their backward{};\n"
      "# parameters are 4 bytes each, with gradients and Adam's state 16\n"
      "model: {}\n"
      "# assumed: set the link, microbatches and, for fractions of the profile's minibatch, "
      "model.profile_batch\n"
      "cluster: {{devices: {}, link: {{bandwidth: 10 GB/s, latency: 10 us}}}}\n"
      "schedule: {}\n"
      "batches: {}\n"
      "pipeline: {{stages: {}, microbatches: {}, split: balanced}}\n",
      path, most, format_time(forward), format_time(backward), format_bytes(parameters),
      format_bytes(sent), format_bytes(kept),
      profile.outputs_only ? ", their outputs only: a column 'stash' says what else" : "", path,
      *stages, pipedream ? "pipedream" : "1f1b", pipedream ? 8 * *stages : 1, *stages,
      pipedream ? 1 : 4 * *stages);
}

bool is_layer_table(const std::string& text) {
  std::istringstream lines(text);
  std::string head;
  while (std::getline(lines, head) && (head.empty() || head[0] == '#' || head[0] == '\r')) continue;
  head = lower_case(head);
  return std::ranges::any_of(
      std::initializer_list<const char*>{"layer", "time", "forward", "backward", "activation",
                                         "fwd", "name"},
      [&](const char* column) { return head.find(column) != std::string::npos; });
}

}  // namespace penstock

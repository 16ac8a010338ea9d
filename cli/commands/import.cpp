// penstock import layout STRING | FILE: what a scenario or a model file says of it.
#include "base/error.hpp"
#include "base/exit_codes.hpp"
#include "base/numbers.hpp"
#include "base/say.hpp"
#include "base/units.hpp"
#include "cli/running.hpp"
#include "models/layout_string.hpp"
#include "models/pipedream_profile.hpp"
#include "scenarios/config_import.hpp"
#include "scenarios/megatron_import.hpp"
#include "schedules/exchange/torch_reader.hpp"
#include "traces/byte_sink.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>

namespace penstock {
namespace {

std::optional<std::size_t> count_of(const std::string& text) {
  const auto count = parse_number<std::size_t>(text);
  return count.value_or(0) > 0 ? count : std::nullopt;
}

/// --stages: devices of the pipeline; every virtual stage has its own unless told otherwise.
std::size_t devices_of(const Arguments& arguments, std::size_t stages) {
  const std::string given = arguments.value("stages");
  if (given.empty()) return stages;
  const auto devices = count_of(given);
  if (devices && stages % *devices == 0) return *devices;
  std::vector<std::size_t> legal;
  for (std::size_t n = 1; n <= stages; ++n)
    if (stages % n == 0) legal.push_back(n);
  throw InputError("--stages",
                   fmt::format("must divide the layout's {} virtual stages (one of {}), "
                               "got '{}'",
                               stages, fmt::join(legal, ", "), given));
}

std::string import_layout(const Arguments& arguments) {
  const std::string& text = arguments.positional[1];
  const auto layout = parse_layout(text, "layout");
  const std::size_t devices = devices_of(arguments, layout.size());
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
        "# the {} multi-token prediction layers (m) are left out: they are not modelled\n", mtp);
  out += fmt::format("pipeline:\n  stages: {}\n", devices);
  if (devices < layout.size()) out += fmt::format("  chunks: {}\n", layout.size() / devices);
  return out + fmt::format("  split: [{}]\n", fmt::join(layers, ", "));
}

std::string import_csv(const std::string& path) {
  require_file(path);
  const ImportedSchedule s = read_torch_csv(read_file(path), path);
  std::string out = fmt::format(
      "# {} with unit costs\nmodel: {{forward: 1 s, {}}}\ncluster: {{link: {{latency: 0}}}}\n",
      path, s.split_backward ? "backward_input: 1 s, backward_weight: 1 s" : "backward: 2 s");
  return out + fmt::format("schedule: {}\npipeline: {{stages: {}, {}microbatches: {}}}\n", path,
                           s.depth, s.chunks > 1 ? fmt::format("chunks: {}, ", s.chunks) : "",
                           s.microbatches);
}

/// What of the job its scenario leaves out or takes for granted, for those who do not see the
/// scenario: its comments under such titles, a line each.
void say_what_is_missing(const std::string& scenario) {
  bool missing = false;
  for (std::size_t at = 0, end = 0; at < scenario.size(); at = end + 1) {
    end = std::min(scenario.find('\n', at), scenario.size());
    const std::string_view line(scenario.data() + at, end - at);
    const bool option = line.starts_with("#   ");
    if (!option)
      missing = line.starts_with("# cannot be modelled") || line.starts_with("# not known here") ||
                line.starts_with("# under a condition") || line.starts_with("# has no value") ||
                line.starts_with("# assumed");
    if (missing) say("{}{}\n", option ? "  " : "note: ", line.substr(option ? 4 : 2));
  }
}

/// Of a file, or of the folder of one that is called as all are.
std::string name_of_model(const std::filesystem::path& path) {
  const auto folder = std::filesystem::absolute(path).parent_path().filename();
  return (path.filename() == "config.json" ? folder : path.stem()).string();
}

/// The file of our own that says what another tool's model file does, or the nearest.
std::string import_model(const std::string& path) {
  std::vector<std::string> missing;
  TransformerSpec m = nearest_model(path, missing);
  std::string out = fmt::format("# from {}\n", path);
  m.name = name_of_model(path);
  if (!missing.empty()) {
    m.name += ", without its experts";
    out += "# cannot be modelled:\n";
    for (const std::string& line : missing) out += fmt::format("#   {}\n", line);
    out += fmt::format(
        "# assumed, as the nearest:\n"
        "#   ffn_hidden_size: {}, that of the experts that a token visits: their compute; the "
        "weights of the others, routing and all-to-all are missing, so the real job is slower and "
        "larger\n",
        m.ffn_hidden_size);
    say_what_is_missing(out);
  }
  const auto line = [&](std::string_view key, const auto& value) {
    out += fmt::format("{}: {}\n", key, value);
  };
  static constexpr const char* kFamilies[] = {"gpt", "bert", "llama"};
  line("name", Json(m.name).dump());
  line("family", kFamilies[static_cast<std::size_t>(m.family)]);
  line("num_layers", m.num_layers);
  line("hidden_size", m.hidden_size);
  line("num_attention_heads", m.num_attention_heads);
  line("num_query_groups", m.num_query_groups);
  line("ffn_hidden_size", m.ffn_hidden_size);
  line("vocab_size", m.vocab_size);
  out += "# the longest the model can take: set it to what you train with\n";
  line("seq_length", m.seq_length);
  line("tie_embeddings", m.tie_embeddings);
  line("precision", m.compute_type.ends_with("16") ? "mixed-" + m.compute_type : m.compute_type);
  line("flash_attention", m.flash_attention);
  if (!missing.empty()) line("missing", kWithoutExperts);
  return out;
}

/// A scenario of a profile's layers, with the cluster to be filled in.
std::string import_profile(const Arguments& arguments) {
  const std::string& path = arguments.positional[0];
  const bool pipedream = !path.ends_with(".csv");  // whose profiles are for its own schedule
  const PipedreamProfile profile = load_pipedream_profile(path);
  const std::size_t most = profile.layers.size();
  const auto stages =
      count_of(arguments.value("stages", std::to_string(std::min<std::size_t>(4, most))));
  if (!stages || *stages > most)
    throw InputError("--stages", fmt::format("must be an integer from 1 to the {} layers, got '{}'",
                                             most, arguments.value("stages")));
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
      "# a layer sends its activation on, at most {}; all keep {} for their backward;\n"
      "# parameters are 4 bytes each, with gradients and Adam's state 16\n"
      "model: {}\n"
      "# assumed: set the link, microbatches and, for fractions of the profile's minibatch, "
      "model.profile_batch\n"
      "cluster: {{devices: {}, link: {{bandwidth: 10 GB/s, latency: 10 us}}}}\n"
      "schedule: {}\n"
      "batches: {}\n"
      "pipeline: {{stages: {}, microbatches: {}, split: balanced}}\n",
      path, most, format_time(forward), format_time(backward), format_bytes(parameters),
      format_bytes(sent), format_bytes(kept), path, *stages, pipedream ? "pipedream" : "1f1b",
      pipedream ? 8 * *stages : 1, *stages, pipedream ? 1 : 4 * *stages);
}

/// A table of layers names its columns; one of torch.distributed.pipelining has none.
bool is_layer_table(const std::string& path) {
  const std::string text = read_file(path);
  const std::string head = text.substr(0, text.find('\n'));
  return std::ranges::any_of(
      std::initializer_list<const char*>{"layer", "time", "forward", "backward", "activation"},
      [&](const char* column) { return head.find(column) != std::string::npos; });
}

using Importer = std::string (*)(const std::string& text, const std::string& origin,
                                 const std::string& cluster, const ShellVariables& defined);

ShellVariables defined_variables(const Arguments& arguments) {
  ShellVariables out;
  for (const std::string& define : arguments.values("define")) {
    const std::size_t equals = define.find('=');
    if (equals == 0 || equals == define.npos)
      throw InputError("--define", fmt::format("must be NAME=VALUE, got '{}'", define));
    out[define.substr(0, equals)] = define.substr(equals + 1);
  }
  return out;
}

/// A job of another framework, from its file or standard input.
std::string import_job(const Arguments& arguments, Importer importer) {
  if (arguments.positional.size() < 2)
    throw InputError("penstock import " + arguments.positional[0],
                     "the file is missing ('-': standard input)");
  const std::string& file = arguments.positional[1];
  if (file != "-") require_file(file);
  const std::string scenario =
      importer(read_file(file == "-" ? "/dev/stdin" : file), file == "-" ? "standard input" : file,
               arguments.value("cluster"), defined_variables(arguments));
  say_what_is_missing(scenario);
  return scenario;
}

struct Job {
  std::string_view name;
  Importer importer;
};
constexpr Job kJobs[] = {{"megatron-args",
                          [](const std::string& text, const std::string& origin,
                             const std::string& cluster, const ShellVariables& defined) {
                            return scenario_of_megatron(text, origin, cluster, defined);
                          }},
                         {"nanotron-config",
                          [](const std::string& text, const std::string& origin,
                             const std::string& cluster, const ShellVariables& defined) {
                            if (!defined.empty())
                              throw InputError("--define", "is for scripts; nanotron's is a file");
                            return scenario_of_nanotron(text, origin, cluster);
                          }},
                         {"torchtitan-config", scenario_of_torchtitan}};

}  // namespace

int run_import(const Arguments& arguments) {
  const std::string& what = arguments.positional[0];
  if (what == "layout") {
    if (arguments.positional.size() < 2)
      throw InputError("penstock import layout",
                       "the layout is missing, such as 'Et*2|(t*2|)*3,t*2L'");
    put_output(arguments, import_layout(arguments));
    return exit_ok;
  }
  for (const Job& job : kJobs) {
    if (what != job.name) continue;
    put_output(arguments, import_job(arguments, job.importer));
    return exit_ok;
  }
  for (const char* option : {"cluster", "define"})
    if (arguments.flag(option))
      throw InputError(fmt::format("--{}", option),
                       "is for jobs of other frameworks, such as 'megatron-args FILE'");
  if (arguments.positional.size() > 1)
    throw InputError("penstock import", fmt::format("takes one file, got '{}' behind '{}'",
                                                    arguments.positional[1], what));
  const bool csv = what.ends_with(".csv");
  if (!csv && !what.ends_with(".txt") && !what.ends_with(".json")) {
    throw InputError(
        "penstock import",
        fmt::format("'{}' is none of 'layout STRING', 'megatron-args FILE', 'nanotron-config "
                    "FILE', 'torchtitan-config FILE', a FILE.csv of "
                    "torch.distributed.pipelining or of layers, a profile graph.txt, "
                    "a config.json",
                    what));
  }
  require_file(what);
  put_output(arguments, what.ends_with(".json")        ? import_model(what)
                        : csv && !is_layer_table(what) ? import_csv(what)
                                                       : import_profile(arguments));
  return exit_ok;
}

}  // namespace penstock

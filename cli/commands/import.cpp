// penstock import layout STRING | FILE.csv: what a scenario says of it.
#include "base/error.hpp"
#include "base/exit_codes.hpp"
#include "cli/running.hpp"
#include "models/layout_string.hpp"
#include "schedules/exchange/torch_reader.hpp"
#include "traces/byte_sink.hpp"

#include <fmt/format.h>

#include <charconv>

namespace penstock {
namespace {

/// --stages: devices of the pipeline; every virtual stage has its own unless told otherwise.
std::size_t devices_of(const Arguments& arguments, std::size_t stages) {
  const std::string given = arguments.value("stages");
  if (given.empty()) return stages;
  std::size_t devices = 0;
  const auto [end, error] = std::from_chars(given.data(), given.data() + given.size(), devices);
  const bool number = error == std::errc() && end == given.data() + given.size() && devices > 0;
  if (number && stages % devices == 0) return devices;
  std::vector<std::size_t> legal;
  for (std::size_t n = 1; n <= stages; ++n)
    if (stages % n == 0) legal.push_back(n);
  throw InputError("--stages",
                   fmt::format("must divide the layout's {} virtual stages (one of {}), "
                               "got '{}'",
                               stages, fmt::join(legal, ", "), given));
}

/// A scenario's stages hold layers, the first one the embedding, too, and the last one the head.
void check_representable(const std::vector<StageLayers>& layout, const std::string& text) {
  std::vector<Diagnostic> errors;
  for (std::size_t s = 0; s < layout.size(); ++s) {
    if (layout[s].layers > 0) continue;
    errors.push_back({{"layout " + text, 0, 0},
                      fmt::format("stage {} holds no transformer layer; a scenario's split has at "
                                  "least one for each",
                                  s),
                      "",
                      1,
                      0});
  }
  if (!errors.empty()) throw InputError(std::move(errors));
}

std::string import_layout(const Arguments& arguments) {
  const std::string& text = arguments.positional[1];
  const auto layout = parse_layout(text, "layout");
  check_representable(layout, text);
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
  const bool one_file = what.ends_with(".csv") && arguments.positional.size() == 1;
  if (!one_file) {
    throw InputError("penstock import",
                     fmt::format("'{}' is neither 'layout STRING' nor a FILE.csv of "
                                 "torch.distributed.pipelining",
                                 what));
  }
  put_output(arguments, import_csv(what));
  return exit_ok;
}

}  // namespace penstock

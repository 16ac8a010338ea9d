// SPDX-License-Identifier: Apache-2.0
// penstock calibrate: measures on this machine and writes a profile.
#include "base/exit_codes.hpp"
#include "base/numbers.hpp"
#include "base/output_file.hpp"
#include "base/say.hpp"
#include "base/table.hpp"
#include "base/units.hpp"
#include "cli/output.hpp"
#include "cli/validation_output.hpp"
#include "hw/executor_process.hpp"
#include "scenarios/scenario.hpp"
#include "traces/byte_sink.hpp"
#include "validate/calibration_request.hpp"
#include "validate/kernel_fit.hpp"
#include "validate/profile.hpp"
#include "validate/stack_fit.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <thread>

namespace penstock {
namespace {

/// What stands between commas.
std::vector<std::string> parts_of(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream rest(text);
  rest.exceptions(std::ios::badbit);  // no memory is not the end of the text
  for (std::string part; std::getline(rest, part, ',');) parts.push_back(part);
  return parts;
}

std::vector<std::int64_t> integers(const std::string& flag, const std::string& text) {
  std::vector<std::int64_t> numbers;
  for (const std::string& part : parts_of(text)) {
    numbers.push_back(parse_number<std::int64_t>(part).value_or(0));
    if (numbers.back() < 1 || numbers.back() > 1'000'000'000)
      throw InputError(flag, fmt::format("must be integers >= 1 such as 1,2,4, got '{}'", text));
  }
  if (numbers.empty()) throw InputError(flag, "must not be empty");
  return numbers;
}

std::vector<Recompute> recomputations(const std::string& text) {
  std::vector<Recompute> modes;
  for (const std::string& part : parts_of(text)) {
    const auto found = std::ranges::find(kRecomputeNames, part);
    if (found == std::end(kRecomputeNames))
      throw InputError("--recompute", fmt::format("must be some of {}, got '{}'",
                                                  fmt::join(kRecomputeNames, ", "), part));
    modes.push_back(static_cast<Recompute>(found - std::begin(kRecomputeNames)));
  }
  return modes;
}

int integer(const Arguments& arguments, const char* option, int otherwise) {
  if (!arguments.flag(option)) return otherwise;
  const auto given = integers(std::string("--") + option, arguments.value(option));
  return static_cast<int>(given[0]);
}

CalibrationRequest request_of(const Arguments& arguments, const std::string& backend) {
  CalibrationRequest request =
      calibration_request(arguments.positional.empty() ? "" : arguments.positional[0]);
  set_precision(request, backend, arguments.value("precision", ""));
  request.link = arguments.value("link", "");
  if (backend == "host" && !request.link.empty())
    throw InputError("--link", "is between stages on one GPU; it needs --backend cuda");
  // One layer, and as many as each of two stages has (up to 8): stages in between are interpolated.
  request.layer_counts = {1, std::clamp(request.model.num_layers / 2, 3, 8)};
  if (arguments.flag("microbatch-sizes"))
    request.microbatch_sizes = integers("--microbatch-sizes", arguments.value("microbatch-sizes"));
  if (arguments.flag("recompute")) request.recompute = recomputations(arguments.value("recompute"));
  add_message_sizes(request);
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  request.workers = integer(arguments, "workers", std::clamp(cores, 2, 4));
  request.min_repetitions = integer(arguments, "repetitions", request.min_repetitions);
  request.max_repetitions = std::max(request.max_repetitions, request.min_repetitions);
  return request;
}

// --- what was measured --------------------------------------------------------------------------

CsvRow timed(CsvRow row, const Sample& time) {
  row.emplace_back("n", time.n);
  row.emplace_back("median_s", time.median_s);
  row.emplace_back("p5_s", time.p5_s);
  row.emplace_back("p95_s", time.p95_s);
  return row;
}

std::vector<CsvRow> op_rows(const CalibrationResult& result) {
  std::vector<CsvRow> rows;
  for (const OpMeasurement& m : result.ops) {
    rows.push_back(timed({{"what", std::string(token(m.kind))},
                          {"where", std::string(kStageRoleNames[static_cast<int>(m.stage.role)])},
                          {"layers", m.stage.layers},
                          {"microbatch_size", m.stage.microbatch_size},
                          {"recompute", kRecomputeNames[static_cast<int>(m.stage.recompute)]},
                          {"bytes", nullptr},
                          {"load", m.load}},
                         m.time));
  }
  return rows;
}

std::vector<CsvRow> link_rows(const CalibrationResult& result) {
  std::vector<CsvRow> rows;
  for (const LinkMeasurement& m : result.links) {
    rows.push_back(timed({{"what", "message"},
                          {"where", std::string(kTrafficNames[static_cast<int>(m.traffic)])},
                          {"layers", nullptr},
                          {"microbatch_size", nullptr},
                          {"recompute", nullptr},
                          {"bytes", m.bytes},
                          {"load", m.load}},
                         m.last));
  }
  return rows;
}

std::string op_table(const CalibrationResult& result) {
  using enum TextTable::Align;
  TextTable table({"op", "stage", "layers", "microbatch", "recompute", "at work", "n", "median",
                   "p5", "p95", "spread"},
                  {left, left, right, right, left, right, right, right, right, right, right});
  for (const OpMeasurement& m : result.ops) {
    table.add_row(
        {std::string(token(m.kind)), std::string(kStageRoleNames[static_cast<int>(m.stage.role)]),
         std::to_string(m.stage.layers), std::to_string(m.stage.microbatch_size),
         std::string(kRecomputeNames[static_cast<int>(m.stage.recompute)]), std::to_string(m.load),
         std::to_string(m.time.n), format_time(m.time.median_s), format_time(m.time.p5_s),
         format_time(m.time.p95_s), format_percent(m.time.spread())});
  }
  return table.render();
}

std::string link_table(const CalibrationResult& result) {
  using enum TextTable::Align;
  TextTable table({"flows", "message", "at work", "n", "median", "p5", "p95", "spread"},
                  {left, right, right, right, right, right, right, right});
  for (const LinkMeasurement& m : result.links) {
    table.add_row({std::string(kTrafficNames[static_cast<int>(m.traffic)]),
                   format_bytes(static_cast<double>(m.bytes)), std::to_string(m.load),
                   std::to_string(m.last.n), format_time(m.last.median_s), format_time(m.last.p5_s),
                   format_time(m.last.p95_s), format_percent(m.last.spread())});
  }
  return table.render();
}

/// Says what varied too much for its median to be trusted, and what to do.
void warn_of_busy_machine(const CalibrationResult& result) {
  std::vector<std::pair<double, std::string>> busy;
  const auto add = [&](const Sample& time, const std::string& what) {
    if (time.spread() > kBusySpread) busy.emplace_back(time.spread(), what);
  };
  for (const OpMeasurement& m : result.ops)
    add(m.time, fmt::format("{} of a {} stage", token(m.kind),
                            kStageRoleNames[static_cast<int>(m.stage.role)]));
  for (const LinkMeasurement& m : result.links)
    add(m.last, fmt::format("messages of {}", format_bytes(static_cast<double>(m.bytes))));
  if (busy.empty()) return;
  const auto& [spread, what] = *std::ranges::max_element(busy);
  say("warning: this machine did other work while it was measured: of {} times {} vary by more "
      "than half of their median, {} by {}. Predictions with this profile may be off by as much. "
      "End what else runs (or give it other cores with taskset, or fewer --workers), and calibrate "
      "again; --repetitions {} makes medians steadier.\n",
      result.ops.size() + result.links.size(), busy.size(), what, format_percent(spread),
      4 * CalibrationRequest().min_repetitions);
}

void print_measured(const std::string& format, const CalibrationResult& result,
                    const std::string& profile) {
  if (format == "json") {
    Json json = Json::parse(to_json(result));
    json["profile"] = profile;
    fmt::print("{}\n", json.dump(2));
  } else if (format == "csv") {
    std::vector<CsvRow> rows = op_rows(result);
    for (CsvRow& row : link_rows(result)) rows.push_back(std::move(row));
    fmt::print("{}", to_csv(rows));
  } else {
    print_text(op_table(result));
    if (!result.links.empty()) print_text("\n" + link_table(result));
    print_text(fmt::format(
        "\nprofile written to {0}; use it with `model: {0}` and `cluster: {0}`\n", profile));
  }
}

void refuse_without_table(const Arguments& arguments) {
  const bool from = arguments.flag("from");
  for (const char* option : {"stack", "numbers", "folds", "seed", "memory", "set"}) {
    if (!from && arguments.flag(option))
      throw InputError(std::string("--") + option, "is for a fit to measured runs: --from TABLE");
  }
  for (const char* option : {"backend", "request", "result", "microbatch-sizes", "recompute",
                             "workers", "repetitions", "precision", "link"}) {
    if (from && arguments.flag(option))
      throw InputError(std::string("--") + option, "measures; --from fits to what was measured");
  }
}

/// What says how to measure has nothing to say once it is done.
void refuse_beside_result(const Arguments& arguments) {
  if (!arguments.positional.empty())
    throw InputError("--result",
                     "names the model itself; leave out '" + arguments.positional[0] + "'");
  for (const char* option : {"backend", "request", "microbatch-sizes", "recompute", "workers",
                             "repetitions", "precision", "link"}) {
    if (arguments.flag(option))
      throw InputError(std::string("--") + option,
                       "has no effect on what --result was measured with");
  }
}

std::string profile_file(const Arguments& arguments) {
  return arguments.value("output", "profile.yaml");
}

int write_profile(const Arguments& arguments, const CalibrationResult& result) {
  const std::string path = profile_file(arguments);
  write_file(path, to_yaml(fit_profile(result)));
  warn_of_busy_machine(result);
  print_measured(arguments.value("format", "table"), result, path);
  return exit_ok;
}

int write_request(const std::string& path, const std::string& backend,
                  const CalibrationRequest& request) {
  write_file(path, to_json(request));
  print_text(
      fmt::format("request written to {0}; where it is to be measured:\n"
                  "  penstock-run --calibrate {0} --backend {1} --output result.json\n"
                  "and then here:\n"
                  "  penstock calibrate --result result.json -o profile.yaml\n",
                  path, backend));
  return exit_ok;
}

std::uint64_t integer_of(const Arguments& arguments, const char* option, std::uint64_t otherwise) {
  if (!arguments.flag(option)) return otherwise;
  const std::string text = arguments.value(option);
  const auto value = parse_number<std::uint64_t>(text);
  if (value) return *value;
  throw InputError(fmt::format("--{}", option),
                   fmt::format("must be an integer >= 0, got '{}'", text));
}

/// --from TABLE: fits, and shows how well the rows (with --folds: rows that a fit has not seen) are
/// predicted.
int calibrate_stack(const Arguments& arguments) {
  if (!arguments.flag("stack"))
    throw InputError("--from", "needs --stack NAME, the stack to start from");
  const auto [report, stack] = fit_stack({.table = arguments.value("from"),
                                          .stack = arguments.value("stack"),
                                          .rows = row_options_of(arguments),
                                          .memory = arguments.flag("memory"),
                                          .numbers = parts_of(arguments.value("numbers")),
                                          .folds = integer_of(arguments, "folds", 0),
                                          .seed = integer_of(arguments, "seed", 1)});
  if (arguments.flag("output")) write_file(arguments.value("output"), stack);
  const Json json = measured_report_json(report), of_rows = measured_rows_json(report);
  if (arguments.value("format", "table") == "json")
    fmt::print("{}\n", Json({{"rows", of_rows}, {"measured", Json::array({json})}}).dump(2));
  else
    print_text(measured_table(json, of_rows, false));
  return exit_ok;
}

/// Refuses what says how to measure stages beside --device, which measures kernels.
void refuse_beside_device(const Arguments& arguments) {
  if (!arguments.positional.empty())
    throw InputError("--device", fmt::format("measures kernels, of no model: leave out '{}'",
                                             arguments.positional[0]));
  for (const char* option : {"from", "request", "result", "microbatch-sizes", "recompute",
                             "workers", "repetitions", "precision", "link"}) {
    if (arguments.flag(option))
      throw InputError(std::string("--") + option, "is not for --device, which measures kernels");
  }
  if (arguments.value("backend", "cuda") != "cuda")
    throw InputError("--backend", "--device measures a GPU: leave it out, or say cuda");
}

std::string fit_table(const KernelFit& fit) {
  using enum TextTable::Align;
  TextTable table({"kernels", "shapes", "error as shipped", "fitted"}, {left, right, right, right});
  for (const FittedFamily& family : fit.families)
    table.add_row({family.name, std::to_string(family.shapes), format_percent(family.before),
                   format_percent(family.after)});
  std::string text = table.render();
  for (const std::string& kept : fit.kept) text += fmt::format("not measured here: {}\n", kept);
  return text;
}

/// --device NAME: measures kernels and writes a file of kernel times that starts from the device's.
int calibrate_kernels(const Arguments& arguments) {
  refuse_beside_device(arguments);
  const std::string name = arguments.value("device");
  const DeviceSpec device = load_device(name);
  auto shipped = load_kernel_times(device);
  if (!shipped)
    throw InputError("--device", fmt::format("there are no kernel times of {} or a GPU near it to "
                                             "start from",
                                             printable(device.name)));
  shipped->device = device.name;
  const std::string path = arguments.value("output", "kernels.json");
  const int largest = integer(arguments, "largest", static_cast<int>(KernelRequest().largest));
  const TemporaryFolder folder;
  const std::string answer = folder.file("kernels.json");
  const int code =
      run_executor({"--kernels", std::to_string(largest), "--backend", "cuda", "--output", answer});
  if (code != exit_ok) return code;  // it has said why
  const KernelFit fit =
      fit_kernels(*std::move(shipped), parse_measured_kernels(read_file(answer), answer));
  write_file(path, to_json(fit.times));
  print_text(
      fit_table(fit) +
      fmt::format("\nkernel times written to {0}; use them with `device: {{base: {1}, kernels: "
                  "{0}}}` and a stack of measured kernels (megatron-kernels)\n",
                  path, name));
  return exit_ok;
}

CalibrationResult read_result(const std::string& path) {
  return parse_calibration_result(read_file(path), path);
}

}  // namespace

int run_calibrate(const Arguments& arguments) {
  set_results_to_file(false);  // --output is the profile
  refuse_without_table(arguments);
  if (arguments.flag("device")) return calibrate_kernels(arguments);
  if (arguments.flag("largest")) throw InputError("--largest", "is for --device NAME");
  if (arguments.flag("from")) return calibrate_stack(arguments);
  if (arguments.flag("result")) {
    refuse_beside_result(arguments);
    const CalibrationResult result = read_result(arguments.value("result"));
    if (!is_complete(result))
      throw InputError(arguments.value("result"),
                       "is partial: its calibration was cut off; penstock-run --calibrate with "
                       "--resume goes on with it");
    return write_profile(arguments, result);
  }
  const std::string backend = arguments.value("backend", "host");
  const CalibrationRequest request = request_of(arguments, backend);
  require_no_input(profile_file(arguments));
  if (arguments.flag("request")) return write_request(arguments.value("request"), backend, request);
  const TemporaryFolder folder;
  const std::string asked = folder.file("request.json"), answer = folder.file("result.json");
  write_file(asked, to_json(request));
  const int code = run_executor({"--calibrate", asked, "--backend", backend, "--output", answer});
  if (code != exit_ok) return code;  // it has said why
  return write_profile(arguments, read_result(answer));
}

}  // namespace penstock

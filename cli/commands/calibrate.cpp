// penstock calibrate: measures on this machine and writes a profile.
#include "base/exit_codes.hpp"
#include "base/say.hpp"
#include "base/table.hpp"
#include "base/units.hpp"
#include "cli/output.hpp"
#include "validate/profile.hpp"
#include "cli/running.hpp"
#include "cli/stack_calibration.hpp"
#include "hw/executor_process.hpp"
#include "scenarios/document.hpp"
#include "traces/byte_sink.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <set>
#include <sstream>
#include <thread>

namespace penstock {
namespace {

namespace fs = std::filesystem;

/// A GPT that a laptop computes in milliseconds.
TransformerSpec small_gpt() {
  TransformerSpec m;
  m.name = "small-gpt";
  m.num_layers = 8;
  m.hidden_size = 256;
  m.num_attention_heads = m.num_query_groups = 4;
  m.ffn_hidden_size = 1024;
  m.vocab_size = 1024;
  m.seq_length = 128;
  m.tie_embeddings = false;
  m.compute_type = "fp32";
  return m;
}

bool is_scenario(const std::string& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored) && load_document(path).find("schedule") != nullptr;
}

/// What a scenario runs: its model, microbatch size, recomputation and devices.
void request_scenario(const std::string& path, CalibrationRequest& request) {
  const Scenario scenario = load_scenario(path);
  if (!scenario.transformer)
    throw InputError(path,
                     "gives its model as costs, so there is nothing to measure; name a model "
                     "by shape");
  request.model = *scenario.transformer;
  request.microbatch_sizes = {scenario.microbatch_size};
  std::set<Recompute> granularities;  // what single layers take is part of `none` and `full`
  for (const Recomputation& r : scenario.recompute.distinct()) {
    if (!r.plain()) granularities.insert(Recompute::none);
    granularities.insert(r.granularity);
  }
  request.recompute.assign(granularities.begin(), granularities.end());
}

std::vector<std::int64_t> integers(const std::string& flag, const std::string& text) {
  std::vector<std::int64_t> numbers;
  std::istringstream parts(text);
  parts.exceptions(std::ios::badbit);  // no memory is not the end of the text
  for (std::string part; std::getline(parts, part, ',');) {
    std::int64_t n = 0;
    const char* end = part.data() + part.size();
    const auto [stop, error] = std::from_chars(part.data(), end, n);
    if (error != std::errc() || stop != end || n < 1 || n > 1'000'000'000)
      throw InputError(flag, fmt::format("must be integers >= 1 such as 1,2,4, got '{}'", text));
    numbers.push_back(n);
  }
  if (numbers.empty()) throw InputError(flag, "must not be empty");
  return numbers;
}

std::vector<Recompute> recomputations(const std::string& text) {
  std::vector<Recompute> modes;
  std::istringstream parts(text);
  parts.exceptions(std::ios::badbit);  // no memory is not the end of the text
  for (std::string part; std::getline(parts, part, ',');) {
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

/// The host computes in fp32; a GPU in what is asked for, by the model if by nobody else, fp16 as
/// bf16.
void set_precision(CalibrationRequest& request, const std::string& backend,
                   const std::string& asked) {
  if (backend == "host" && asked == "bf16")
    throw InputError("--precision", "the host computes in fp32; bf16 needs --backend cuda");
  const bool bf16 =
      backend == "cuda" && (asked.empty() ? request.model.compute_type : asked).ends_with("16");
  request.precision = bf16 ? Precision::bf16 : Precision::fp32;
  request.model.compute_type = bf16 ? "bf16" : "fp32";
}

/// The messages of the model itself, at every microbatch size, so that none is interpolated.
void add_message_sizes(CalibrationRequest& request) {
  const std::int64_t element = request.precision == Precision::bf16 ? 2 : 4;
  std::vector<std::int64_t>& sizes = request.message_bytes;
  for (const std::int64_t size : request.microbatch_sizes)
    sizes.push_back(size * request.model.seq_length * request.model.hidden_size * element);
  std::ranges::sort(sizes);
  const auto [same, end] = std::ranges::unique(sizes);
  sizes.erase(same, end);
}

CalibrationRequest request_of(const Arguments& arguments, const std::string& backend) {
  CalibrationRequest request;
  request.model = small_gpt();
  request.optimizer.kind = OptimizerSpec::Kind::adamw;  // as `penstock replay`
  request.optimizer.weight_decay = 0.01;
  if (!arguments.positional.empty()) {
    const std::string& name = arguments.positional[0];
    const bool file = fs::exists(name);
    if (is_scenario(name)) {
      request_scenario(name, request);
    } else {
      request.model = load_model(file ? fs::absolute(name).string() : name);
    }
  }
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
  request.interference = backend == "cuda" && request.workers > 1;  // partitions share their memory
  request.min_repetitions = integer(arguments, "repetitions", request.min_repetitions);
  request.max_repetitions = std::max(request.max_repetitions, request.min_repetitions);
  return request;
}

// --- what was measured --------------------------------------------------------------------------

using CsvRow = std::vector<std::pair<std::string, Json>>;

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
    table.add(
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
    table.add({std::string(kTrafficNames[static_cast<int>(m.traffic)]),
               format_bytes(static_cast<double>(m.bytes)), std::to_string(m.load),
               std::to_string(m.last.n), format_time(m.last.median_s), format_time(m.last.p5_s),
               format_time(m.last.p95_s), format_percent(m.last.spread())});
  }
  return table.render();
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

int write_profile(const Arguments& arguments, const CalibrationResult& result) {
  const std::string path = arguments.value("output", "profile.yaml");
  write_file(path, to_yaml(fit_profile(result)));
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

CalibrationResult read_result(const std::string& path) {
  return parse_calibration_result(read_file(path), path);
}

}  // namespace

int run_calibrate(const Arguments& arguments) {
  set_results_to_file(false);  // --output is the profile
  refuse_without_table(arguments);
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
  if (arguments.flag("request")) return write_request(arguments.value("request"), backend, request);
  const TemporaryFolder folder;
  const std::string asked = folder.file("request.json"), answer = folder.file("result.json");
  write_file(asked, to_json(request));
  const int code = run_executor({"--calibrate", asked, "--backend", backend, "--output", answer});
  if (code != exit_ok) return code;  // it has said why
  return write_profile(arguments, read_result(answer));
}

}  // namespace penstock

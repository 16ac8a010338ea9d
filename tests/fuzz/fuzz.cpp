// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/targets.hpp"

#include "hw/host/hmac.hpp"
#include "hw/host/rendezvous.hpp"
#include "hw/calibration.hpp"
#include "hw/run_plan_file.hpp"
#include "models/layer_table.hpp"
#include "models/layout_string.hpp"
#include "results/simulation.hpp"
#include "scenarios/config_import.hpp"
#include "scenarios/documents.hpp"
#include "scenarios/megatron_import.hpp"
#include "schedules/formats/torch_reader.hpp"
#include "sweep/axes.hpp"
#include "sweep/bytes.hpp"
#include "sweep/inputs.hpp"
#include "sweep/line_output.hpp"
#include "sweep/messages.hpp"
#include "sweep/sqlite_output.hpp"
#include "traces/byte_sink.hpp"
#include "traces/recording.hpp"
#include "traces/trace_check.hpp"
#include "validate/run_table.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

namespace penstock::fuzz {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMostOps = 2000;     // that are simulated
constexpr std::uint64_t kMostSearched = 64;  // the same, where the order is searched for
constexpr std::uint64_t kMostPoints = 2000;  // that are counted

// ---- scenarios

/// Nothing but shipped files and these: no text reaches the disk.
std::shared_ptr<Documents> only(std::vector<Documents::File> files) {
  static const std::vector<Documents::File> kShipped = [] {
    std::vector<Documents::File> shipped;
    for (const char* folder : {"models", "models/clusters", "models/devices", "models/stacks"})
      for (const std::string& name : shipped_names(folder)) {
        const std::string path = fs::path(data_folder()) / folder / (name + ".yaml");
        shipped.push_back({path, read_file(path)});
      }
    return shipped;
  }();
  files.insert(files.end(), kShipped.begin(), kShipped.end());
  return std::make_shared<Documents>(files);
}

Scenario scenario_of(const std::string& text, const std::string& file = "",
                     const std::string& content = "", const std::vector<Override>& changes = {}) {
  return ScenarioTemplate("a.yaml", only({{"a.yaml", text}, {file, content}})).resolve(changes);
}

void require_sound(const Simulation& simulated) {
  const Result result = summarize(simulated);
  invariant(std::isfinite(result.makespan_s) && result.makespan_s >= 0, "a time that is none");
  for (const DeviceResult& device : result.devices)
    for (const std::int64_t bytes : device.memory.use.bytes)
      invariant(bytes >= 0, "less memory than none");
}

void simulate_small(const Scenario& scenario) {
  const bool searched = scenario.schedule->name.ends_with("search");
  if (count_ops(scenario.shape) > (searched ? kMostSearched : kMostOps)) return;
  Simulation simulated = prepare(scenario);
  if (simulated.program.ops.size() > kMostOps || !why_not_exact(simulated.input()).empty()) return;
  run_engine(simulated, EngineChoice::exact);
  require_sound(simulated);
}

/// What was accepted reads as the same when it is written again, and runs.
void use_scenario(const std::string& text, const std::string& file = "",
                  const std::string& content = "") {
  const Scenario scenario = scenario_of(text, file, content);
  invariant(scenario_of(scenario.text(), file, content).text() == scenario.text(),
            "a scenario reads as another");
  simulate_small(scenario);
}

void read_scenario(const std::string& text) { use_scenario(text); }

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

void read_overrides(const std::string& text) {
  static const std::string kSmall = read_file(data_folder() + "/scenarios/small-1f1b.yaml");
  std::vector<Override> changes;
  for (const std::string& line : lines_of(text)) changes.push_back(parse_override(line));
  const Scenario scenario = scenario_of(kSmall, "", "", changes);
  invariant(scenario_of(scenario.text()).text() == scenario.text(), "a scenario reads as another");
  simulate_small(scenario);
}

void read_block(const std::string& text) {
  use_scenario(
      "model: {forward: 1 ms, backward_input: 1 ms, backward_weight: 1 ms}\n"
      "cluster: {link: {latency: 0}}\nschedule: b.yaml\n"
      "pipeline: {microbatches: 4}\n",
      "b.yaml", text);
}

void read_profile_of_calibration(const std::string& text) {
  use_scenario(
      "model: p.yaml\ncluster: p.yaml\nschedule: 1f1b\n"
      "pipeline: {stages: 2, microbatches: 4}\n",
      "p.yaml", text);
}

void read_foreign_model(const std::string& text) {
  use_scenario(
      "model: m.json\ncluster: dgx-a100\nschedule: 1f1b\n"
      "pipeline: {stages: 2, microbatches: 4}\n",
      "m.json", text);
}

using Importer = std::string (*)(const std::string&, const std::string&, const std::string&);

/// Whatever it says is YAML; that the values go together is the user's.
void import_with(Importer importer, const std::string& text) {
  const std::string made = importer(text, "a", "");
  try {
    parse_document(made, "made");
  } catch (const InputError&) {
    throw InternalBug("an import is no YAML");
  }
  use_scenario(made);
}

void read_nanotron(const std::string& text) {
  import_with([](const std::string& t, const std::string& origin,
                 const std::string& cluster) { return scenario_of_nanotron(t, origin, cluster); },
              text);
}
void read_torchtitan(const std::string& text) {
  import_with([](const std::string& t, const std::string& origin,
                 const std::string& cluster) { return scenario_of_torchtitan(t, origin, cluster); },
              text);
}
void read_megatron(const std::string& text) {
  import_with([](const std::string& t, const std::string& origin,
                 const std::string& cluster) { return scenario_of_megatron(t, origin, cluster); },
              text);
}

// ---- schedules and layers

void read_torch(const std::string& text) {
  const ImportedSchedule read = read_torch_csv(text, "a.csv");
  invariant(read_torch_csv(to_csv(read.table), "b.csv").table.rows == read.table.rows,
            "a table reads as another");
  const TorchTable whole = with_communication(table_of(read.order), read.placement);
  const ImportedSchedule again = read_torch_csv(to_csv(whole), "c.csv");
  for (int d = 0; d < read.order.devices(); ++d)
    invariant(std::ranges::equal(again.order.of_device(d), read.order.of_device(d)),
              "a lowered order differs");
  if (read.order.size() > kMostOps) return;
  use_scenario(
      fmt::format(
          "model: {{forward: 1 s, {}}}\ncluster: {{link: {{latency: 0}}}}\n"
          "schedule: a.csv\npipeline: {{stages: {}, chunks: {}, microbatches: {}}}\n",
          read.split_backward ? "backward_input: 1 s, backward_weight: 1 s" : "backward: 2 s",
          read.depth, read.chunks, read.microbatches),
      "a.csv", text);
}

void read_layout(const std::string& text) {
  const auto layout = parse_layout(text, "a layout");
  invariant(parse_layout(to_layout(layout), "again") == layout, "a layout reads as another");
}

void use_profile(const PipedreamProfile& profile) {
  const int stages = std::min<int>(3, static_cast<int>(profile.layers.size()));
  if (profile.layers.size() > 200) return;
  const auto split =
      profiled_balanced_split(profile, std::vector<int>(static_cast<std::size_t>(stages), 1));
  for (const StageCosts& costs : profiled_stage_costs(profile, split, {}))
    invariant(std::isfinite(costs[OpKind::forward].seconds) &&
                  costs[OpKind::forward].seconds >= 0 && costs.output_bytes >= 0,
              "a stage's costs are none");
}

void read_graph(const std::string& text) {
  use_profile(parse_pipedream_profile(text, "graph.txt"));
}
void read_layers(const std::string& text) { use_profile(parse_layer_table(text, "a.csv")); }

// ---- measurements

void read_runs(const std::string& text) {
  for (const RunRow& row : parse_run_table(text, "a.csv"))
    invariant(!row.id.empty() && row.scenario.empty() != row.left_out.empty(),
              "a row that is neither a scenario nor left out");
}

void read_request(const std::string& text) {
  const std::string written = to_json(parse_calibration_request(text, "a.json"));
  invariant(to_json(parse_calibration_request(written, "b.json")) == written,
            "a request reads as another");
}

void read_result(const std::string& text) {
  const std::string written = to_json(parse_calibration_result(text, "a.json"));
  invariant(to_json(parse_calibration_result(written, "b.json")) == written,
            "a result reads as another");
}

void read_recording_text(const std::string& text) {
  const std::string written = recording_text(parse_recording(text, "a.json"));
  invariant(recording_text(parse_recording(written, "b.json")) == written,
            "a recording reads as another");
}

/// A file with this text, for what reads files only.
const std::string& file_with(const std::string& text) {
  static const std::string kPath =
      fs::temp_directory_path() / fmt::format("penstock-fuzz-{}", ::getpid());
  static const int kAtExit = std::atexit([] { std::remove(kPath.c_str()); });
  static_cast<void>(kAtExit);
  std::ofstream(kPath, std::ios::binary) << text;
  return kPath;
}

void read_trace(const std::string& text) {
  const TraceReport report = check_trace(file_with(text));
  invariant((report.violations == 0) == report.first.empty(), "violations without a sentence");
}

void read_program(const std::string& text) {
  const RunPlan plan = parse_run_plan(text, "a.json");
  const std::string written = to_text(plan);
  invariant(to_text(parse_run_plan(written, "b.json")) == written, "a program reads as another");
  static_cast<void>(with_update_channels(plan));
  for (std::uint32_t g = 0; g < plan.program.ops.size(); ++g)
    invariant(std::isfinite(duration_s(plan, g)), "an op without a duration");
}

// ---- sweeps

/// A line is an axis, keys that are zipped ('&'), or a condition ('?').
void read_axes(const std::string& text) {
  std::vector<std::string> over, zips, conditions;
  for (const std::string& line : lines_of(text)) {
    const bool marked = line.starts_with('&') || line.starts_with('?');
    (line.starts_with('&') ? zips
     : marked              ? conditions
                           : over)
        .push_back(marked ? line.substr(1) : line);
  }
  const auto documents =
      only({{"a.yaml", read_file(data_folder() + "/scenarios/small-1f1b.yaml")}});
  const Space space({"a.yaml"}, parse_axes(over, zips, {}), conditions, {}, *documents);
  if (space.size() > kMostPoints) return;
  std::uint64_t seen = 0;
  for (std::uint64_t n = space.next(0); n < space.size(); n = space.next(n + 1)) ++seen;
  invariant(seen == space.count(), "points are counted wrongly");
  if (seen > 0) static_cast<void>(space.point(space.next(0)));
}

struct Rows {
  std::shared_ptr<Documents> documents = only({{"a.yaml", "{}"}});
  Space space{
      {"a.yaml"}, parse_axes({"stages=1:4", "microbatches=1:5"}, {}, {}), {}, {}, *documents};
  Columns columns{space, *documents};
};

/// With the right check behind every row, which no mutation finds.
std::string with_checks(const std::string& text, bool json) {
  const std::string before = json ? ",\"check\":\"" : ",";
  std::string checked;
  for (const std::string& line : lines_of(text)) {
    const std::size_t at = line.rfind(before);
    const bool header = !json && checked.empty();
    checked +=
        at == std::string::npos || header
            ? line
            : line.substr(0, at) + before + check_of(line.substr(0, at)) + (json ? "\"}" : "");
    checked += '\n';
  }
  return checked;
}

/// The rows of an interrupted sweep: JSON where a file begins with a brace.
void read_rows(const std::string& text) {
  static const Rows kRows;
  using Kind = LineFormat::Kind;
  const bool json = text.starts_with('{');
  const std::string file = with_checks(text, json);
  const LineFormat format(json ? Kind::json : Kind::csv, kRows.columns.all());
  const auto visit = [&](const Cells& row) {
    const std::string line = format.line(row);
    const auto again = format.parse(line.substr(0, line.size() - 1));
    invariant(again && format.line(*again) == line, "a row reads as another");
  };
  const std::int64_t whole = read_lines(file_with(file), format, visit);
  invariant(whole >= 0 && whole <= static_cast<std::int64_t>(file.size()), "more than there is");
}

void read_manifest(const std::string& text) {
  const Manifest manifest = parse_manifest(text, "a.sweep");
  invariant(differences(manifest, parse_manifest(to_json(manifest), "b.sweep")).empty(),
            "a manifest reads as another");
}

/// What a worker's pipes say, in both directions.
void read_messages(const std::string& text) {
  int ends[2];
  if (::pipe(ends) != 0) throw InternalBug("no pipes");
  const std::string sent = text.substr(0, 32768);
  const bool all = ::write(ends[1], sent.data(), sent.size()) == static_cast<ssize_t>(sent.size());
  ::close(ends[1]);
  MessageStream stream(ends[0], ::dup(ends[0]));
  while (stream.receive()) {
  }
  while (const auto message = stream.next_message()) {
    switch (message->kind) {
      case MessageKind::give_up: static_cast<void>(encode(decode_number(message->bytes))); break;
      case MessageKind::stop: break;
      case MessageKind::point: static_cast<void>(encode(decode_task(message->bytes))); break;
      case MessageKind::row: {
        static const Rows kRows;
        Row row = decode(message->bytes);
        row.point %= kRows.space.size();  // who hands out points knows which
        invariant(encode(decode(encode(row))) == encode(row), "a row reads as another");
        static_cast<void>(kRows.columns.cells(row));
      }
    }
  }
  invariant(all, "a pipe holds less than a message");
}

int connected_to(int port) {
  const int to = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const bool is = ::connect(to, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  invariant(is, "rank 0 does not listen any more");
  return to;
}

/// What a process says to rank 0's server before it leaves.
void read_greetings(const std::string& text) {
  static std::unique_ptr<RendezvousServer> server;
  static int heard = 0;
  if (heard++ % 500 == 0)
    server =
        std::make_unique<RendezvousServer>(RunIdentity{0, 4, "run"}, std::vector{0}, "127.0.0.1");
  const int to = connected_to(server->port());
  static_cast<void>(::send(to, text.data(), text.size(), MSG_NOSIGNAL));
  ::shutdown(to, SHUT_WR);
  char buffer[4096];
  while (::recv(to, buffer, sizeof buffer, 0) > 0) {
  }
  ::close(to);
}

/// Whoever connects to it first, once.
class FakeRank0 {
 public:
  explicit FakeRank0(const std::string& says) : says_(says) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    const bool listens =
        ::bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 &&
        ::listen(listener_, 8) == 0 &&
        ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &length) == 0;
    invariant(listens, "no socket to listen at");
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { serve(); });
  }
  ~FakeRank0() {
    ::shutdown(listener_, SHUT_RDWR);
    thread_.join();
    ::close(listener_);
  }
  FakeRank0(const FakeRank0&) = delete;
  FakeRank0& operator=(const FakeRank0&) = delete;
  int port() const { return port_; }
  static constexpr const char* kRun = "run";

 private:
  static constexpr std::size_t kFrame = 32, kNonce = 32, kProof = 64;

  void serve() {
    const int to = ::accept(listener_, nullptr, nullptr);
    if (to < 0) return;
    const bool proves = says_.starts_with('p');
    if (!proves || prove(to)) {
      const std::string rest = says_.substr(proves ? 1 : 0);
      static_cast<void>(::send(to, rest.data(), rest.size(), MSG_NOSIGNAL));
    }
    ::shutdown(to, SHUT_WR);
    char buffer[4096];
    while (::recv(to, buffer, sizeof buffer, 0) > 0) {
    }
    ::close(to);
  }
  /// As hw/host/rendezvous.hpp says it, for a run without a secret.
  static bool prove(int to) {
    std::string hello(kFrame + 1 + kNonce + std::strlen(kRun), '\0');
    if (::recv(to, hello.data(), hello.size(), MSG_WAITALL) != ssize_of(hello)) return false;
    const std::string theirs = hello.substr(kFrame + 1, kNonce), ours(kNonce, 'b');
    const std::string proof = hmac("", fmt::format("rank 0\n{}\n{}\n{}", theirs, ours, kRun));
    const std::string answer = greeting('+', 0, ours + proof, ""),
                      joined = greeting('+', 0, "", "");
    std::string join(kFrame + kProof, '\0');
    return ::send(to, answer.data(), answer.size(), MSG_NOSIGNAL) == ssize_of(answer) &&
           ::recv(to, join.data(), join.size(), MSG_WAITALL) == ssize_of(join) &&
           ::send(to, joined.data(), joined.size(), MSG_NOSIGNAL) == ssize_of(joined);
  }
  static ssize_t ssize_of(const std::string& text) { return static_cast<ssize_t>(text.size()); }

  const std::string& says_;
  int listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  int port_ = 0;
  std::thread thread_;
};

/// What rank 0 says to a rank: after 'p' when it has proven to be it, else from its first word on.
void read_answers(const std::string& text) {
  constexpr double kReachS = 0.02, kDeadlineS = 1;
  const FakeRank0 rank_0(text);
  const auto store = connect_rendezvous({1, 4, FakeRank0::kRun}, "127.0.0.1", {rank_0.port()},
                                        kReachS, kDeadlineS);
  store->set("key", "value");
  static_cast<void>(store->try_get("key", 0));
  invariant(std::isfinite(store->clock_s()), "no time");
  static_cast<void>(store->try_get("other", 2));
}

/// The database of an interrupted sweep: looked at, then opened to be continued.
void read_database(const std::string& text) {
  static const Rows kRows;
  const std::string& path = file_with(text);
  std::vector<Cells> before, after;
  std::string then;
  {
    const auto looked_at = open_sqlite(path, kRows.columns.all(), DatabaseAccess::read);
    then = looked_at->manifest();
    looked_at->previous([&](const Cells& row) { before.push_back(row); });
  }
  const auto database = open_sqlite(path, kRows.columns.all(), DatabaseAccess::resume);
  invariant(database->manifest() == then, "a manifest reads as another");
  database->previous([&](const Cells& row) { after.push_back(row); });
  invariant(after == before, "rows read as others");
  if (!before.empty()) {
    database->replace({before.front()});
    after.clear();
    database->previous([&](const Cells& row) { after.push_back(row); });
    invariant(after == before, "a row that was written again reads as another");
  }
}

const Target kTargets[] = {
    {.name = "scenario",
     .read = read_scenario,
     .seeds = {"scenarios/*.yaml", "tests/scenarios/malformed/*.yaml", "scenarios/keys.cpp"},
     .covers = {"scenarios/document.cpp", "scenarios/documents.cpp", "scenarios/loading.cpp",
                "scenarios/parts.cpp", "scenarios/resolve.cpp", "scenarios/parallelism.cpp",
                "scenarios/shape.cpp", "scenarios/specification.cpp", "scenarios/section.cpp",
                "scenarios/values.cpp", "scenarios/cluster_parts.cpp", "scenarios/fabric_parts.cpp",
                "scenarios/node_parts.cpp", "scenarios/perturbation_parts.cpp",
                "scenarios/costs.cpp", "scenarios/library.cpp"}},
    {.name = "set",
     .read = read_overrides,
     .seeds = {"tests/scenarios/overrides_test.cpp", "scenarios/keys.cpp"},
     .covers = {"scenarios/overrides.cpp"}},
    {.name = "over",
     .read = read_axes,
     .seeds = {"tests/sweep/axes_test.cpp", "tests/sweep/condition_test.cpp"},
     .covers = {"sweep/axes.cpp", "sweep/condition.cpp", "sweep/decimal.cpp", "sweep/space.cpp"}},
    {.name = "torch-csv",
     .read = read_torch,
     .seeds = {"tests/cli/golden/*.csv", "tests/schedules/torch_csv_test.cpp",
               "schedules/formats/torch_table.hpp"},
     .written = written_tables,
     .covers = {"schedules/formats/torch_reader.cpp", "schedules/formats/torch_table.cpp",
                "schedules/formats/torch_lowering.cpp"}},
    {.name = "block",
     .read = read_block,
     .seeds = {"tests/scenarios/schedule_parts_test.cpp", "scenarios/own_schedule.cpp"},
     .written = written_blocks,
     .covers = {"scenarios/own_schedule.cpp"}},
    {.name = "layout",
     .read = read_layout,
     .seeds = {"tests/models/layout_string_test.cpp"},
     .covers = {"models/layout_string.cpp"}},
    {.name = "hugging-face",
     .read = read_foreign_model,
     .seeds = {"tests/scenarios/foreign/*.json", "tests/scenarios/malformed/parts/*.json",
               "scenarios/foreign.cpp"},
     .covers = {"scenarios/foreign.cpp"}},
    {.name = "nanotron",
     .read = read_nanotron,
     .seeds = {"tests/scenarios/config_import_test.cpp", "scenarios/nanotron_import.cpp"},
     .covers = {"scenarios/nanotron_import.cpp"}},
    {.name = "torchtitan",
     .read = read_torchtitan,
     .seeds = {"tests/scenarios/config_import_test.cpp", "scenarios/torchtitan_import.cpp"},
     .covers = {"scenarios/torchtitan_import.cpp"}},
    {.name = "megatron",
     .read = read_megatron,
     .seeds = {"docs/tasks/*.sh", "tests/scenarios/corpus/dialects/*.yaml",
               "tests/scenarios/corpus/shell/*.sh", "tests/scenarios/megatron_import_test.cpp",
               "scenarios/megatron_import.cpp"},
     .covers = {"scenarios/megatron_import.cpp", "scenarios/flag_files.cpp",
                "scenarios/shell_words.cpp", "scenarios/shell_expansion.cpp",
                "scenarios/shell_commands.cpp", "scenarios/shell_builtins.cpp",
                "scenarios/shell_syntax.cpp"}},
    {.name = "graph",
     .read = read_graph,
     .seeds = {"tests/models/pipedream_profile_test.cpp"},
     .covers = {"models/pipedream_profile_reader.cpp"}},
    {.name = "layers",
     .read = read_layers,
     .seeds = {"docs/tasks/*.csv", "tests/models/layer_table_test.cpp"},
     .covers = {"models/layer_table.cpp"}},
    {.name = "runs",
     .read = read_runs,
     .seeds = {"tests/validate/run_table_test.cpp"},
     .written = written_runs,
     .covers = {"validate/run_table.cpp"}},
    {.name = "calibrated",
     .read = read_profile_of_calibration,
     .seeds = {"tests/scenarios/profiles/*.yaml", "traces/recorded/host/*.yaml",
               "scenarios/costs.cpp"},
     .covers = {"scenarios/parts.cpp", "models/layer_profile.cpp"}},
    {.name = "calibration-request",
     .read = read_request,
     .seeds = {"hw/calibration_file.cpp"},
     .written = written_requests,
     .covers = {"hw/calibration_file.cpp"}},
    {.name = "calibration-result",
     .read = read_result,
     .seeds = {"hw/calibration_file.cpp"},
     .written = written_results,
     .covers = {"hw/calibration_file.cpp"}},
    {.name = "recording",
     .read = read_recording_text,
     .seeds = {"traces/recording.cpp"},
     .written = written_recordings,
     .covers = {"traces/recording.cpp"}},
    {.name = "trace",
     .read = read_trace,
     .seeds = {"traces/trace_check.cpp"},
     .written = written_traces,
     .covers = {"traces/trace_check.cpp"}},
    {.name = "program",
     .read = read_program,
     .seeds = {"hw/run_plan_file.cpp"},
     .written = written_programs,
     .covers = {"hw/run_plan_file.cpp"}},
    {.name = "rows",
     .read = read_rows,
     .written = written_rows,
     .covers = {"sweep/line_format.cpp", "sweep/line_output.cpp"}},
    {.name = "manifest",
     .read = read_manifest,
     .seeds = {"sweep/manifest.cpp"},
     .written = written_manifests,
     .covers = {"sweep/manifest.cpp"}},
    {.name = "messages",
     .read = read_messages,
     .system_errors = true,
     .written = written_messages,
     .covers = {"sweep/messages.cpp"}},
    {.name = "greetings",
     .read = read_greetings,
     .system_errors = true,
     .written = written_greetings,
     .covers = {"hw/host/rendezvous.cpp", "hw/host/hmac.cpp"}},
    {.name = "answers",
     .read = read_answers,
     .system_errors = true,
     .written = written_answers,
     .covers = {"hw/host/rendezvous.cpp", "hw/host/hmac.cpp"}},
    {.name = "database",
     .read = read_database,
     .system_errors = true,
     .written = written_databases,
     .covers = {"sweep/sqlite_output.cpp"}},
};

/// Nothing is caught that is no answer, so that a crash shows where it was thrown.
void read(const Target& target, const std::string& text) {
  try {
    target.read(text);
  } catch (const InputError& error) {
    invariant(*error.what() != 0, "an error without a message");
  }
}

const Target* chosen = nullptr;

}  // namespace

std::span<const Target> targets() { return kTargets; }

}  // namespace penstock::fuzz

using namespace penstock;

/// --list: the names; --covers=NAME: the files of its reader; --seeds=FOLDER: writes them;
/// --target=NAME: what to fuzz. libFuzzer leaves alone what begins with two dashes.
extern "C" int LLVMFuzzerInitialize(int* count, char*** arguments) {
  for (int i = 1; i < *count; ++i) {
    const std::string argument = (*arguments)[i];
    if (argument == "--list") {
      for (const fuzz::Target& t : fuzz::targets()) fmt::print("{}\n", t.name);
      std::exit(0);
    }
    if (argument.starts_with("--seeds=")) {
      fuzz::write_seeds(argument.substr(8));
      std::exit(0);
    }
    for (const fuzz::Target& t : fuzz::targets()) {
      if (argument == fmt::format("--target={}", t.name)) fuzz::chosen = &t;
      if (argument != fmt::format("--covers={}", t.name)) continue;
      for (const std::string_view file : t.covers) fmt::print("{}\n", file);
      std::exit(0);
    }
  }
  if (fuzz::chosen == nullptr) {
    fmt::print(stderr, "which --target=NAME? --list shows them\n");
    std::exit(2);
  }
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(bytes), size);
  if (!fuzz::chosen->system_errors) {
    fuzz::read(*fuzz::chosen, text);
    return 0;
  }
  try {
    fuzz::read(*fuzz::chosen, text);
  } catch (const SystemError&) {  // NOLINT(bugprone-empty-catch)
  }
  return 0;
}

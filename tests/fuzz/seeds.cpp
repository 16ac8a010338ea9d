// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/targets.hpp"

#include "base/error.hpp"
#include "hw/calibration.hpp"
#include "hw/run_plan_file.hpp"
#include "results/simulation.hpp"
#include "schedules/formats/torch_table.hpp"
#include "sweep/axes.hpp"
#include "sweep/columns.hpp"
#include "sweep/line_format.hpp"
#include "sweep/manifest.hpp"
#include "sweep/messages.hpp"
#include "sweep/row.hpp"
#include "sweep/sqlite_output.hpp"
#include "traces/byte_sink.hpp"
#include "traces/chrome_writer.hpp"
#include "traces/recording.hpp"

#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

namespace penstock::fuzz {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLongestWord = 40;
constexpr std::size_t kLargestSeed = 20'000;

// ---- what penstock writes

const std::vector<Simulation>& simulated() {
  static const std::vector<Simulation> kSimulated = [] {
    std::vector<Simulation> all;
    for (const std::string name : {"1f1b", "zb-h1", "dualpipe", "pipedream-2bw", "data-parallel"})
      all.push_back(
          simulate(load_scenario(fmt::format("{}/scenarios/small-{}.yaml", data_folder(), name)),
                   EngineChoice::automatic));
    return all;
  }();
  return kSimulated;
}

template <class T, class Make>
std::vector<T> of_each(Make&& make) {
  std::vector<T> made;
  for (const Simulation& s : simulated()) made.push_back(make(s));
  return made;
}

RunPlan plan_of(const Simulation& s) {
  RunPlan plan;
  plan.name = s.scenario.name;
  plan.scenario = s.scenario.text();
  plan.program = s.program;
  plan.costs = s.scenario.costs;
  for (const Transfer& c : s.traffic->messages())
    plan.channels.push_back({c.source, c.destination, c.backward, c.latency_s, c.bytes_per_s});
  if (s.program.placement.mirrored())
    plan.reduction.parts.assign(static_cast<std::size_t>(s.program.placement.depth()),
                                {{.seconds = 1e-3}});
  return plan;
}

Recording recording_of(const Simulation& s) {
  Recording r;
  r.name = s.scenario.name;
  r.scenario = s.scenario.text();
  r.backend = "host";
  r.clock = "virtual";
  r.schedule = s.program.schedule;
  r.transfers = to_string(s.program.transfers);
  r.depth = s.program.placement.depth();
  r.microbatches = s.program.microbatches_per_update;
  r.batches = s.program.batches;
  r.compute = "stand_in";
  RecordedRun& run = r.runs.emplace_back();
  for (int d = 0; d < s.program.ops.devices(); ++d) {
    for (std::uint32_t g = s.program.ops.begin(d); g < s.program.ops.end(d); ++g)
      run.ops.push_back({.device = d, .op = s.program.ops[g], .span = s.timeline->op(g)});
    run.devices.push_back({.device = d});
  }
  run.losses.push_back({0, 1.5});
  return r;
}

std::string trace_of(const Simulation& s) {
  const std::string path = fs::temp_directory_path() / fmt::format("penstock-seed-{}", ::getpid());
  write_chrome_trace({s.view(), s.memory(), [&](const Op& op) { return s.weight_version(op); }, {}},
                     path);
  const std::string text = read_file(path);
  fs::remove(path);
  return text;
}

CalibrationResult small_result() {
  CalibrationResult r;
  r.backend = "host";
  r.machine = {{"cpu", "a"}};
  r.stages.push_back({{}, {.parameters = 10}});
  r.ops.push_back({{}, 1, OpKind::forward, {5, 1e-3, 1e-3, 2e-3}});
  r.links.push_back(
      {TrafficPattern::one_way, 1024, 1, {5, 1e-3, 1e-3, 2e-3}, {5, 1e-3, 1e-3, 2e-3}});
  return r;
}

Row row_with(std::uint64_t point, Row::Status status) {
  Row row;
  row.point = point;
  row.status = status;
  row.scenario = "a, \"b\"";
  row.why = status == Row::Status::ok ? "" : "48 layers do not divide evenly";
  row.numbers[8] = 1.5;
  return row;
}

/// As they travel.
std::string sent(MessageKind kind, const std::string& bytes) {
  int ends[2];
  if (::pipe(ends) != 0) throw InternalBug("no pipes");
  MessageStream from(::dup(ends[0]), ends[1]);
  from.add_message(kind, bytes);
  from.send_all();
  std::string got(4096, '\0');
  got.resize(
      static_cast<std::size_t>(std::max<ssize_t>(0, ::read(ends[0], got.data(), got.size()))));
  ::close(ends[0]);
  return got;
}

// ---- what lies in the tree

/// The literals of a C++ source, neighbours joined as the compiler does.
std::vector<std::string> literals_of(const std::string& source) {
  std::vector<std::string> found;
  std::size_t ended = 0;
  for (std::size_t at = source.find('"'); at != std::string::npos; at = source.find('"', at + 1)) {
    const bool joined = !found.empty() && source.find_first_not_of(" \n", ended) == at;
    if (!joined) found.emplace_back();
    if (at > 0 && source[at - 1] == 'R' && source.compare(at, 2, "\"(") == 0) {
      const std::size_t end = std::min(source.find(")\"", at), source.size() - 1);
      found.back() += source.substr(at + 2, end - at - 2);
      ended = end + 2;
      at = end + 1;
      continue;
    }
    for (++at; at < source.size() && source[at] != '"' && source[at] != '\n'; ++at) {
      const bool escaped = source[at] == '\\' && at + 1 < source.size();
      if (escaped) ++at;
      found.back() += escaped && source[at] == 'n'   ? '\n'
                      : escaped && source[at] == 't' ? '\t'
                                                     : source[at];
    }
    ended = at + 1;
  }
  return found;
}

std::vector<std::string> files_of(std::string_view pattern) {
  const fs::path path = fs::path(data_folder()) / pattern;
  if (path.stem() != "*") return {path.string()};
  std::vector<std::string> files;
  for (const auto& entry : fs::directory_iterator(path.parent_path()))
    if (entry.path().extension() == path.extension()) files.push_back(entry.path().string());
  std::ranges::sort(files);  // a file system has its own order
  return files;
}

struct Material {
  std::vector<std::string> seeds;
  std::set<std::string> words;

  /// Of a source, or of a test, which has whole texts for the reader as well.
  void add_literals(const std::string& file) {
    for (const std::string& text : literals_of(read_file(file))) {
      if (text.size() > 1 && text.size() <= kLongestWord) words.insert(text);
      if (text.size() > 3 && text.size() <= kLargestSeed && file.ends_with("_test.cpp"))
        seeds.push_back(text);
    }
  }
};

Material material_of(const Target& target) {
  Material material;
  for (const std::string_view pattern : target.seeds) {
    for (const std::string& file : files_of(pattern)) {
      if (file.ends_with("pp"))
        material.add_literals(file);
      else
        material.seeds.push_back(read_file(file));
    }
  }
  if (target.written != nullptr)
    for (std::string& text : target.written()) material.seeds.push_back(std::move(text));
  for (const char* number :
       {"-1", "0", "nan", "1e308", "4294967296", "9223372036854775807", "1e-320"})
    material.words.insert(number);
  return material;
}

std::string dictionary_line(const std::string& word) {
  std::string line = "\"";
  for (const char c : word) line += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  return line + "\"\n";
}

}  // namespace

std::vector<std::string> written_programs() {
  return of_each<std::string>([](const Simulation& s) { return to_text(plan_of(s)); });
}

std::vector<std::string> written_recordings() {
  return of_each<std::string>([](const Simulation& s) { return recording_text(recording_of(s)); });
}

std::vector<std::string> written_traces() { return of_each<std::string>(trace_of); }

std::vector<std::string> written_tables() {
  auto all =
      of_each<std::string>([](const Simulation& s) { return to_csv(table_of(s.program.ops)); });
  const Simulation& s = simulated().front();
  all.push_back(to_csv(with_communication(table_of(s.program.ops), s.program.placement)));
  return all;
}

std::vector<std::string> written_requests() { return {to_json(CalibrationRequest{})}; }
std::vector<std::string> written_results() { return {to_json(small_result())}; }

std::vector<std::string> written_messages() {
  Task task;
  task.point.changes = {{"stages", "4"}};
  return {sent(MessageKind::point, encode(task)),
          sent(MessageKind::give_up, encode(std::uint64_t{3})),
          sent(MessageKind::row, encode(row_with(3, Row::Status::refused))),
          sent(MessageKind::stop, "")};
}

std::string greeting(char kind, std::int32_t number, const std::string& first,
                     const std::string& second) {
  struct {
    std::uint32_t magic = 0x314b5450;
    std::int32_t number = 0;
    std::uint64_t first = 0, second = 0;
    char kind = 0, padding[7] = {};
  } head;
  head.number = number;
  head.first = first.size();
  head.second = second.size();
  head.kind = kind;
  return std::string(reinterpret_cast<const char*>(&head), sizeof head) + first + second;
}

std::vector<std::string> written_greetings() {
  const std::string hello = greeting('h', 0, "4", std::string(32, 'a') + "run") +
                            greeting('j', 1, std::string(64, '0'), "");
  return {hello + greeting('s', 0, "key", "value"), hello + greeting('g', 0, "key", ""),
          hello + greeting('c', 0, "", ""), hello + greeting('f', 0, "", "why")};
}

std::vector<std::string> written_rows() {
  Documents documents({{"a.yaml", "{}"}});
  const Space space({"a.yaml"}, parse_axes({"stages=1:4", "microbatches=1:5"}, {}, {}), {}, {},
                    documents);
  const Columns columns(space, documents);
  std::vector<std::string> files;
  for (const auto kind : {LineFormat::Kind::csv, LineFormat::Kind::json}) {
    const LineFormat format(kind, columns.all());
    files.push_back(format.header() + format.line(columns.cells(row_with(0, Row::Status::ok))) +
                    format.line(columns.cells(row_with(1, Row::Status::refused))));
  }
  return files;
}

std::vector<std::string> written_manifests() {
  Manifest m;
  m.version = "1";
  m.scenarios = m.named = {{"a.yaml", hash_of("a")}};
  m.changes = {"stages=4"};
  m.axes = parse_axes({"microbatches=1:5"}, {}, {});
  m.conditions = {"stages == 4"};
  m.engine = "exact";
  m.shard = "1/1";
  m.points = 5;
  return {to_json(m)};
}

/// Of a sweep with two rows, and of one that was ended before its first.
std::vector<std::string> written_databases() {
  Documents documents({{"a.yaml", "{}"}});
  const Space space({"a.yaml"}, parse_axes({"stages=1:4", "microbatches=1:5"}, {}, {}), {}, {},
                    documents);
  const Columns columns(space, documents);
  const std::string path =
      fs::temp_directory_path() / fmt::format("penstock-seed-{}.sqlite", ::getpid());
  std::vector<std::string> files;
  for (const std::uint64_t rows : {2, 0}) {
    {
      const auto database = open_sqlite(path, columns.all(), DatabaseAccess::create);
      database->set_manifest(written_manifests().front());
      for (std::uint64_t point = 0; point < rows; ++point)
        database->put(columns.cells(row_with(point, Row::Status::ok)));
      database->flush();
    }
    files.push_back(read_file(path));
    fs::remove(path);
  }
  return files;
}

/// After a proof ('p'): that a key was set, its value, what another rank says, the time. Without:
/// refused.
std::vector<std::string> written_answers() {
  const std::string set = greeting('+', 0, "", ""), value = greeting('+', 0, "value", ""),
                    later = greeting('?', 0, "", ""), time = greeting('+', 0, "1.5", "");
  return {"p" + set + value + time + value, "p" + set + later + time + value,
          "p" + set + greeting('!', 0, "rank 2 has left", "") + time,
          greeting('!', 1, "another size", ""), greeting('+', 0, std::string(96, 'a'), "")};
}

std::vector<std::string> written_blocks() {
  return {"forward: [0, 1, 2, 3]\nbackward_input: [7, 6, 5, 4]\n",
          "name: of two\nlayout: loop\nforward: [0, 1]\nbackward: [4, 2]\ninterval: 6\n",
          "layout: loop\nchunks: 2\nforward: [0, 1, 2, 3]\nbackward_input: [9, 8, 7, 6]\n"
          "backward_weight: [12, 12, 14, 14]\ninterval: 6\n",
          "layout: snake\nforward: [0, 3]\nbackward: [12, 6]\nslots: {forward: 3, backward: 6}\n",
          "forward: [0, 1, 2, 3]\nbackward_input: [7, 6, 5, 4]\nbackward_weight: [8, 9, 9, 8]\n"
          "slots: {forward: 1, backward_input: 1, backward_weight: 2}\n"};
}

std::vector<std::string> written_runs() {
  const std::string header =
      "# GPUs,global batch,micro batch,sequence length,attention heads,# layers,hidden size,"
      "tensor parallelism,data parallelism,pipeline parallelism,iteration time (ms)\n";
  const std::string good = "8,32,4,1024,16,24,1024,2,2,2,220\n";
  return {header + good + "16,64,2,2048,32,40,4096,8,1,2,1234.5\r\n,,\n" + good,
          header + "8,32,4,1024,16,24,1024,2,2,1,220\n8,30,4,1024,16,24,1024,2,2,2,-1\n" + good,
          header + "4,32,4,1024,16,2,1024,1,1,4,220\n2,16000000,1,1024,16,2,1024,1,1,2,220\n"};
}

namespace {

/// Texts that nest without end, longer than a stack is deep where a reader calls itself for each
/// level.
std::vector<std::string> deep_seeds() {
  constexpr std::size_t kBytes = 300'000;
  std::vector<std::string> seeds;
  for (const std::string_view open : {"[", "{\"a\":", "- ", "{a: ", "("}) {
    std::string& seed = seeds.emplace_back();
    while (seed.size() < kBytes) seed += open;
  }
  return seeds;
}

}  // namespace

void write_seeds(const std::string& folder) {
  for (const Target& target : targets()) {
    const fs::path here = fs::path(folder) / target.name;
    fs::remove_all(here);  // with what was found since
    fs::create_directories(here);
    Material material = material_of(target);
    std::ranges::move(deep_seeds(), std::back_inserter(material.seeds));
    std::ofstream list(here.string() + ".list");
    for (std::size_t i = 0; i < material.seeds.size(); ++i) {
      const fs::path file = here / fmt::format("seed-{}", i);
      std::ofstream(file, std::ios::binary) << material.seeds[i];
      list << (i == 0 ? "" : ",") << file.string();
    }
    std::ofstream dictionary(here.string() + ".dict");
    for (const std::string& word : material.words) dictionary << dictionary_line(word);
  }
}

}  // namespace penstock::fuzz

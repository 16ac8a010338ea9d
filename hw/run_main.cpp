// SPDX-License-Identifier: Apache-2.0
// penstock-run: executes a program file on this machine. Needs no scenario reader and no simulator,
// so it is what is carried to a GPU machine. `penstock replay` and `penstock calibrate` call it.
#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/exit_codes.hpp"
#include "base/json.hpp"
#include "base/last_words.hpp"
#include "base/output_file.hpp"
#include "base/progress.hpp"
#include "base/say.hpp"
#include "base/suggest.hpp"
#include "hw/calibration.hpp"
#include "hw/cuda/module.hpp"
#include "hw/host/gloo_group.hpp"
#include "hw/kernel_measurement.hpp"
#include "hw/launch.hpp"
#include "hw/reference.hpp"
#include "hw/run.hpp"
#include "hw/run_plan_file.hpp"
#include "hw/stages.hpp"
#include "hw/training_run.hpp"
#include "traces/byte_sink.hpp"

#include <fmt/format.h>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>
#include <mutex>
#include <thread>

namespace penstock {
namespace {

struct OptionRow {
  const char* name;
  const char* value;  ///< "" for a switch
  const char* choices;
  const char* help;
};

constexpr OptionRow kOptions[] = {
    {"backend", "NAME", "host|cuda", "host (default): threads, or processes over TCP; cuda: GPUs"},
    {"clock", "NAME", "wall|virtual", "wall (default), or virtual: logical time, as simulated"},
    {"processes", "", "", "a process per device on this machine, instead of threads"},
    {"prefix", "COMMAND", "", "before each process, {rank} replaced: 'ip netns exec n{rank}'"},
    {"pace", "on|off", "on|off", "ops last their stated time; default: on for stand-in stages"},
    {"precision", "NAME", "fp32|bf16", "cuda: bf16 with fp32 masters, or fp32 (default)"},
    {"link", "NAME", "d2d|pinned|paced", "cuda: how stages on one GPU are joined; default d2d"},
    {"deadline", "SECONDS", "", "without progress, after which the run ends; default 60; 0: none"},
    {"repeats", "N", "", "runs, one after the other; default 1"},
    {"check", "on|off", "on|off", "compare the weights with a sequential run; default on"},
    {"record", "FILE", "", "write what happened (.json or .json.gz)"},
    {"calibrate", "FILE", "", "measure what this request says, instead of a program"},
    {"kernels", "N", "", "cuda: measure products, attention, copies of up to N a side instead"},
    {"output", "FILE", "", "of --calibrate and --kernels; default: standard output"},
    {"resume", "", "", "--calibrate: measures what --output lacks; --train: from --checkpoint"},
    {"budget", "SECONDS", "", "of --calibrate: nothing begins later; 0 (default): no limit"},
    {"train", "FILE", "", "train sequentially instead, under the program's update rule: the curve"},
    {"jobs", "N", "", "of --train: programs at a time, to FILE.0, FILE.1 ...; default 1"},
    {"checkpoint", "FILE", "", "of --train: kept up to date, and --resume goes on from it"},
    {"force", "", "", "of --train: replaces the --checkpoint that is there"},
    {"probe", "", "", "say in one line whether the backend can run here"},
    {"examine", "", "", "cuda: say what GPU 0 is like: partitions, events, launches, copies"},
    {"help", "", "", "this text"},
};

void print_help() {
  std::puts(
      "penstock-run PROGRAM [--OPTION VALUE]...\n"
      "executes a program of `penstock export SCENARIO --to program` on this machine\n\n"
      "  penstock-run run.json                        # threads of one process\n"
      "  penstock-run run.json --processes --record run.rec.json\n"
      "  torchrun --nproc-per-node 4 --no-python penstock-run run.json\n");
  for (const OptionRow& row : kOptions)
    fmt::print("  --{:<22} {}\n", fmt::format("{} {}", row.name, row.value), row.help);
  std::puts(
      "\nexit: 0 the run is complete and its weights are right, 1 not, 2 usage or input,\n"
      "      4 the hardware is not there");
}

/// The command line, checked against the table.
class Options {
 public:
  Options(int argc, char** argv) {
    for (int i = 1; i < argc; ++i) {
      const std::string word = argv[i];
      if (word == "-h") values_["help"] = "";
      if (!word.starts_with("--")) {
        positional.push_back(word);
        continue;
      }
      take_option(word.substr(2), i, argc, argv);
    }
  }

  bool has(const std::string& name) const { return values_.contains(name); }
  std::string get(const std::string& name, const std::string& otherwise) const {
    return has(name) ? values_.at(name) : otherwise;
  }
  /// A number of times.
  int count(const std::string& name, int otherwise) const {
    const double value = number(name, otherwise);
    if (value < 1 || value != static_cast<int>(value))
      throw InputError("--" + name,
                       fmt::format("must be an integer >= 1, got '{}'", get(name, "")));
    return static_cast<int>(value);
  }
  double number(const std::string& name, double otherwise) const {
    if (!has(name)) return otherwise;
    const std::string& text = values_.at(name);
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    // A day: what is longer than that is "never" (0), and clocks can add it.
    if (error != std::errc() || end != text.data() + text.size() || !(value >= 0 && value <= 86400))
      throw InputError("--" + name,
                       fmt::format("must be a number from 0 to 86400, got '{}'", text));
    return value;
  }

  std::vector<std::string> positional;

 private:
  void take_option(std::string name, int& i, int argc, char** argv) {
    const auto equals = name.find('=');
    const bool attached = equals != std::string::npos;
    std::string value = attached ? name.substr(equals + 1) : "";
    if (attached) name.resize(equals);
    const OptionRow& row = find(name);
    const bool takes = row.value[0] != '\0';
    if (takes && !attached) {
      if (i + 1 >= argc) throw InputError("--" + name, fmt::format("needs a {}", row.value));
      value = argv[++i];
    } else if (!takes && attached) {
      throw InputError("--" + name, "takes no value");
    }
    require_choice(row, value);
    values_[name] = value;
  }

  static const OptionRow& find(const std::string& name) {
    std::vector<std::string> known;
    for (const OptionRow& row : kOptions) {
      if (row.name == name) return row;
      known.push_back(std::string("--") + row.name);
    }
    throw InputError("--" + name, "is not an option" + did_you_mean("--" + name, known));
  }

  static void require_choice(const OptionRow& row, const std::string& value) {
    const std::string choices = row.choices;
    if (choices.empty() || ("|" + choices + "|").find("|" + value + "|") != std::string::npos)
      return;
    throw InputError(std::string("--") + row.name,
                     fmt::format("must be one of {}, got '{}'", choices, value));
  }

  std::map<std::string, std::string> values_;
};

RunOptions run_options(const Options& options, Compute compute) {
  RunOptions run;
  run.backend = options.get("backend", "host");
  RunSettings& s = run.settings;
  s.clock = options.get("clock", "wall") == "virtual" ? Clock::virtual_clock : Clock::wall;
  s.pace = options.get("pace", compute == Compute::stand_in ? "on" : "off") == "on";
  s.deadline_s = options.number("deadline", 60);
  s.precision = options.get("precision", "fp32") == "bf16" ? Precision::bf16 : Precision::fp32;
  s.link = options.get("link", "");
  s.must_partition = options.has("record");
  run.check_weights = options.get("check", "on") == "on";
  if (options.has("resume") && !options.has("calibrate") && !options.has("checkpoint"))
    throw InputError("--resume", "needs the --checkpoint to go on from");
  if (run.backend == "host" && s.precision == Precision::bf16)
    throw InputError("--precision", "the host computes in fp32; bf16 needs --backend cuda");
  return run;
}

/// SIGINT, SIGTERM and SIGHUP stop the run, if one is going on, so that what was recorded is kept.
/// Another one, of somebody who has waited for that, ends the program: a driver may never return.
/// They are handled, not blocked: OpenBLAS has threads from the start that would still get them.
class StopSignals {
 public:
  StopSignals() {
    if (::pipe2(ends_, O_CLOEXEC) != 0) throw SystemError::from_errno("open", "a pipe");
    for (const int s : {SIGINT, SIGTERM, SIGHUP}) {
      struct sigaction now = {}, handled = {};
      ::sigaction(s, nullptr, &now);
      if (now.sa_handler == SIG_IGN) continue;  // nohup
      handled.sa_handler = [](int number) {
        const int before = errno;
        const char byte = static_cast<char>(number);
        if (::write(ends_[1], &byte, 1) != 1) ::_exit(128 + number);
        errno = before;
      };
      handled.sa_flags = SA_RESTART;
      ::sigaction(s, &handled, nullptr);
      handled_.push_back(s);
    }
    thread_ = std::thread([this] { wait(); });
  }
  ~StopSignals() {
    for (const int s : handled_) ::signal(s, SIG_DFL);
    ::close(ends_[1]);  // which ends the thread, whatever else fails
    thread_.join();
    ::close(ends_[0]);
  }
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  /// What a signal stops from now on; null: nothing, the program ends at once.
  void watch(RunControl* control) {
    const std::lock_guard lock(mutex_);
    control_ = control;
    if (control_ != nullptr && signal_ != 0) stop();
  }
  /// The signal that came, or 0.
  int signal() const { return signal_; }

 private:
  void wait() {
    for (char number = 0;;) {
      const ssize_t got = ::read(ends_[0], &number, 1);
      if (got < 0 && errno == EINTR) continue;
      if (got != 1) return;
      const std::lock_guard lock(mutex_);
      // At once a terminal and a launcher may send the same one.
      const bool again = signal_ != 0 && steady_s() - came_s_ > kPatience_s;
      if (control_ == nullptr || again) ::_exit(128 + number);
      if (signal_ == 0) came_s_ = steady_s();
      signal_ = number;
      stop();
    }
  }
  void stop() { control_->fail(fmt::format("SIG{} came", ::sigabbrev_np(signal_))); }

  static constexpr double kPatience_s = 2;
  static inline int ends_[2];  // a handler has nothing else to find them by
  std::vector<int> handled_;
  std::mutex mutex_;
  RunControl* control_ = nullptr;
  std::atomic<int> signal_ = 0;
  double came_s_ = 0;  // the first of them
  std::thread thread_;
};

/// Ends the program when a run that was stopped does not end: an op may hang in a library (OpenBLAS
/// asks for memory for ever), and no thread can be stopped from outside.
class LastResort {
 public:
  LastResort() : thread_([this] { wait(); }) {}
  ~LastResort() {
    set(State::over, nullptr);
    thread_.join();
  }
  LastResort(const LastResort&) = delete;
  LastResort& operator=(const LastResort&) = delete;

  /// The run that goes on from now; null: none.
  void watch(RunControl* control) {
    set(State::idle, control);
    if (control != nullptr) control->on_stop([this, control] { arm(control); });
  }

 private:
  enum class State : std::uint8_t { idle, armed, over };

  void set(State state, RunControl* control) {
    {
      const std::lock_guard lock(mutex_);
      state_ = state;
      control_ = control;
    }
    changed_.notify_all();
  }
  void arm(RunControl* control) {
    {
      const std::lock_guard lock(mutex_);
      if (control_ != control) return;  // it is over already
      state_ = State::armed;
    }
    changed_.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return state_ != State::idle; });
      if (state_ == State::over) return;
      const auto moved_on = [&] { return state_ != State::armed; };
      if (changed_.wait_for(lock, kPatience, moved_on)) continue;
      say("penstock-run: the run was stopped: {}\n  an op that was going on did not end within {} "
          "s, so nothing was recorded\n",
          control_->reason(), kPatience.count());
      ::_exit(exit_failed);
    }
  }

  static constexpr std::chrono::seconds kPatience{10};
  std::mutex mutex_;
  std::condition_variable changed_;
  State state_ = State::idle;
  RunControl* control_ = nullptr;
  std::thread thread_;
};

std::unique_ptr<Group> join_group(double deadline_s) {
  if (auto settings = group_settings(environment, deadline_s); settings)
    return std::make_unique<GlooGroup>(*settings);
  return std::make_unique<SingleProcess>();
}

std::string rank_file(const std::string& path, int rank) {
  return fmt::format("{}.rank{}", path, rank);
}

/// `text` with every `{rank}` replaced, split at blanks.
std::vector<std::string> words(std::string text, int rank) {
  for (std::size_t at; (at = text.find("{rank}")) != std::string::npos;)
    text.replace(at, 6, std::to_string(rank));
  std::vector<std::string> out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    if (end > at) out.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return out;
}

/// What the ranks of a stopped run left, as one recording. Rank 0's has the runs before it, too.
void merge_partial(const std::string& path, int ranks) {
  std::optional<Recording> merged;
  for (int r = 0; r < ranks; ++r) {
    const std::string part = rank_file(path, r);
    if (!std::filesystem::exists(part)) continue;
    Recording mine = read_recording(part);
    std::filesystem::remove(part);
    if (!merged) {
      merged = std::move(mine);
      continue;
    }
    RecordedRun& to = merged->runs.back();
    RecordedRun& from = mine.runs.back();
    // A run that was stopped in its last moment: rank 0 has all already.
    const auto known = [&](int device) {
      return std::ranges::any_of(to.devices, [=](const auto& d) { return d.device == device; });
    };
    std::erase_if(from.ops, [&](const RecordedOp& op) { return known(op.device); });
    std::erase_if(from.devices, [&](const RecordedDevice& d) { return known(d.device); });
    to.ops.insert(to.ops.end(), from.ops.begin(), from.ops.end());
    to.devices.insert(to.devices.end(), from.devices.begin(), from.devices.end());
    to.stopped_because += "\n" + from.stopped_because;
  }
  if (merged) write_recording(*merged, path);
}

/// The exit status of all from those of the ranks.
int exit_status(const LaunchResult& result) {
  if (result.interrupted_by != 0) return 128 + result.interrupted_by;
  const int first = result.first_failure;
  return first == exit_ok || first == exit_no_hardware || first == exit_usage ? first : exit_failed;
}

int launch_processes(const Options& options, int argc, char** argv, const RunPlan& plan) {
  // To notice that a peer is gone, and to write what was recorded.
  constexpr double kLongestGrace_s = 5, kShortestGrace_s = 0.5;
  const double deadline_s = options.number("deadline", 60);
  const double grace_s =
      deadline_s > 0 ? std::clamp(deadline_s, kShortestGrace_s, kLongestGrace_s) : kLongestGrace_s;
  LaunchRequest start;
  start.executable = std::filesystem::read_symlink("/proc/self/exe").string();
  start.processes = ranks_of(plan);
  start.grace_s = grace_s;
  start.kill_s = grace_s;
  for (int i = 1; i < argc; ++i) {
    if (std::string(argv[i]) != "--processes") start.arguments.emplace_back(argv[i]);
  }
  for (int r = 0; r < start.processes && options.has("prefix"); ++r)
    start.prefixes.push_back(words(options.get("prefix", ""), r));
  for (int r = 0; r < start.processes && options.has("record"); ++r)
    std::filesystem::remove(rank_file(options.get("record", ""), r));
  if (options.has("record")) std::filesystem::remove(options.get("record", ""));
  const LaunchResult result = launch(start);
  for (std::size_t r = 0; r < result.status.size() && result.interrupted_by == 0; ++r) {
    const int status = result.status[r];
    // The launcher's own SIGTERM and SIGKILL follow a failure; any other signal is one.
    const bool ours = status == 128 + SIGTERM || status == 128 + SIGKILL;
    if (status <= 128 || (ours && status != result.first_failure)) continue;
    say("penstock-run: rank {} was ended by signal {}\n", r, result.status[r] - 128);
  }
  if (result.first_failure != 0 && options.has("record"))
    merge_partial(options.get("record", ""), start.processes);
  return exit_status(result);
}

/// One line on stdout, on rank 0.
void report(const RecordedRun& run, const RunPlan& plan) {
  double end = 0;
  for (const RecordedOp& op : run.ops) end = std::max(end, op.span.end_s);
  const char* equal = !run.weights_equal ? "null" : *run.weights_equal ? "true" : "false";
  fmt::print("{{\"name\": {}, \"makespan_s\": {:.9g}, \"weights_equal\": {}}}\n",
             Json(plan.name).dump(), end, equal);
  flush_output();
}

/// One run of the plan; also one that could not even begin is a run that was stopped.
RecordedRun run_once(const RunPlan& plan, RunOptions& options, Group& group, Recording& recording) {
  std::optional<Progress> progress;
  options.progress = [&](std::int64_t done) {
    if (!progress) progress.emplace("ops", plan.program.ops.size());
    progress->update(done);
  };
  try {
    return execute_plan(plan, options, group, &recording.description);
  } catch (const SystemError& error) {
    RecordedRun stopped;
    stopped.complete = false;
    stopped.stopped_because = error.what();
    return stopped;
  }
}

/// Says how it ended; the exit status.
int judge(const RecordedRun& run) {
  if (!run.complete) {
    say("penstock-run: the run was stopped: {}\n", run.stopped_because);
  } else if (run.weights_equal && !*run.weights_equal) {
    say("penstock-run: the weights differ from those of a sequential run\n");
  } else if (run.weights_moved == false) {
    say("penstock-run: the updates are so small that the weights of a stage never moved, so that "
        "comparing them shows nothing; take a larger learning rate, or --check off\n");
  } else {
    return exit_ok;
  }
  return exit_failed;
}

void write_runs(Recording recording, const std::string& path, const Group& group) {
  const bool partial = !recording.runs.back().complete && group.size() > 1;
  if (!partial && group.rank() > 0) return;
  if (group.rank() > 0) recording.runs = {recording.runs.back()};  // rank 0 has the others, whole
  write_recording(recording, partial ? rank_file(path, group.rank()) : path);
}

/// How it was run, beside what the backend says of the machine.
void describe_settings(const RunOptions& run, Description& description) {
  description["penstock"] = PENSTOCK_VERSION;
  description["paced"] = run.settings.pace ? "yes" : "no";
  description["precision"] = run.settings.precision == Precision::bf16 ? "bf16" : "fp32";
  if (!run.settings.link.empty()) description["link"] = run.settings.link;
}

int execute(const Options& options, const RunPlan& plan) {
  StopSignals signals;
  RunOptions run = run_options(options, plan.compute);
  LastResort last_resort;
  run.on_control = [&](RunControl* control) {
    signals.watch(control);
    last_resort.watch(control);
  };
  const auto group = join_group(run.settings.deadline_s);
  Recording recording = recording_of(plan, run);
  const int repeats = options.count("repeats", 1);
  int status = exit_ok;
  for (int i = 0; i < repeats && status == exit_ok; ++i) {
    const RecordedRun& done = recording.runs.emplace_back(run_once(plan, run, *group, recording));
    status = judge(done);
    describe_settings(run, recording.description);
    if (group->rank() == 0 && done.complete) report(done, plan);
    if (signals.signal() != 0) status = 128 + signals.signal();
  }
  if (options.has("record")) write_runs(std::move(recording), options.get("record", ""), *group);
  return status;
}

/// What an earlier call left in this file; nothing where there is none.
CalibrationResult former_result(const std::string& path, const CalibrationRequest& request) {
  if (!std::filesystem::exists(path)) return {};
  CalibrationResult former = parse_calibration_result(read_back(path), path);
  if (to_json(former.request) != to_json(request))
    throw InputError("--resume", fmt::format("'{}' is of another request", path));
  return former;
}

int run_calibration(const Options& options) {
  const std::string path = options.get("calibrate", "");
  const CalibrationRequest request = parse_calibration_request(read_file(path), path);
  const std::string backend = options.get("backend", "host");
  std::optional<Progress> progress;
  CalibrationRig rig;
  rig.open = [&](const BackendRequest& r) { return open_backend(backend, r); };
  rig.progress = [&](int done, int total, const std::string&) {
    if (!progress) progress.emplace("measurements", total);
    progress->update(done);
  };
  const std::string output = options.get("output", "-");
  rig.budget_s = options.number("budget", 0);
  if (output != "-")
    rig.keep = [&](const CalibrationResult& so_far) { write_file(output, to_json(so_far)); };
  if (options.has("resume")) rig.former = former_result(output, request);
  const CalibrationResult result = calibrate(request, rig);
  write_file(output, to_json(result));
  if (is_complete(result)) return exit_ok;
  say("penstock-run: the time was up, the calibration is partial; --resume goes on with it\n");
  return exit_failed;
}

int measure_kernels_here(const Options& options) {
  const std::string backend = options.get("backend", "host");
  if (backend != "cuda") throw InputError("--kernels", "are of a GPU: add --backend cuda");
  KernelRequest request;
  request.largest = options.count("kernels", 1);
  const MeasuredKernels measured = measure_kernels(
      request, [&](const BackendRequest& wanted) { return open_backend(backend, wanted); });
  write_file(options.get("output", "-"), to_json(measured));
  return exit_ok;
}

std::vector<OutputFile> outputs_of(const Options& options) {
  std::vector<OutputFile> outputs;
  for (const char* name : {"record", "output", "train", "checkpoint"})
    outputs.push_back({std::string("--") + name, options.get(name, "")});
  return outputs;
}

/// Reads a program; what it cannot be used for is said of the file that its user knows.
RunPlan checked_plan(const std::string& path,
                     std::vector<std::string> (*why_not)(const RunPlan& plan)) {
  RunPlan plan = read_run_plan(path);
  if (const auto why = why_not(plan); !why.empty())
    throw InputError(plan.origin.empty() ? path : plan.origin,
                     fmt::format("{}", fmt::join(why, "; ")));
  return plan;
}

/// Trains each program, as many at a time as there are jobs, to a curve each. A signal ends them
/// between two updates, and what has been learned is kept.
int run_training(const Options& options) {
  StopSignals signals;
  RunControl asked(0);
  signals.watch(&asked);
  std::vector<RunPlan> plans;
  for (const std::string& program : options.positional)
    plans.push_back(checked_plan(program, why_not_computable));
  const auto updates_of = [](const RunPlan& plan) {
    return static_cast<std::int64_t>(plan.lone_updates.empty() ? plan.program.batches
                                                               : plan.lone_updates.size());
  };
  std::int64_t total = 0, done = 0;
  for (const RunPlan& plan : plans) total += updates_of(plan);
  Progress progress("updates", total);
  std::mutex mutex;
  std::atomic<std::size_t> next = 0;
  std::exception_ptr failed;
  // Several runs have names that stay when runs are added or left out.
  const std::string checkpoint = options.get("checkpoint", "");
  const auto checkpoint_of = [&](std::size_t i) {
    return checkpoint.empty() || plans.size() == 1
               ? checkpoint
               : fmt::format("{}.{}", checkpoint, training_identity(plans[i]).substr(0, 12));
  };
  for (std::size_t i = 0; i < plans.size(); ++i)
    require_free_checkpoint(checkpoint_of(i), options.has("resume"), options.has("force"));
  const auto train_one = [&](std::size_t i) {
    TrainingOptions training;
    training.checkpoint = checkpoint_of(i);
    training.resume = options.has("resume");
    training.stop = [&] { return asked.stopped(); };
    std::int64_t made = 0;  // of all its updates, those of former calls among them
    const auto go_on_to = [&](std::int64_t update) {
      const std::lock_guard lock(mutex);
      progress.leave_out(update - made - 1);
      made = update;
    };
    training.progress = [&](const CurvePoint& p) {
      go_on_to(p.update);
      const std::lock_guard lock(mutex);
      progress.update(++done,
                      fmt::format("run {} of {}, loss {:.4f}", i + 1, plans.size(), p.loss));
    };
    const TrainingCurve curve = train(plans[i], run_options(options, plans[i].compute), training);
    go_on_to(updates_of(plans[i]) + 1);  // what a former call made, or nobody will
    write_file(plans.size() == 1 ? options.get("train", "")
                                 : fmt::format("{}.{}", options.get("train", ""), i),
               to_text(curve));
  };
  const auto work = [&] {
    try {
      for (std::size_t i; (i = next++) < plans.size();) train_one(i);
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!failed) failed = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> jobs(static_cast<std::size_t>(options.count("jobs", 1)));
    for (std::jthread& job : jobs) job = std::jthread(work);
  }
  if (failed) std::rethrow_exception(failed);
  return signals.signal() != 0 ? 128 + signals.signal() : exit_ok;
}

int probe(const std::string& backend) {
  SingleProcess alone;
  RunControl control(0);
  const RunPlan plan;
  const RunSettings settings;
  const auto opened = open_backend(backend, {plan, settings, control, alone, {}});
  const Description description = opened->describe();
  std::string line;
  for (const char* key : {"gpu", "driver", "runtime", "processor", "cores", "blas", "links"}) {
    if (const auto it = description.find(key); it != description.end())
      line += fmt::format("{}{} {}", line.empty() ? "" : ", ", key, it->second);
  }
  std::puts(line.c_str());
  return exit_ok;
}

int examine(const std::string& backend) {
  if (backend != "cuda") throw InputError("--examine", "is of a GPU: add --backend cuda");
  examine_cuda([](const char* line) {
    std::puts(line);
    flush_output();
  });
  return exit_ok;
}

int main_checked(int argc, char** argv) {
  const Options options(argc, argv);
  if (options.has("help")) return print_help(), exit_ok;
  if (options.has("probe")) return probe(options.get("backend", "host"));
  if (options.has("examine")) return examine(options.get("backend", "host"));
  const RunFiles files(outputs_of(options));
  for (const std::string& input : options.positional) note_input(input);
  note_input(options.get("calibrate", ""));
  if (options.has("calibrate")) return run_calibration(options);
  if (options.has("kernels")) return measure_kernels_here(options);
  if (options.has("train")) return run_training(options);
  if (options.positional.size() != 1)
    throw InputError("penstock-run", "needs one program file; see penstock-run --help");
  const RunPlan plan = checked_plan(options.positional[0], why_not_executable);
  // Wrong options are said once, not by every process.
  const RunOptions asked = run_options(options, plan.compute);
  if (asked.backend == "cuda" && plan.text)
    throw InputError("training.data", "a text is on the host alone; use markov, or --backend host");
  if (asked.settings.precision == Precision::bf16 && plan.compute == Compute::quadratic)
    throw InputError("--precision", "problem: quadratic is computed in fp32 alone");
  require_wall_clock(plan, asked);
  options.count("repeats", 1);
  if (options.has("processes")) return launch_processes(options, argc, argv, plan);
  return execute(options, plan);
}

}  // namespace
}  // namespace penstock

int main(int argc, char** argv) {
  using namespace penstock;
  begin_program("penstock-run");
  const auto fail = [](const std::exception& error, int code) {
    say("penstock-run: {}\n", error.what());
    return code;
  };
  try {
    const int code = main_checked(argc, argv);
    require_output();
    return code;
  } catch (const InputError& error) {
    return fail(error, exit_usage);
  } catch (const NoHardware& error) {
    return fail(error, exit_no_hardware);
  } catch (const InternalBug& error) {
    say("penstock-run: this is a bug: {}\n", error.what());
    return exit_internal_bug;
  } catch (const std::bad_alloc&) {
    say_no_memory("penstock-run");
    return exit_failed;
  } catch (const std::exception& error) {
    return fail(error, exit_failed);
  }
}

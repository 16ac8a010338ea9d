// SPDX-License-Identifier: Apache-2.0
#include "hw/run.hpp"

#include "base/error.hpp"
#include "base/say.hpp"
#include "hw/math.hpp"
#include "hw/reference.hpp"
#include "hw/stages.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <mutex>
#include <numeric>
#include <sstream>

namespace penstock {
namespace {

/// Tells who is interested that this control can stop what is going on, as long as it lives.
class Watched {
 public:
  Watched(const RunOptions& options, RunControl& control) : options_(options) {
    if (options_.on_control) options_.on_control(&control);
  }
  ~Watched() {
    if (options_.on_control) options_.on_control(nullptr);
  }
  Watched(const Watched&) = delete;
  Watched& operator=(const Watched&) = delete;

 private:
  const RunOptions& options_;
};

/// What the watchdog says of a run, which may be over by then.
class StallReport {
 public:
  void become(std::function<std::string()> describe) {
    const std::lock_guard lock(mutex_);
    describe_ = std::move(describe);
  }
  std::string describe() const {
    const std::lock_guard lock(mutex_);
    return describe_ ? describe_() : "";
  }

 private:
  mutable std::mutex mutex_;
  std::function<std::string()> describe_;
};

/// A paced op, or a paced message, moves nothing for as long as it is stated to last.
double patience_s(const RunPlan& plan, const RunSettings& settings) {
  if (settings.deadline_s <= 0 || !settings.pace || settings.clock != Clock::wall)
    return settings.deadline_s;
  double op_s = 0, message_s = 0;
  std::int64_t largest = 0;
  for (std::uint32_t g = 0; g < plan.program.ops.size(); ++g) {
    const Op& op = plan.program.ops[g];
    op_s = std::max(op_s, duration_s(plan, g));
    if (op.has(Op::sends)) largest = std::max(largest, message_bytes(plan.costs, op));
  }
  for (const Channel& c : plan.channels)
    message_s = std::max(message_s, c.latency_s + static_cast<double>(largest) / c.bytes_per_s);
  return settings.deadline_s + std::max(op_s, message_s);
}

/// What a rank says of its part while it waits for all.
struct Share {
  bool done = false;
  std::int64_t ops = 0;
};

/// Returns when every rank is done; `mine(wait_s)` waits that long at most. The ranks tell each
/// other now and then that they live, so one that is done early may wait for hours, and one that
/// hangs is missed within the deadline.
void wait_for_all(Group& group, double deadline_s, const std::function<Share(double)>& mine,
                  const std::function<void(std::int64_t)>& progress = {}) {
  const double wait_s = deadline_s > 0 ? std::min(0.5, deadline_s / 4) : 0.5;
  for (bool all = false; !all;) {
    const Share share = mine(wait_s);
    const auto parts = group.gather(fmt::format("{:d} {}", share.done, share.ops));
    Share sum{true, 0};
    for (const std::string& part : parts) {
      sum.done = sum.done && part.starts_with('1');
      sum.ops += std::stoll(part.substr(2));
    }
    all = group.broadcast(sum.done ? "all" : "", 0) == "all";
    if (group.rank() == 0 && progress) progress(sum.ops);
  }
}

/// Devices of other processes than that of device 0.
std::vector<int> far_from_0(const RunPlan& plan, const Group& group) {
  std::vector<int> far;
  const int devices = ranks_of(plan);
  for (int d = 0; d < devices; ++d)
    if (group.rank_of(d, devices) != 0) far.push_back(d);
  return far;
}

/// Everything of one process while the plan runs.
class LocalRun {
 public:
  LocalRun(const RunPlan& plan, const RunOptions& options, Group& group)
      : plan_(plan),
        table_(plan.program.ops, plan.program.placement, plan.program.microbatches()),
        options_(options),
        settings_(options.settings),
        control_(patience_s(plan, options.settings)),
        watch_(options, control_),
        group_(group) {
    const auto mine = group.devices_of(group.rank(), ranks_of(plan));
    backend_ = open_backend(options.backend, {plan, settings_, control_, group, mine});
    if (waits_for_no_other(plan) && group.rank() == 0) {
      Device& first = backend_->device(0);
      const int element_bytes = first.math().element_bytes();
      Device& own = far_from_0(plan, group).empty() ? first : backend_->beside(0);
      server_ = std::make_unique<ParameterServer>(
          plan, *options.make_stage(plan, 0, element_bytes, false, 0), first, own);
    }
    const ExecutionInput input{
        plan_, table_, settings_, control_, *backend_, options.make_stage, server_.get()};
    for (const int d : mine) executors_.push_back(std::make_unique<DeviceExecutor>(input, d));
    control_.on_stall([stall = stall_] { return stall->describe(); });
    stall_->become([this] { return where(); });
  }
  ~LocalRun() { stall_->become({}); }
  LocalRun(const LocalRun&) = delete;
  LocalRun& operator=(const LocalRun&) = delete;

  Description describe() const { return backend_->describe(); }
  RunSettings same_bits() const { return backend_->same_bits(settings_); }

  void run() {
    for (const auto& e : executors_) {
      if (backend_->device(e->rank()).loads_on_first_use()) e->warm_up();
    }
    backend_->start();
    std::vector<std::future<void>> issuing;
    for (const auto& e : executors_)
      issuing.push_back(in_thread(fmt::format("device {}", e->rank()), [&] { e->run(); }));
    if (server_)
      issuing.push_back(in_thread(
          "server", [this] { server_->serve(far_from_0(plan_, group_), *backend_, control_); }));
    supervise([&](double wait_s) { return all_ready(issuing, wait_s); });
  }

  RunControl& control() { return control_; }

  /// As they came about, of replicas that wait for no other; else none. After share_updates().
  const std::vector<LoneUpdate>& lone_updates() const { return lone_updates_; }
  /// All ranks learn them from the server's. Not of a run that was stopped.
  void share_updates() {
    if (!waits_for_no_other(plan_) || control_.stopped()) return;
    std::string text;
    for (const auto& [replica, version] : server_ ? server_->updates() : std::vector<LoneUpdate>{})
      text += fmt::format("{} {} ", replica, version);
    std::istringstream in(group_.broadcast(text, 0));
    for (LoneUpdate update; in >> update.replica >> update.version;)
      lone_updates_.push_back(update);
  }

  RecordedRun record() const {
    RecordedRun run;
    run.complete = !control_.stopped();
    run.stopped_because = control_.stopped() ? control_.reason() : "";
    for (const auto& e : executors_) record_device(*e, run);
    return run;
  }

  /// "stage share digest" lines of the weights here.
  std::string digests() const {
    std::string lines;
    if (waits_for_no_other(plan_) && !server_) return lines;  // the weights are elsewhere
    for (const auto& e : executors_) {
      for (const std::uint32_t stage : stages_on(plan_, e->device()))
        lines += fmt::format("{} {} {}\n", stage, share_of_rank(plan_, e->rank()),
                             digest(e->weights(stage)));
    }
    return lines;
  }

 private:
  /// What goes wrong there stops the run.
  std::future<void> in_thread(const std::string& name, const std::function<void()>& work) {
    return std::async(std::launch::async, [this, name, work] {
      ::pthread_setname_np(::pthread_self(), name.c_str());
      try {
        work();
      } catch (const InternalBug& bug) {
        control_.fail(std::string("this is a bug: ") + bug.what());
      } catch (const std::exception& error) {
        control_.fail(what_of(error));
      }
    });
  }

  static bool all_ready(const std::vector<std::future<void>>& all, double wait_s) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(wait_s);
    return std::ranges::all_of(all, [&](const std::future<void>& one) {
      return one.wait_until(end) == std::future_status::ready;
    });
  }

  /// Until the devices of all ranks are done, or the run is stopped and those here have ended.
  void supervise(const std::function<bool(double)>& done_here) {
    try {
      wait_for_all(
          group_, settings_.deadline_s,
          [&](double wait_s) {
            const bool done = done_here(wait_s);
            control_.throw_if_stopped();
            if (done) control_.progress();  // it waits for the others, who are alive
            return Share{done, ops_done()};
          },
          options_.progress);
    } catch (const std::exception& error) {
      control_.fail(what_of(error) + "\n  " + where());
    }
    while (!done_here(1)) continue;
  }

  std::int64_t ops_done() const {
    std::int64_t done = 0;
    for (const auto& e : executors_) done += e->ops_done();
    return done;
  }

  std::string where() const {
    std::string lines;
    for (const auto& e : executors_) lines += (lines.empty() ? "" : "\n  ") + e->where();
    return lines;
  }

  /// Clocks of two processes agree to a few microseconds: a short message may seem to leave after
  /// it came.
  static Span message_span(const OpRecord& r) {
    const double arrived_s = r.message_arrived->time_s();
    return {std::min(r.message_departed->time_s(), arrived_s), arrived_s};
  }

  void record_device(const DeviceExecutor& e, RecordedRun& run) const {
    record_memory(e, run);
    if (e.place() % plan_.division.tensor == 0) record_losses(e, run);
    if (e.place() > 0) return;  // the ranks of a device run the same ops
    const OpLists& ops = plan_.program.ops;
    const std::uint32_t first = ops.begin(e.device());
    for (std::uint32_t i = 0; i < e.records().size(); ++i) {
      const OpRecord& r = e.records()[i];
      if (!r.end || !r.end->fired()) continue;
      const Op& op = ops[first + i];
      RecordedOp recorded{e.device(), op, {r.begin->time_s(), r.end->time_s()}};
      if (r.message_arrived && r.message_arrived->fired()) recorded.message = message_span(r);
      if (op.kind == OpKind::reduce_grad && !r.message_arrived) recorded.message = recorded.span;
      if (is_compute(op.kind)) recorded.weight_version = version_of(op, e.device());
      if (settings_.clock == Clock::wall) {
        for (const ExchangeRecord& x : r.exchanges)
          recorded.exchanges.push_back(
              {std::string(x.name), x.what, x.bytes, {x.begin->time_s(), x.end->time_s()}});
      }
      run.ops.push_back(recorded);
    }
  }

  void record_losses(const DeviceExecutor& e, RecordedRun& run) const {
    const auto losses = control_.stopped() ? std::vector<float>{} : e.losses();
    const Placement& placement = plan_.program.placement;
    const auto last = static_cast<std::uint32_t>(placement.stages()) - 1;
    for (std::uint32_t k = 0; k < losses.size(); ++k) {
      if (placement.device_of(last, k) == e.device()) run.losses.push_back({k, losses[k]});
    }
  }

  std::uint32_t version_of(const Op& op, int device) const {
    const Program& program = plan_.program;
    std::uint32_t own = program.version(op);
    if (lone_updates_.empty()) return own;
    const auto replica = static_cast<std::uint32_t>(program.placement.replica_of(device));
    for (const LoneUpdate& update : lone_updates_)
      if (update.replica == replica && own-- == 0) return update.version;
    throw InternalBug("an update of a replica is asked for that was not made");
  }

  void record_memory(const DeviceExecutor& e, RecordedRun& run) const {
    const MemoryPeak peak = e.ledger().peak();
    RecordedDevice device{e.device(), peak.use, peak.at_s};
    if (peak.op != kNoOp) device.peak_op = plan_.program.ops[peak.op];
    const std::int64_t allocated = backend_->device(e.rank()).allocator_peak_bytes();
    if (allocated >= 0) device.allocator_peak_bytes = allocated;
    run.devices.push_back(device);
  }

  const RunPlan& plan_;
  DependencyTable table_;
  const RunOptions& options_;
  RunSettings settings_;
  std::shared_ptr<StallReport> stall_ = std::make_shared<StallReport>();
  RunControl control_;
  Watched watch_;
  Group& group_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<ParameterServer> server_;
  std::vector<LoneUpdate> lone_updates_;
  std::vector<std::unique_ptr<DeviceExecutor>> executors_;
};

void append(RecordedRun& to, RecordedRun part) {
  to.ops.insert(to.ops.end(), part.ops.begin(), part.ops.end());
  to.devices.insert(to.devices.end(), part.devices.begin(), part.devices.end());
  to.losses.insert(to.losses.end(), part.losses.begin(), part.losses.end());
}

/// Sorts losses by microbatch. Mirrored devices have those of half the microbatches each; replicas
/// that divide microbatches have those of their parts, whose mean is that of the whole.
void sort_losses(RecordedRun& run) {
  std::map<std::uint32_t, std::vector<double>> parts;
  for (const RecordedLoss& l : run.losses) parts[l.microbatch].push_back(l.loss);
  run.losses.clear();
  for (const auto& [microbatch, losses] : parts)
    run.losses.push_back({microbatch, std::accumulate(losses.begin(), losses.end(), 0.0) /
                                          static_cast<double>(losses.size())});
}

/// Keeps, for each device, the memory of the rank that holds most.
void keep_largest_memory(RecordedRun& run) {
  std::map<int, RecordedDevice> largest;
  for (const RecordedDevice& d : run.devices) {
    const auto [known, added] = largest.try_emplace(d.device, d);
    if (!added && d.peak.total() > known->second.peak.total()) known->second = d;
  }
  run.devices.clear();
  for (const auto& [device, memory] : largest) run.devices.push_back(memory);
}

/// All ranks' parts on rank 0; elsewhere the own one.
RecordedRun gathered(RecordedRun mine, Recording head, Group& group) {
  if (group.size() == 1) return mine;
  head.runs = {mine};
  const auto parts = group.gather(recording_text(head));
  if (group.rank() != 0) return mine;
  for (std::size_t r = 1; r < parts.size(); ++r) {
    append(mine, parse_recording(parts[r], fmt::format("rank {}", r)).runs.at(0));
  }
  return mine;
}

/// The plan's weights as the reference computes them, on a fresh device of the same kind.
ReferenceResult reference_of(const RunPlan& plan, const RunOptions& options, RunSettings settings) {
  SingleProcess alone;
  RunControl control(0);
  const Watched watch(options, control);
  settings.clock = Clock::wall;
  RunPlan bare = plan;
  bare.channels.clear();
  auto backend = open_backend(options.backend, {bare, settings, control, alone, {0}});
  // The reference is the plan's own, whatever stages a test lets the executor run.
  return run_reference(plan, backend->device(0), make_stage);
}

/// Digests by stage and by the share of a rank that shares it: one of each rank with the same.
using StageDigests = std::map<std::pair<std::size_t, int>, std::vector<std::string>>;

StageDigests by_stage(const std::vector<std::string>& digests) {
  StageDigests measured;
  for (const std::string& lines : digests) {
    std::istringstream in(lines);
    in.exceptions(std::ios::badbit);  // no memory is not the end of the text
    std::size_t stage = 0;
    int share = 0;
    std::string hash;
    while (in >> stage >> share >> hash) measured[{stage, share}].push_back(hash);
  }
  return measured;
}

std::string digest_of_stages(const std::vector<std::string>& each) {
  return digest(fmt::format("{}", fmt::join(each, " ")));
}

/// None where the devices of a stage differ.
std::optional<std::string> digest_of_run(const std::vector<std::string>& digests) {
  std::vector<std::string> each;
  for (const auto& [stage, hashes] : by_stage(digests)) {
    if (std::ranges::adjacent_find(hashes, std::ranges::not_equal_to()) != hashes.end())
      return std::nullopt;
    each.push_back(hashes.front());
  }
  return digest_of_stages(each);
}

bool weights_equal(const RunPlan& plan, const ReferenceResult& reference,
                   const std::vector<std::string>& digests) {
  StageDigests measured = by_stage(digests);
  std::size_t part = 0;
  for (std::uint32_t s = 0; s < static_cast<std::uint32_t>(plan.program.placement.stages()); ++s) {
    for (const int share : shares_of_stage(plan, s)) {
      const std::string right = digest(reference.weights[part++]);
      const auto is_right = [&](const std::string& hash) { return hash == right; };
      const auto& here = measured[{s, share}];
      if (here.empty() || !std::ranges::all_of(here, is_right)) return false;
    }
  }
  return true;
}

/// Rank 0 compares; the others wait for it, as the next run begins together.
void check_weights(const RunPlan& plan, const RunOptions& options, const RunSettings& settings,
                   Group& group, const std::vector<std::string>& digests, RecordedRun& run) {
  std::future<void> compared;
  if (group.rank() == 0) {
    compared = std::async(std::launch::async, [&] {
      const ReferenceResult reference =
          reference_of(options.reference != nullptr ? *options.reference : plan, options, settings);
      run.weights_moved = reference.moved;
      run.weights_equal = weights_equal(plan, reference, digests);
    });
  }
  wait_for_all(group, options.settings.deadline_s, [&](double wait_s) {
    const bool done =
        !compared.valid() ||
        compared.wait_for(std::chrono::duration<double>(wait_s)) == std::future_status::ready;
    return Share{done, 0};
  });
  if (!compared.valid()) return;
  try {
    compared.get();
  } catch (const InputError& error) {  // the sequential run does not fit where the pipeline did
    say("penstock-run: the weights were not compared: {}\n", error.what());
  } catch (const SystemError& error) {  // nor does it on a GPU, which finds that out as it goes
    if (std::string_view(error.what()).find("out of memory") == std::string_view::npos) throw;
    say("penstock-run: the weights were not compared: {}\n", error.what());
  }
}

RecordedRun stopped(RecordedRun run, const SystemError& error) {
  run.complete = false;
  run.stopped_because = error.what();
  return run;
}

}  // namespace

std::string digest(const std::string& bytes) {
  std::uint64_t a = 14695981039346656037ULL, b = 0x9E3779B97F4A7C15ULL;
  for (const char c : bytes) {
    a = (a ^ static_cast<unsigned char>(c)) * 1099511628211ULL;  // FNV-1a
    b = (b + static_cast<unsigned char>(c) + 1) * 0xD6E8FEB86659FD93ULL;
    b ^= b >> 32;
  }
  return fmt::format("{:016x}{:016x}", a, b);
}

std::string weights_digest(const std::vector<std::string>& weights) {
  std::vector<std::string> each;
  for (const std::string& of_stage : weights) each.push_back(digest(of_stage));
  return digest_of_stages(each);
}

std::unique_ptr<Backend> open_backend(const std::string& name, const BackendRequest& request) {
  return name == "cuda" ? open_cuda_backend(request) : open_host_backend(request);
}

void require_wall_clock(const RunPlan& plan, const RunOptions& options) {
  if (waits_for_no_other(plan) && options.settings.clock == Clock::virtual_clock)
    throw InputError("--clock", "replicas that wait for no other run on a wall clock");
}

RecordedRun execute_plan(const RunPlan& stated, const RunOptions& given, Group& group,
                         Description* description) {
  require_wall_clock(stated, given);
  RunPlan plan = with_update_channels(stated);
  if (waits_for_no_other(plan)) {
    const std::vector<int> far = far_from_0(plan, group);  // before the plan is moved
    plan = with_server_channels(std::move(plan), far);
  }
  RunOptions options = given;
  if (!options.make_stage) options.make_stage = make_stage;
  if (options.settings.clock == Clock::virtual_clock) options.settings.pace = true;
  RecordedRun run;
  RunSettings same_bits;
  std::vector<std::string> digests;
  {
    LocalRun local(plan, options, group);
    if (description != nullptr) *description = local.describe();
    local.run();
    try {
      local.share_updates();
    } catch (const SystemError& error) {
      return stopped(local.record(), error);
    }
    run = local.record();
    if (!run.complete) return run;
    if (description != nullptr) *description = local.describe();  // what only a run shows, too
    try {
      same_bits = local.same_bits();
      plan.lone_updates = local.lone_updates();
      if (options.check_weights) digests = group.gather(local.digests());
      run = gathered(std::move(run), recording_of(plan, options), group);
      group.barrier();  // no connection ends before all have what they need
    } catch (const SystemError& error) {
      return stopped(std::move(run), error);
    }
  }
  sort_losses(run);
  keep_largest_memory(run);
  if (options.check_weights && group.rank() == 0) run.weights_digest = digest_of_run(digests);
  try {
    if (options.check_weights) check_weights(plan, options, same_bits, group, digests, run);
  } catch (const SystemError& error) {
    return stopped(std::move(run), error);
  }
  return run;
}

Recording recording_of(const RunPlan& plan, const RunOptions& options) {
  Recording r;
  r.name = plan.name;
  r.scenario = plan.scenario;
  r.backend = options.backend;
  r.clock = options.settings.clock == Clock::wall ? "wall" : "virtual";
  r.schedule = plan.program.schedule;
  r.transfers = to_string(plan.program.transfers);
  r.depth = plan.program.placement.depth();
  r.microbatches = plan.program.microbatches_per_update;
  r.batches = plan.program.batches;
  r.compute = std::string(compute_name(plan.compute));
  return r;
}

}  // namespace penstock

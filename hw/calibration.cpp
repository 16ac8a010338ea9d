// SPDX-License-Identifier: Apache-2.0
#include "hw/calibration.hpp"

#include "base/clock.hpp"
#include "base/error.hpp"
#include "hw/calibration_scope.hpp"
#include "hw/run_plan.hpp"
#include "hw/transformer_stage.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

namespace penstock {
namespace {

constexpr double kDeadline_s = 120;
constexpr int kMostForwards = 64;  // issued ahead of a message to keep the devices at work

double percentile(const std::vector<double>& sorted, double share) {
  const double at = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(at);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return std::lerp(sorted[below], sorted[above], at - static_cast<double>(below));
}

// --- what a stage works on ----------------------------------------------------------------------

/// Blocks of one device, given back at the end.
class Blocks {
 public:
  explicit Blocks(Device& device) : device_(device) {}
  ~Blocks() {
    for (const auto& [queue, block] : all_) device_.release(queue, block);
  }
  Blocks(const Blocks&) = delete;
  Blocks& operator=(const Blocks&) = delete;

  /// None for no bytes.
  Tensor tensor(std::int64_t bytes, Queue queue = kComputeQueue) {
    if (bytes == 0) return {};
    all_.emplace_back(queue, device_.allocate(queue, bytes));
    return {all_.back().second, 0};
  }
  /// Filled with numbers as they occur in a run: zeros take less time and power.
  Tensor filled(std::int64_t bytes) {
    const Tensor made = tensor(bytes);
    Math& math = device_.math();
    if (made) math.fill_uniform(bytes / math.element_bytes(), 1, all_.size(), made);
    return made;
  }

 private:
  Device& device_;
  std::vector<std::pair<Queue, Block*>> all_;
};

/// A stage on a device, with buffers for several microbatches.
class StageRun {
 public:
  StageRun(Device& device, const Stage& stage, const std::vector<float>& weights,
           const CalibrationRequest& request)
      : device_(device), stage_(stage), request_(request), blocks_(device) {
    make_weights(weights);
    for (int i = 0; i < request.rotation; ++i) slots_.push_back(make_slot());
  }

  /// Issues an op between two events of its own.
  void issue(OpKind kind, int slot) {
    if (events_.empty()) events_.push_back(device_.record(kComputeQueue));
    run_op(kind, static_cast<std::uint32_t>(slot));
    events_.push_back(device_.record(kComputeQueue));
  }
  /// Durations of the ops issued since the last call, seconds.
  std::vector<double> times() {
    std::vector<double> lengths;
    for (std::size_t i = 1; i < events_.size(); ++i)
      lengths.push_back(events_[i]->time_s() - events_[i - 1]->time_s());
    events_.clear();
    return lengths;
  }
  Device& device() { return device_; }

 private:
  void make_weights(const std::vector<float>& initial) {
    const std::int64_t n = stage_.sizes().parameters;
    Math& math = device_.math();
    const bool fp32 = math.element_bytes() == 4;
    const Tensor master = blocks_.tensor(4 * n);
    device_.upload(master, initial.data(), 4 * n);
    weights_ = fp32 ? master : blocks_.tensor(n * math.element_bytes());
    if (!fp32) math.round(n, master, weights_);
    gradients_ = blocks_.tensor(4 * n);
    math.zero(4 * n, gradients_);
    step_ = {master, master, fp32 ? Tensor{} : weights_, gradients_, {}, {}};
    if (request_.optimizer.kind == OptimizerSpec::Kind::sgd) return;
    step_.first_moment = blocks_.tensor(4 * n);
    step_.second_moment = blocks_.tensor(4 * n);
    math.zero(4 * n, step_.first_moment);
    math.zero(4 * n, step_.second_moment);
  }

  StageBuffers make_slot() {
    const StageSizes& s = stage_.sizes();
    StageBuffers b;
    b.weights = weights_;
    b.gradients = gradients_;
    b.input = blocks_.filled(s.input_bytes);
    b.output = blocks_.tensor(s.output_bytes);
    b.saved = blocks_.tensor(s.saved_bytes);
    b.saved_for_weight = blocks_.tensor(s.saved_for_weight_bytes);
    b.output_gradient = blocks_.filled(s.output_bytes);
    b.input_gradient = blocks_.tensor(s.input_bytes);
    b.kept = blocks_.tensor(s.kept_bytes);
    b.workspace =
        slots_.empty()
            ? blocks_.tensor(std::max(s.forward_workspace_bytes, s.backward_workspace_bytes))
            : slots_[0].workspace;
    if (s.output_bytes == 0) b.loss = blocks_.tensor(sizeof(float));
    return b;
  }

  void run_op(OpKind kind, std::uint32_t slot) {
    Math& math = device_.math();
    const StageBuffers& b = slots_[slot];
    switch (kind) {
      case OpKind::forward: return stage_.forward(math, b, slot);
      case OpKind::backward:
        stage_.backward_input(math, b, slot);
        return stage_.backward_weight(math, b, slot);
      case OpKind::backward_input: return stage_.backward_input(math, b, slot);
      case OpKind::backward_weight: return stage_.backward_weight(math, b, slot);
      case OpKind::reduce_grad: return;
      case OpKind::step: return step();
    }
  }

  void step() {
    const std::int64_t n = stage_.sizes().parameters;
    const OptimizerSpec& o = request_.optimizer;
    const double scale = 1.0 / request_.rotation;
    if (o.kind == OptimizerSpec::Kind::sgd)
      return device_.math().sgd_step(n, step_, {o.learning_rate, scale});
    const AdamwSettings settings{o.learning_rate, o.beta1,        o.beta2,
                                 o.epsilon,       o.weight_decay, scale};
    device_.math().adamw_step(n, step_, settings, ++steps_);
  }

  Device& device_;
  const Stage& stage_;
  const CalibrationRequest& request_;
  Blocks blocks_;
  Tensor weights_, gradients_;
  StepTensors step_;
  std::int64_t steps_ = 0;
  std::vector<StageBuffers> slots_;
  std::vector<Event> events_;
};

// --- ops ----------------------------------------------------------------------------------------

using Runs = std::vector<std::unique_ptr<StageRun>>;

/// Nobody goes on before everybody is here.
void align(const Runs& runs) {
  std::vector<Event> here;
  for (const auto& run : runs) here.push_back(run->device().record(kComputeQueue));
  for (const auto& run : runs) {
    for (const Event& event : here) run->device().wait(kComputeQueue, event);
  }
}

/// Times of every kind of op of a stage that runs on all these devices at once.
class OpTimes {
 public:
  OpTimes(const CalibrationRequest& request, Runs& runs, RunControl& control)
      : request_(request), runs_(runs), control_(control) {}

  void measure() {
    for (int i = 0; i < request_.warmup; ++i) round();
    times_.clear();
    worked_s_ = 0;
    while (!enough()) round();
  }
  std::map<OpKind, Sample> samples() const {
    std::map<OpKind, Sample> out;
    for (const auto& [kind, times] : times_) out[kind] = summarize_times(times);
    return out;
  }

 private:
  /// B and the pair of I and W use up what an F made, so each has its own.
  void round() {
    for (const OpKind kind : {OpKind::forward, OpKind::backward, OpKind::forward,
                              OpKind::backward_input, OpKind::backward_weight})
      phase(kind, request_.rotation);
    phase(OpKind::step, request_.rotation);
    control_.progress();
  }

  /// Every device runs `count` ops, back to back; all begin together.
  void phase(OpKind kind, int count) {
    align(runs_);
    for (int slot = 0; slot < count; ++slot) {
      for (const auto& run : runs_) run->issue(kind, slot);
    }
    for (const auto& run : runs_) {
      const auto lengths = run->times();
      times_[kind].insert(times_[kind].end(), lengths.begin(), lengths.end());
      if (run == runs_.front()) worked_s_ += std::reduce(lengths.begin(), lengths.end());
    }
  }

  bool enough() const {
    if (times_.empty()) return false;
    return std::ranges::all_of(times_, [&](const auto& entry) {
      const int n = static_cast<int>(entry.second.size());
      if (n < request_.min_repetitions) return false;
      return n >= request_.max_repetitions || worked_s_ >= request_.stage_s ||
             summarize_times(entry.second).spread() <= request_.spread;
    });
  }

  const CalibrationRequest& request_;
  Runs& runs_;
  RunControl& control_;
  std::map<OpKind, std::vector<double>> times_;
  double worked_s_ = 0;  // on the first device
};

// --- messages -----------------------------------------------------------------------------------

std::vector<Channel> channels_of(int workers) {
  std::vector<Channel> channels;
  for (const TrafficPattern traffic : scope::kAllTraffic) {
    if (!scope::possible(traffic, workers)) continue;
    const scope::Flow flow = scope::flows_of(traffic).back();
    channels.push_back({flow.source, flow.destination, flow.backward, 0, 0});
  }
  return channels;
}

int channel_of(const std::vector<Channel>& channels, const scope::Flow& flow) {
  const auto found = std::ranges::find_if(channels, [&](const Channel& c) {
    return c.source == flow.source && c.destination == flow.destination &&
           c.backward == flow.backward;
  });
  return static_cast<int>(found - channels.begin());
}

/// Messages of one size over one channel, on several blocks in turn.
class MessageRun {
 public:
  MessageRun(Backend& backend, int channel, const scope::Flow& flow, std::int64_t bytes,
             int rotation)
      : sender_(backend.sending(channel)),
        receiver_(backend.receiving(channel)),
        bytes_(bytes),
        from_(backend.device(flow.source)),
        to_(backend.device(flow.destination)) {
    for (int i = 0; i < rotation; ++i) {
      out_.push_back(from_.filled(bytes));
      in_.push_back(to_.tensor(bytes, receiver_.queue()));
    }
  }

  /// Posts the receive and sends once `ready` has fired.
  void send(const Event& ready, std::uint32_t number) {
    const std::size_t slot = number % out_.size();
    const Op op{number, 0, OpKind::forward, Op::sends};
    received_ = receiver_.receive(nullptr, const_cast<Block*>(in_[slot].block), bytes_, op);
    sent_ = sender_.send(ready, out_[slot].block, bytes_, op);
  }
  double arrived_s() { return received_.arrived->time_s(); }
  double departed_s() { return sent_.departed->time_s(); }
  /// The block is free again.
  void settle() { sent_.delivered->time_s(); }

 private:
  SendingEnd& sender_;
  ReceivingEnd& receiver_;
  std::int64_t bytes_;
  Blocks from_, to_;
  std::vector<Tensor> out_, in_;
  ReceivingEnd::Received received_;
  SendingEnd::Sent sent_;
};

// --- everything ---------------------------------------------------------------------------------

void check(const CalibrationRequest& r) {
  std::vector<std::string> wrong;
  const auto need = [&](bool holds, std::string what) {
    if (!holds) wrong.push_back(std::move(what));
  };
  const auto within = [&](const char* key, auto value, auto least, auto most) {
    need(value >= least && value <= most,
         fmt::format("'{}' must be from {} to {}, got {}", key, least, most, value));
  };
  within("workers", r.workers, 1, 4096);
  within("rotation", r.rotation, 1, 1000);
  within("warmup", r.warmup, 0, 1'000'000);
  within("min_repetitions", r.min_repetitions, 1, 1'000'000);
  within("max_repetitions", r.max_repetitions, r.min_repetitions, 1'000'000);
  within("stage_s", r.stage_s, 0.0, 1e9);
  within("spread", r.spread, 0.0, 1e6);
  need(!r.microbatch_sizes.empty() && std::ranges::min(r.microbatch_sizes) >= 1,
       "'microbatch_sizes' must list sizes of at least 1");
  need(!r.recompute.empty(), "'recompute' must not be empty");
  need(r.layer_counts.size() >= 2 && std::ranges::min(r.layer_counts) >= 1 &&
           std::ranges::max(r.layer_counts) > std::ranges::min(r.layer_counts),
       "'layer_counts' must list two different counts, at least: their difference is a layer");
  need(r.message_bytes.empty() || std::ranges::min(r.message_bytes) >= 1,
       "'message_bytes' must be at least 1");
  if (wrong.empty()) {
    const std::string size = why_too_large(r.model, std::ranges::max(r.microbatch_sizes),
                                           std::ranges::max(r.layer_counts));
    const std::string model = size.empty() ? why_not_executable(r.model) : size;
    need(model.empty(), model);
  }
  if (!wrong.empty())
    throw InputError("calibration request", fmt::format("{}", fmt::join(wrong, "; ")));
}

/// A stage of the model and the weights it begins with, made once for all devices.
struct WeighedStage {
  std::unique_ptr<Stage> stage;
  std::vector<float> weights;

  explicit WeighedStage(std::unique_ptr<Stage> made)
      : stage(std::move(made)), weights(static_cast<std::size_t>(stage->sizes().parameters)) {
    stage->initialize(weights);
  }
};

class Calibration {
 public:
  Calibration(const CalibrationRequest& request, const CalibrationRig& rig)
      : request_(request), rig_(rig), control_(kDeadline_s) {
    check(request);
    plan_.name = "calibration";
    plan_.program.placement = loop_placement(request.workers, 1, 1);
    for (int d = 0; d < request.workers; ++d) plan_.program.ops.end_device();
    plan_.channels = channels_of(request.workers);
    plan_.costs.resize(static_cast<std::size_t>(request.workers));
    plan_.compute = Compute::transformer;
    plan_.model = request.model;
    plan_.layers.assign(static_cast<std::size_t>(request.workers), request.layer_counts[0]);
    plan_.microbatch_size = request.microbatch_sizes[0];
    plan_.optimizer = request.optimizer;
    plan_.training.seed = request.seed;
    settings_.precision = request.precision;
    settings_.link = request.link;
    settings_.partitions = request.partitions;
    settings_.deadline_s = kDeadline_s;
    settings_.must_partition = true;
    result_ = rig.former;
    result_.request = request;
  }

  CalibrationResult run() {
    const BackendRequest wanted{plan_, settings_, control_, group_,
                                group_.devices_of(0, request_.workers)};
    backend_ = rig_.open(wanted);
    backend_->start();
    result_.machine = backend_->describe();
    if (const auto it = result_.machine.find("backend"); it != result_.machine.end())
      result_.backend = it->second;
    count_total();
    for (const StageShape& shape : scope::shapes(request_)) measure_stage(shape);
    for (const int load : scope::loads(request_)) measure_links(load);
    backend_.reset();
    return std::move(result_);
  }

 private:
  void count_total() {
    total_ = static_cast<int>(scope::loads(request_).size() *
                              (scope::shapes(request_).size() +
                               scope::traffic(request_).size() * request_.message_bytes.size()));
  }
  void report(const std::string& what) {
    if (rig_.progress) rig_.progress(done_, total_, what);
    ++done_;
  }
  void keep() const {
    if (rig_.keep) rig_.keep(result_);
  }
  bool time_is_up() const { return rig_.budget_s > 0 && steady_s() - began_s_ >= rig_.budget_s; }

  Runs runs_of(const WeighedStage& weighed, int count) {
    Runs runs;
    for (int d = 0; d < count; ++d)
      runs.push_back(std::make_unique<StageRun>(backend_->device(d), *weighed.stage,
                                                weighed.weights, request_));
    return runs;
  }

  std::vector<int> missing_loads(const StageShape& shape) const {
    std::vector<int> missing = scope::loads(request_);
    std::erase_if(missing, [&](int load) { return scope::has_stage(result_, shape, load); });
    return missing;
  }

  void measure_stage(const StageShape& shape) {
    const std::vector<int> missing = missing_loads(shape);
    done_ += static_cast<int>(scope::loads(request_).size() - missing.size());
    if (missing.empty() || time_is_up()) return;
    const WeighedStage weighed(rig_.stage(request_, shape));
    if (std::ranges::find(result_.stages, shape, &StageMeasurement::stage) == result_.stages.end())
      result_.stages.push_back({shape, weighed.stage->sizes()});
    for (const int load : missing) measure_ops(weighed, shape, load);
  }

  void measure_ops(const WeighedStage& weighed, const StageShape& shape, int load) {
    report(fmt::format("{} stage of {} layers, microbatches of {}, {} at work",
                       kStageRoleNames[static_cast<int>(shape.role)], shape.layers,
                       shape.microbatch_size, load));
    Runs runs = runs_of(weighed, load);
    OpTimes times(request_, runs, control_);
    times.measure();
    for (const auto& [kind, sample] : times.samples())
      result_.ops.push_back({shape, load, kind, sample});
    keep();
  }

  void measure_links(int load) {
    if (scope::has_links(result_, load) || time_is_up()) return;
    std::erase_if(result_.links, [&](const LinkMeasurement& m) { return m.load == load; });
    const WeighedStage weighed(rig_.stage(request_, scope::shapes(request_)[0]));
    Runs busy = load > 1 ? runs_of(weighed, load) : Runs{};
    for (const TrafficPattern t : scope::traffic(request_)) {
      for (const std::int64_t bytes : request_.message_bytes) {
        report(fmt::format("messages of {} bytes, {}{}", bytes, kTrafficNames[static_cast<int>(t)],
                           load > 1 ? ", under load" : ""));
        result_.links.push_back(measure_messages(t, bytes, load, busy));
      }
    }
    keep();
  }

  LinkMeasurement measure_messages(TrafficPattern traffic, std::int64_t bytes, int load,
                                   Runs& busy) {
    std::vector<std::unique_ptr<MessageRun>> messages;
    for (const scope::Flow& flow : scope::flows_of(traffic)) {
      messages.push_back(std::make_unique<MessageRun>(*backend_, channel_of(plan_.channels, flow),
                                                      flow, bytes, request_.rotation));
    }
    std::vector<double> first, last;
    int forwards = 1;
    for (int i = -request_.warmup; !enough(first, last); ++i) {
      const auto [begin, end, work_s] = exchange(messages, busy, forwards);
      if (work_s > 0) {  // as many as keep the devices at work until the last message is there
        forwards = std::clamp(static_cast<int>(std::ceil(1.5 * end * forwards / work_s)), 1,
                              kMostForwards);
      }
      if (i < 0) continue;
      first.push_back(begin);
      last.push_back(end);
    }
    return {traffic, bytes, load, summarize_times(first), summarize_times(last)};
  }

  bool enough(const std::vector<double>& first, const std::vector<double>& last) const {
    const int n = static_cast<int>(last.size());
    if (n < request_.min_repetitions) return false;
    return n >= request_.max_repetitions ||
           std::max(summarize_times(first).spread(), summarize_times(last).spread()) <=
               request_.spread;
  }

  struct Exchange {
    double first_s, last_s;  ///< until the first, the last arrival
    double work_s;           ///< that the first device computed meanwhile
  };

  /// One message per flow, all at once, while the devices of `busy` compute.
  Exchange exchange(std::vector<std::unique_ptr<MessageRun>>& messages, Runs& busy, int forwards) {
    for (int d = 0; d < request_.workers; ++d) backend_->device(d).finish();
    if (!busy.empty()) align(busy);
    const Event ready = backend_->device(0).record(kComputeQueue);
    for (int i = 0; i < forwards; ++i) {
      for (const auto& run : busy) run->issue(OpKind::forward, i % request_.rotation);
    }
    for (const auto& message : messages) message->send(ready, number_);
    ++number_;
    control_.progress();
    double begin = messages[0]->departed_s(), first = 0, last = 0;
    for (const auto& message : messages) begin = std::min(begin, message->departed_s());
    for (const auto& message : messages) {
      const double length = message->arrived_s() - begin;
      first = first == 0 ? length : std::min(first, length);
      last = std::max(last, length);
    }
    for (const auto& message : messages) message->settle();
    double work = 0;
    for (const auto& run : busy) {
      work = 0;
      for (const double t : run->times()) work += t;
    }
    return {first, last, work};
  }

  const CalibrationRequest& request_;
  const CalibrationRig& rig_;
  RunControl control_;
  SingleProcess group_;
  RunPlan plan_;
  RunSettings settings_;
  std::unique_ptr<Backend> backend_;
  CalibrationResult result_;
  double began_s_ = steady_s();
  int done_ = 0, total_ = 0;
  std::uint32_t number_ = 0;
};

}  // namespace

Sample summarize_times(std::vector<double> times_s) {
  std::ranges::sort(times_s);
  return {static_cast<int>(times_s.size()), percentile(times_s, 0.5), percentile(times_s, 0.05),
          percentile(times_s, 0.95)};
}

std::unique_ptr<Stage> calibrated_stage(const CalibrationRequest& request,
                                        const StageShape& shape) {
  const std::string why = why_not_executable(request.model);
  if (!why.empty()) throw InputError("calibration request", why);
  const bool first = shape.role == StageRole::first;
  const TransformerPart part{first ? 0 : 1, shape.layers, first, shape.role == StageRole::last};
  return std::make_unique<TransformerStage>(
      request.model, part, shape.microbatch_size, shape.recompute,
      request.precision == Precision::bf16 ? 2 : 4, TrainingSpec{.seed = request.seed});
}

CalibrationResult calibrate(const CalibrationRequest& request, const CalibrationRig& rig) {
  return Calibration(request, rig).run();
}

}  // namespace penstock

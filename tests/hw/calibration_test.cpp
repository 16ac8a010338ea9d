// SPDX-License-Identifier: Apache-2.0
// Calibration on devices and links whose times are scripted: what is measured is what was scripted,
// the fits find the constants behind it, and a scenario with the profile costs the medians again.
#include "hw/calibration.hpp"

#include "base/error.hpp"
#include "validate/profile.hpp"
#include "hw/math.hpp"
#include "scenarios/scenario.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>

namespace penstock::calibration_test {
namespace {

// --- a machine with a script --------------------------------------------------------------------

struct Script {
  double latency_s = 20e-6, bytes_per_s = 5e9;
  double noise = 0;  // of every op, uniform, relative
  double slowdown_per_worker = 0.1;
  bool half_duplex = false, shared_port = false;
};

/// What all devices know together.
struct Machine {
  Script script;
  std::map<int, int> blocks = {};  // live ones per device
  std::map<std::pair<int, int>, double> link_free_s = {};
  double latest_s = 0;  // whoever waited for everything is that late
  unsigned state = 1;

  double noisy(double seconds) {
    state = state * 1664525 + 1013904223;
    return seconds * (1 + script.noise * (2.0 * (state >> 8) / (1 << 24) - 1));
  }
  int working() const {
    return static_cast<int>(
        std::ranges::count_if(blocks, [](const auto& entry) { return entry.second > 0; }));
  }
  int live() const {
    int sum = 0;
    for (const auto& [device, count] : blocks) sum += count;
    return sum;
  }
};

class ScriptedEvent : public EventState {
 public:
  explicit ScriptedEvent(double time_s) : time_s_(time_s) {}
  double time_s() override { return time_s_; }
  bool fired() override { return true; }

 private:
  double time_s_;
};

/// No arithmetic: a stage says how long it takes.
class ScriptedMath : public Math {
 public:
  ScriptedMath(Machine& machine, double& now_s) : machine_(machine), now_s_(now_s) {}
  void work(double seconds) {
    now_s_ += machine_.noisy(seconds) *
              (1 + machine_.script.slowdown_per_worker * (machine_.working() - 1));
  }

  int element_bytes() const override { return 4; }
  void gemm(const Gemm&, Tensor, Tensor, Tensor) override { work(1e-3); }
  void layer_norm(std::int64_t, std::int64_t, Tensor, Tensor, Tensor, Tensor, Tensor,
                  Tensor) override {}
  void layer_norm_backward(std::int64_t, std::int64_t, Tensor, Tensor, Tensor, Tensor, Tensor,
                           Tensor, Tensor) override {}
  void layer_norm_backward_weight(std::int64_t, std::int64_t, Tensor, Tensor, Tensor, Tensor,
                                  Tensor, Tensor) override {}
  void attention_softmax(const AttentionRows&, Tensor) override { work(0.5e-3); }
  void attention_softmax_backward(const AttentionRows&, Tensor, Tensor) override {}
  void attention(const Attention&, Tensor, Tensor, Tensor) override {}
  void attention_backward(const Attention&, Tensor, Tensor, Tensor, Tensor, Tensor,
                          Tensor) override {}
  void gelu(std::int64_t, Tensor, Tensor) override {}
  void gelu_backward(std::int64_t, Tensor, Tensor, Tensor) override {}
  void add_bias(std::int64_t, std::int64_t, Tensor, Tensor, Tensor) override {}
  void bias_backward(std::int64_t, std::int64_t, Tensor, Tensor) override {}
  void add_tensors(std::int64_t, Tensor, Tensor, Tensor) override {}
  void blend(std::int64_t, float, Tensor, float, Tensor, Tensor) override {}
  void accumulate(std::int64_t, Tensor, Tensor) override {}
  void copy(std::int64_t, Tensor, Tensor) override {}
  void zero(std::int64_t, Tensor) override {}
  void round(std::int64_t, Tensor, Tensor) override {}
  void fill_uniform(std::int64_t, std::uint64_t, std::uint64_t, Tensor) override {}
  void generate_tokens(const TokenSource&, Tensor, Tensor) override {}
  void embedding(std::int64_t, std::int64_t, std::int64_t, Tensor, Tensor, Tensor,
                 Tensor) override {}
  void embedding_backward(std::int64_t, std::int64_t, std::int64_t, Tensor, Tensor, Tensor,
                          Tensor) override {}
  void cross_entropy(std::int64_t, std::int64_t, Tensor, Tensor, Tensor, Tensor) override {}
  void cross_entropy_backward(std::int64_t, std::int64_t, Tensor, Tensor) override {}
  void row_maxima(std::int64_t, std::int64_t, Tensor, Tensor) override {}
  void maximum(std::int64_t, Tensor, Tensor) override {}
  void vocabulary_sums(std::int64_t, std::int64_t, Tensor, Tensor, Tensor, Tensor,
                       Tensor) override {}
  void vocabulary_loss(std::int64_t, Tensor, Tensor, Tensor, Tensor) override {}
  void vocabulary_backward(std::int64_t, std::int64_t, Tensor, Tensor, Tensor, Tensor) override {}
  void choose_largest(const RowCopies&, Tensor) override {}
  void sort_copies(const RowCopies&, Tensor) override {}
  void spread_rows(const RowCopies&, Tensor, Tensor, Tensor) override {}
  void gather_copies(const RowCopies&, Tensor, Tensor, Tensor, Tensor) override {}
  void gather_copies_backward(const RowCopies&, Tensor, Tensor, Tensor) override {}
  void squared_error(std::int64_t, Tensor, Tensor, Tensor, Tensor) override {}
  void clip(std::int64_t, float, Tensor) override {}
  void sgd_step(std::int64_t n, const StepTensors&, const SgdSettings&) override {
    work(2e-6 + static_cast<double>(n) * 1e-9);
  }
  void adamw_step(std::int64_t n, const StepTensors&, const AdamwSettings&, std::int64_t) override {
    work(2e-6 + static_cast<double>(n) * 3e-9);
  }
  void muon_direction(std::int64_t, const StepTensors&, const MuonSettings&, Tensor) override {}
  void muon_step(std::int64_t, const StepTensors&, const MuonSettings&, Tensor) override {}
  void rotated_step(std::int64_t, std::int64_t, const StepTensors&, Tensor, Tensor,
                    const AdamwSettings&, std::int64_t) override {}

 private:
  Machine& machine_;
  double& now_s_;
};

class ScriptedDevice : public Device {
 public:
  ScriptedDevice(Machine& machine, int number)
      : machine_(machine), number_(number), math_(machine, now_s_) {}

  Event record(Queue) override {
    machine_.latest_s = std::max(machine_.latest_s, now_s_);
    return std::make_shared<ScriptedEvent>(now_s_);
  }
  void wait(Queue, const Event& event) override { now_s_ = std::max(now_s_, event->time_s()); }
  Block* allocate(Queue, std::int64_t bytes) override {
    ++machine_.blocks[number_];
    return new Block{nullptr, bytes};
  }
  void release(Queue, Block* block) override {
    --machine_.blocks[number_];
    delete block;
  }
  void pace(Queue, const Event&, double, double) override {}
  void upload(Tensor, const void*, std::int64_t) override {}
  void download(void*, Tensor, std::int64_t) override {}
  Math& math() override { return math_; }
  void finish() override { now_s_ = machine_.latest_s; }
  int issue_ahead() const override { return 8; }
  int receive_ahead() const override { return 8; }
  std::int64_t allocator_peak_bytes() override { return -1; }

 private:
  Machine& machine_;
  int number_;
  double now_s_ = 0;
  ScriptedMath math_;
};

/// Both ends of a channel: a FIFO link that may be shared with other channels.
class ScriptedChannel : public SendingEnd, public ReceivingEnd {
 public:
  ScriptedChannel(Machine& machine, const Channel& channel)
      : machine_(machine), channel_(channel) {}
  Queue queue() const override { return 1; }

  Sent send(const Event& ready, const Block*, std::int64_t bytes, const Op&) override {
    double& free_s = machine_.link_free_s[link()];
    const double departs_s = std::max(ready->time_s(), free_s);
    const double wire_s = machine_.noisy(static_cast<double>(bytes) / machine_.script.bytes_per_s);
    free_s = departs_s + wire_s;
    arrives_->at_s = departs_s + wire_s + machine_.script.latency_s;
    machine_.latest_s = std::max(machine_.latest_s, arrives_->at_s);
    const auto departed = std::make_shared<ScriptedEvent>(departs_s);
    return {departed, arrives_};
  }
  Received receive(const Event&, Block*, std::int64_t, const Op&) override {
    arrives_ = std::make_shared<Arrival>();
    return {arrives_, arrives_};
  }

 private:
  struct Arrival : EventState {
    double time_s() override { return at_s; }
    bool fired() override { return true; }
    double at_s = 0;
  };
  std::pair<int, int> link() const {
    if (machine_.script.shared_port) return {channel_.source, -1};
    if (!machine_.script.half_duplex) return {channel_.source, channel_.destination};
    return std::minmax(channel_.source, channel_.destination);
  }

  Machine& machine_;
  Channel channel_;
  std::shared_ptr<Arrival> arrives_;
};

class ScriptedBackend : public Backend {
 public:
  ScriptedBackend(Machine& machine, const RunPlan& plan, const std::vector<int>& devices) {
    for (const int d : devices) devices_.push_back(std::make_unique<ScriptedDevice>(machine, d));
    for (const Channel& c : plan.channels)
      channels_.push_back(std::make_unique<ScriptedChannel>(machine, c));
  }
  Device& device(int device) override { return *devices_.at(static_cast<std::size_t>(device)); }
  Device& beside(int number) override { return device(number); }
  SendingEnd& sending(int c) override { return *channels_.at(static_cast<std::size_t>(c)); }
  ReceivingEnd& receiving(int c) override { return *channels_.at(static_cast<std::size_t>(c)); }
  void start() override {}
  Description describe() const override {
    return {{"backend", "scripted"}, {"processor", "a \"script\""}, {"memory_bytes", "8589934592"}};
  }

 private:
  std::vector<std::unique_ptr<ScriptedDevice>> devices_;
  std::vector<std::unique_ptr<ScriptedChannel>> channels_;
};

// --- a stage with a script ----------------------------------------------------------------------

double forward_s(const StageShape& s) {
  const auto size = static_cast<double>(s.microbatch_size);
  return 50e-6 + s.layers * 1e-3 * size + (s.role == StageRole::first ? 0.2e-3 * size : 0) +
         (s.role == StageRole::last ? 0.7e-3 * size : 0);
}

TransformerSpec tiny() {
  TransformerSpec t;
  t.name = "tiny";
  t.num_layers = 6;
  t.hidden_size = 16;
  t.num_attention_heads = t.num_query_groups = 2;
  t.ffn_hidden_size = 64;
  t.vocab_size = 32;
  t.seq_length = 8;
  t.tie_embeddings = false;
  t.compute_type = "fp32";
  return t;
}

/// Its parameters are those of the model; its bytes are those of the real stage.
class ScriptedStage : public Stage {
 public:
  ScriptedStage(const CalibrationRequest& request, const StageShape& shape)
      : shape_(shape), real_(calibrated_stage(request, shape)) {}
  const StageSizes& sizes() const override { return real_->sizes(); }
  void initialize(std::span<float>) const override { ++initialized; }
  void forward(Math& math, const StageBuffers&, std::uint32_t) const override { work(math, 1); }
  void backward_input(Math& math, const StageBuffers&, std::uint32_t) const override {
    work(math, 1.5);
  }
  void backward_weight(Math& math, const StageBuffers&, std::uint32_t) const override {
    work(math, 0.75);
  }
  static inline int initialized = 0;  ///< calls of initialize(), of all stages

 private:
  void work(Math& math, double times) const {
    dynamic_cast<ScriptedMath&>(math).work(times * forward_s(shape_));
  }
  StageShape shape_;
  std::unique_ptr<Stage> real_;
};

CalibrationRequest request() {
  CalibrationRequest r;
  r.model = tiny();
  r.microbatch_sizes = {1, 4};
  r.workers = 4;
  return r;
}

CalibrationResult measure(const CalibrationRequest& asked, Machine& machine,
                          CalibrationRig rig = {}) {
  rig.open = [&](const BackendRequest& r) {
    return std::make_unique<ScriptedBackend>(machine, r.plan, r.devices);
  };
  rig.stage = [](const CalibrationRequest& r, const StageShape& shape) {
    return std::make_unique<ScriptedStage>(r, shape);
  };
  return calibrate(asked, rig);
}

double ratio_of(OpKind kind) {
  switch (kind) {
    case OpKind::forward: return 1;
    case OpKind::backward: return 2.25;
    case OpKind::backward_input: return 1.5;
    default: return 0.75;
  }
}

// --- measuring ----------------------------------------------------------------------------------

TEST(Calibration, MeasuresEveryOpAloneAndUnderLoad) {
  Machine machine;
  const CalibrationResult result = measure(request(), machine);
  // 2 sizes x (2 middle + first + last) x 2 loads x (F, B, I, W, STEP).
  EXPECT_EQ(result.ops.size(), 2U * 4 * 2 * 5);
  for (const OpMeasurement& m : result.ops) {
    if (m.kind == OpKind::step) continue;
    const double slower = m.load == 1 ? 1 : 1.3;
    EXPECT_NEAR(m.time.median_s, forward_s(m.stage) * ratio_of(m.kind) * slower, 1e-9);
    EXPECT_GE(m.time.n, request().min_repetitions);
    EXPECT_LT(m.time.spread(), 1e-6);
  }
  EXPECT_EQ(result.backend, "scripted");
  EXPECT_EQ(machine.live(), 0) << "all memory is given back";
}

TEST(Calibration, WeightsAreMadeOncePerShapeWhateverTheDevices) {
  Machine machine;
  ScriptedStage::initialized = 0;
  measure(request(), machine);
  EXPECT_EQ(ScriptedStage::initialized, 2 * 4 + 2) << "8 shapes, and the messages of 2 loads";
}

TEST(Calibration, WhatWasKeptOfACutOffOneIsNotMeasuredAgain) {
  std::vector<CalibrationResult> kept;
  CalibrationRig rig;
  rig.keep = [&](const CalibrationResult& so_far) { kept.push_back(so_far); };
  Machine machine;
  const CalibrationResult whole = measure(request(), machine, rig);
  EXPECT_EQ(kept.size(), 8U * 2 + 2);
  EXPECT_EQ(kept[4].ops.size(), 5U * 5);
  EXPECT_FALSE(is_complete(kept[4]));
  EXPECT_FALSE(is_complete(kept[16])) << "messages under load are missing";
  EXPECT_TRUE(is_complete(whole));

  CalibrationRig again;
  again.former = kept[4];
  int measurements = 0;
  again.progress = [&](int, int, const std::string&) { ++measurements; };
  Machine other;
  const CalibrationResult rest = measure(request(), other, again);
  EXPECT_EQ(measurements, 8 * 2 - 5 + 6 * 5 * 2);
  EXPECT_EQ(rest.ops.size(), whole.ops.size());
  EXPECT_EQ(rest.stages.size(), whole.stages.size());
  EXPECT_TRUE(is_complete(rest));
}

TEST(Calibration, BeginsNothingAfterItsBudget) {
  CalibrationRig rig;
  rig.budget_s = 1e-9;
  Machine machine;
  const CalibrationResult none = measure(request(), machine, rig);
  EXPECT_TRUE(none.ops.empty());
  EXPECT_FALSE(is_complete(none));
}

TEST(Calibration, MeasuresMessagesAndWhatTheyShare) {
  Machine machine;
  const CalibrationResult result = measure(request(), machine);
  EXPECT_EQ(result.links.size(), 6U * 5 * 2);
  for (const LinkMeasurement& m : result.links) {
    const double wire = static_cast<double>(m.bytes) / 5e9;
    const double flows =
        m.traffic == TrafficPattern::same_way ? 2 : 1;  // FIFO on a link of their own
    EXPECT_NEAR(m.first.median_s, 20e-6 + wire, 1e-9);
    EXPECT_NEAR(m.last.median_s, 20e-6 + flows * wire, 1e-9);
  }
}

TEST(Calibration, RepeatsUntilTheSpreadIsSmallOrTheMaximumIsReached) {
  CalibrationRequest asked = request();
  asked.spread = 0.05;
  asked.max_repetitions = 60;
  asked.stage_s = 1e9;
  Machine noisy{.script = {.noise = 0.2}};
  for (const OpMeasurement& m : measure(asked, noisy).ops) {
    EXPECT_GE(m.time.n, 60) << "the spread never gets small";
  }
  Machine quiet;
  for (const OpMeasurement& m : measure(asked, quiet).ops) EXPECT_LT(m.time.n, 500);
}

TEST(Calibration, LongOpsAreRepeatedNoMoreThanNeeded) {
  CalibrationRequest asked = request();
  asked.stage_s = 0.05;
  Machine noisy{.script = {.noise = 0.2}};
  for (const OpMeasurement& m : measure(asked, noisy).ops) {
    EXPECT_GE(m.time.n, asked.min_repetitions);
    EXPECT_LE(m.time.n, 48 * m.load) << "8 rounds of two phases of F";
  }
}

TEST(Calibration, OneWorkerHasNeitherLoadNorLinks) {
  CalibrationRequest asked = request();
  asked.workers = 1;
  Machine machine;
  const CalibrationResult result = measure(asked, machine);
  EXPECT_TRUE(result.links.empty());
  for (const OpMeasurement& m : result.ops) EXPECT_EQ(m.load, 1);
  EXPECT_NO_THROW(fit_profile(result));
}

TEST(Calibration, ReportsProgressUpToTheTotal) {
  Machine machine;
  std::vector<int> seen;
  int announced = 0;
  CalibrationRig rig;
  rig.open = [&](const BackendRequest& r) {
    return std::make_unique<ScriptedBackend>(machine, r.plan, r.devices);
  };
  rig.stage = [](const CalibrationRequest& r, const StageShape& shape) {
    return std::make_unique<ScriptedStage>(r, shape);
  };
  rig.progress = [&](int done, int total, const std::string&) {
    seen.push_back(done);
    announced = total;
  };
  calibrate(request(), rig);
  ASSERT_FALSE(seen.empty());
  EXPECT_EQ(seen.back(), announced - 1);
  EXPECT_EQ(static_cast<int>(seen.size()), announced);
}

TEST(Calibration, RequestsWithoutSenseAreRefused) {
  Machine machine;
  const auto error = [&](auto change) -> std::string {
    CalibrationRequest asked = request();
    change(asked);
    try {
      measure(asked, machine);
    } catch (const InputError& e) {
      return e.what();
    }
    return "no error";
  };
  EXPECT_NE(error([](auto& r) {
              r.layer_counts = {2, 2};
            }).find("two different counts"),
            std::string::npos);
  EXPECT_NE(error([](auto& r) { r.microbatch_sizes = {0}; }).find("'microbatch_sizes'"),
            std::string::npos);
  EXPECT_NE(error([](auto& r) { r.workers = 0; }).find("'workers'"), std::string::npos);
  EXPECT_NE(error([](auto& r) { r.min_repetitions = 200; }).find("'max_repetitions'"),
            std::string::npos);
  EXPECT_NE(error([](auto& r) { r.model.hidden_size = 5; }).find("multiple of num_attention_heads"),
            std::string::npos);
  EXPECT_NE(error([](auto& r) { r.model.hidden_size = 0; }).find("a size of the model is 0"),
            std::string::npos);
  EXPECT_NE(error([](auto& r) {
              r.model.vocab_size = r.model.hidden_size = 1 << 24;
            }).find("larger than any machine"),
            std::string::npos);
  const std::string all = error([](auto& r) {
    r.warmup = 2'000'000'000;
    r.rotation = 0;
  });
  EXPECT_NE(all.find("'warmup' must be from 0 to 1000000, got 2000000000"), std::string::npos);
  EXPECT_NE(all.find("'rotation'"), std::string::npos) << "all at once";
}

TEST(CalibrationSamples, AreMedianAndPercentilesOfTheTimes) {
  std::vector<double> times;
  for (int i = 100; i >= 0; --i) times.push_back(i);
  const Sample s = summarize_times(times);
  EXPECT_EQ(s.n, 101);
  EXPECT_DOUBLE_EQ(s.median_s, 50);
  EXPECT_DOUBLE_EQ(s.p5_s, 5);
  EXPECT_DOUBLE_EQ(s.p95_s, 95);
  EXPECT_DOUBLE_EQ(s.spread(), 1.8);
  EXPECT_DOUBLE_EQ(summarize_times({1, 2}).median_s, 1.5);
}

// --- files --------------------------------------------------------------------------------------

TEST(CalibrationFile, KeepsEverything) {
  CalibrationRequest asked = request();
  asked.recompute = {Recompute::none, Recompute::full};
  asked.optimizer.kind = OptimizerSpec::Kind::adamw;
  asked.precision = Precision::fp32;
  asked.link = "d2d";
  Machine machine;
  const CalibrationResult result = measure(asked, machine);
  const std::string text = to_json(result);
  EXPECT_EQ(to_json(parse_calibration_result(text, "test")), text);
  EXPECT_EQ(to_json(parse_calibration_request(to_json(asked), "test")), to_json(asked));
  EXPECT_EQ(parse_calibration_request(to_json(asked), "test").recompute, asked.recompute);
}

TEST(CalibrationFile, RefusesWhatItCannotUnderstand) {
  const auto error = [](const std::string& text) -> std::string {
    try {
      parse_calibration_request(text, "request.json");
    } catch (const InputError& e) {
      return e.what();
    }
    return "no error";
  };
  EXPECT_EQ(error("{"), "request.json:1:2: is not JSON from here on");
  EXPECT_NE(error("{}").find("'penstock_calibration_request'"), std::string::npos);
  std::string text = to_json(request());
  text.replace(text.find("\"fp32\",\n \"optimizer"), 6, "\"fp31\"");
  EXPECT_NE(error(text).find("must be one of fp32, bf16, got \"fp31\""), std::string::npos);
  const auto with = [&](const std::string& key, const std::string& value) {
    const std::string whole = to_json(request());
    const std::size_t at = whole.find("\"" + key + "\": ") + key.size() + 4;
    return error(whole.substr(0, at) + value + whole.substr(whole.find_first_of(",\n", at)));
  };
  text = to_json(request());
  text.replace(text.find("\"warmup\""), 8, "\"warmupp\": 1, \"warmup\"");
  EXPECT_NE(error(text).find("unknown key 'warmupp'"), std::string::npos);
  EXPECT_NE(with("warmup", "18446744073709551616").find("warmup: must be an integer"),
            std::string::npos);
  EXPECT_NE(with("workers", "-1").find("workers: must be an integer from 0"), std::string::npos);
  EXPECT_NE(with("stage_s", "\"long\"").find("stage_s: must be a number"), std::string::npos);
  EXPECT_NE(with("hidden_size", "2.5").find("hidden_size: must be an integer"), std::string::npos);
}

// --- fits ---------------------------------------------------------------------------------------

TEST(ProfileFit, RecoversTheScript) {
  Machine machine;
  const Profile profile = fit_profile(measure(request(), machine));
  ASSERT_EQ(profile.rows.size(), 4U);
  for (const Profile::Row& row : profile.rows) {
    const double scale = (row.costs.load == 1 ? 1 : 1.3);
    const double size = row.costs.microbatch_size * scale;
    EXPECT_NEAR(row.costs.layer.forward_s, 1e-3 * size, 1e-9);
    EXPECT_NEAR(row.costs.overhead.backward_s, 2.25 * 50e-6 * scale, 1e-9);
    EXPECT_NEAR(row.costs.embedding.backward_input_s, 1.5 * 0.2e-3 * size, 1e-9);
    EXPECT_NEAR(row.costs.head.backward_weight_s, 0.75 * 0.7e-3 * size, 1e-9);
  }
  EXPECT_NEAR(profile.steps[0].costs.overhead_s, 2e-6, 1e-11);
  EXPECT_NEAR(profile.steps[0].costs.s_per_parameter, 1e-9, 1e-14);
  EXPECT_NEAR(profile.cluster.intra.latency_s, 20e-6, 1e-10);
  EXPECT_NEAR(profile.cluster.intra.bytes_per_s, 5e9, 1e4);
  EXPECT_TRUE(profile.cluster.intra.full_duplex);
  EXPECT_TRUE(profile.cluster.intra.fifo);
  EXPECT_EQ(profile.cluster.attachment, Attachment::pairs);
  EXPECT_EQ(profile.cluster.devices_per_node, 4);
}

TEST(ProfileFit, NoiseOfFivePercentMovesItByLittle) {
  Machine machine{.script = {.noise = 0.05}};
  const Profile profile = fit_profile(measure(request(), machine));
  EXPECT_NEAR(profile.rows[0].costs.layer.forward_s, 1e-3, 0.04e-3);
  EXPECT_NEAR(profile.cluster.intra.latency_s, 20e-6, 1e-6);
  EXPECT_NEAR(profile.cluster.intra.bytes_per_s, 5e9, 0.05 * 5e9);
  EXPECT_GT(profile.rows[0].costs.spread, 0.02);
}

TEST(ProfileFit, TellsHalfDuplexAndPorts) {
  Machine half{.script = {.half_duplex = true}}, port{.script = {.shared_port = true}};
  EXPECT_FALSE(fit_profile(measure(request(), half)).cluster.intra.full_duplex);
  const Profile profile = fit_profile(measure(request(), port));
  EXPECT_EQ(profile.cluster.attachment, Attachment::port);
  EXPECT_TRUE(profile.cluster.intra.full_duplex);
}

TEST(ProfileFit, FlowsThatBothGetSlowerShareFairly) {
  Machine machine;
  CalibrationResult result = measure(request(), machine);
  for (LinkMeasurement& m : result.links) {
    if (m.traffic == TrafficPattern::same_way) m.first = m.last;
  }
  EXPECT_FALSE(fit_profile(result).cluster.intra.fifo);
}

TEST(ProfileFit, ResultWithoutARoleIsRefused) {
  Machine machine;
  CalibrationResult result = measure(request(), machine);
  std::erase_if(result.ops, [](const auto& m) { return m.stage.role == StageRole::last; });
  EXPECT_THROW(fit_profile(result), InputError);
}

// --- from measurement to scenario ---------------------------------------------------------------

class ProfileFile : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() /
              ("penstock-calibration-" + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  Scenario scenario(const CalibrationResult& result, const std::string& pipeline) const {
    std::ofstream(folder_ / "profile.yaml") << to_yaml(fit_profile(result));
    return parse_scenario(
        "model: profile.yaml\ncluster: profile.yaml\nschedule: 1f1b\npipeline: {" + pipeline +
            "}\n",
        (folder_ / "scenario.yaml").string());
  }

 private:
  std::filesystem::path folder_;
};

TEST_F(ProfileFile, ScenarioCostsTheMediansAgain) {
  CalibrationRequest asked = request();
  asked.recompute = {Recompute::none, Recompute::full};
  Machine machine;
  const CalibrationResult result = measure(asked, machine);
  // Layers as measured: 3 in the middle, 1 at both ends.
  const Scenario s = scenario(result, "stages: 3, split: [1, 3, 2], microbatch_size: 4");
  ASSERT_EQ(s.costs.size(), 3U);
  for (const OpMeasurement& m : result.ops) {
    if (m.load != 4 || m.stage.microbatch_size != 4 || m.stage.recompute != Recompute::none)
      continue;
    const bool middle = m.stage.role == StageRole::middle && m.stage.layers == 3;
    const bool first = m.stage.role == StageRole::first;
    if (!middle && !first) continue;
    const StageCosts& costs = s.costs[first ? 0 : 1];
    const double predicted = is_compute(m.kind) ? costs[m.kind].seconds : costs.step_s;
    EXPECT_NEAR(predicted, m.time.median_s, 1e-6 * m.time.median_s) << token(m.kind);
  }
  EXPECT_EQ(s.cluster.name, "4 x a \"script\" (scripted)");
  EXPECT_EQ(s.cluster.device.memory_bytes, 8'589'934'592);
  EXPECT_NEAR(s.cluster.intra.latency_s, 20e-6, 1e-10);
  EXPECT_TRUE(s.cluster.intra.fifo);
}

TEST_F(ProfileFile, ScenarioHasTheBytesOfTheRealStages) {
  CalibrationRequest asked = request();
  asked.recompute = {Recompute::none, Recompute::full};
  Machine machine;
  const CalibrationResult result = measure(asked, machine);
  for (const Recompute recompute : asked.recompute) {
    const Scenario s =
        scenario(result, std::string("stages: 3, microbatch_size: 4, recompute: ") +
                             std::string(kRecomputeNames[static_cast<int>(recompute)]));
    const auto real = calibrated_stage(asked, {StageRole::middle, 2, 4, recompute});
    const StageSizes& sizes = real->sizes();
    const auto expected = sizes.input_bytes + sizes.saved_bytes + sizes.saved_for_weight_bytes;
    const auto near = static_cast<double>(expected) * 0.02 + 1024;  // buffers are rounded up
    EXPECT_NEAR(static_cast<double>(s.costs[1].activation_bytes), static_cast<double>(expected),
                near);
    EXPECT_EQ(s.costs[1].output_bytes, sizes.output_bytes);
    EXPECT_EQ(s.costs[1].weight_bytes, sizes.parameters * 4);
  }
}

// --- the real thing -----------------------------------------------------------------------------

TEST(CalibrationOnHost, MeasuresRealStagesAndMessages) {
  CalibrationRequest asked = request();
  asked.workers = 2;
  asked.microbatch_sizes = {1};
  asked.message_bytes = {1 << 10, 1 << 16};
  asked.min_repetitions = asked.max_repetitions = 6;
  CalibrationRig rig;
  rig.open = open_host_backend;
  const CalibrationResult result = calibrate(asked, rig);
  EXPECT_EQ(result.ops.size(), 4U * 2 * 5);
  EXPECT_EQ(result.links.size(), 3U * 2 * 2);
  for (const OpMeasurement& m : result.ops) EXPECT_GT(m.time.median_s, 0);
  for (const LinkMeasurement& m : result.links) EXPECT_GT(m.last.median_s, 0);
  EXPECT_EQ(result.backend, "host");
  EXPECT_NO_THROW(fit_profile(result));
}

}  // namespace
}  // namespace penstock::calibration_test

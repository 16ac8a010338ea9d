// SPDX-License-Identifier: Apache-2.0
// `--set`: reaches every key, in every form, and says what is wrong with a change.
#include "base/error.hpp"
#include "scenarios/keys.hpp"
#include "scenarios/scenario.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace penstock::overrides_test {
namespace {

const std::string kAbstract =
    "model: {forward: 1 s, backward: 2 s, output: 48 MiB}\n"
    "cluster: {devices: 8, link: {latency: 1 us, bandwidth: 25 GB/s}}\n"
    "schedule: gpipe\npipeline: {depth: 4, microbatches: 8}\n";
const std::string kReal =
    "model: gpt-2.2b\nstack: none\ncluster: p3.16xlarge\nschedule: 1f1b\npipeline: {stages: 8}\n";

Scenario with(const std::string& text, const std::vector<std::string>& changes) {
  std::vector<Override> overrides;
  for (const std::string& change : changes) overrides.push_back(parse_override(change));
  return parse_scenario(text, "test.yaml", overrides);
}

std::string error_of(const std::string& text, const std::vector<std::string>& changes) {
  try {
    with(text, changes);
  } catch (const InputError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Set, KeyWithAndWithoutDots) {
  EXPECT_EQ(with(kAbstract, {"pipeline.microbatches=3"}).shape.microbatches_per_update, 3U);
  EXPECT_EQ(with(kAbstract, {"microbatches=3"}).shape.microbatches_per_update, 3U);
  EXPECT_EQ(with(kAbstract, {"batches=7"}).shape.batches, 7U);
  EXPECT_EQ(with(kAbstract, {"model.forward=3 ms"}).costs[0][OpKind::forward].seconds, 0.003);
  EXPECT_EQ(with(kAbstract, {"forward=3ms"}).costs[0][OpKind::forward].seconds, 0.003);
  EXPECT_EQ(with(kAbstract, {"link.latency=5 us"}).cluster.link->latency_s, 5e-6);
  EXPECT_EQ(with(kReal, {"device.memory=32 GiB"}).cluster.device.memory_bytes,
            std::int64_t{32} << 30);
}

TEST(Set, KeyUnderAnotherNameReplaces) {
  EXPECT_EQ(with(kAbstract, {"stages=2"}).shape.depth, 2U) << "the file says depth";
  EXPECT_EQ(with(kAbstract, {"pipeline_model_parallel_size=2"}).shape.depth, 2U);
  EXPECT_EQ(with(kReal, {"model.max_position_embeddings=1024"}).transformer->seq_length, 1024);
}

TEST(Set, KeyThatIsNotThere) {
  EXPECT_EQ(with(kAbstract, {"pipeline.width=2"}).mesh.most(), 2);
  EXPECT_EQ(
      with("model: {forward: 1 s, backward: 1 s}\nschedule: gpipe\n", {"stages=3"}).shape.depth,
      3U);
  EXPECT_EQ(
      with("schedule: gpipe\n", {"forward=1 s", "backward=2 s"}).costs[0][OpKind::backward].seconds,
      2);
}

TEST(Set, MemoryKeepsWhatTheDeviceReserves) {
  const DeviceSpec base = with(kReal, {}).cluster.device;
  const DeviceSpec d = with(kReal, {"memory=32 GiB"}).cluster.device;
  EXPECT_EQ(d.memory_bytes, std::int64_t{32} << 30);
  EXPECT_EQ(d.reserved_bytes, base.reserved_bytes);
  EXPECT_EQ(d.allocator_slack, base.allocator_slack);
}

TEST(Set, ListsAndMaps) {
  EXPECT_EQ(with(kAbstract, {"forward=[1 s, 2 s, 3 s, 4 s]"}).costs[3][OpKind::forward].seconds, 4);
  EXPECT_EQ(with(kReal, {"stages=4", "split=[7, 9, 9, 7]"}).layers, (std::vector<int>{7, 9, 9, 7}));
  EXPECT_EQ(with(kReal, {"model={forward: 1 s, backward: 3 s}"}).costs[0][OpKind::backward].seconds,
            3)
      << "a map replaces";
  EXPECT_EQ(with(kAbstract, {"pipeline={stages: 2}"}).shape.microbatches_per_update, 1U);
  EXPECT_EQ(with(kAbstract, {"cluster.link={latency: 2 s}"}).cluster.link->latency_s, 2);
}

/// Lists of plain words are read without YAML's parser, which a space behind the bracket asks for.
TEST(Set, ListsOfPlainWordsAreReadAsYamlReadsThem) {
  const auto outcome = [](const std::string& list, const std::string& key) {
    try {
      return with(kReal, {key + "=" + list}).text();
    } catch (const InputError& error) {
      const auto& all = error.diagnostics();
      std::string text;
      for (const Diagnostic& d : all) text += d.message + fmt::format(" {}\n", d.length);
      return text;
    }
  };
  EXPECT_EQ(with(kReal, {"split=[4,4, 4,4, 4,4, 4,4]"}).layers, std::vector<int>(8, 4));
  for (const std::string inner : {"4, 4, 4, 4, 4, 4, 4, 4",
                                  "0, 1, 2, 3, 4, 5, 6, 7",
                                  "1.5, 3",
                                  "a-b, c_d",
                                  "3., 4",
                                  "true, yes",
                                  "0123456789012345678901234567890123456789012, 1",
                                  "3, 3, 3, 3, 3, 3, 3, 3",
                                  "3,3,3,3,3,3,3,3",
                                  "3,  3",
                                  "3, 3,",
                                  "3, null",
                                  "3, ~",
                                  "3, ab",
                                  "3, -1",
                                  "3, 1e2",
                                  "3, 0x3",
                                  "3, 'a'",
                                  "3, [4]",
                                  "3, a: b",
                                  "3, {a: 1}",
                                  "3 4",
                                  "",
                                  ",",
                                  "3, , 4",
                                  "full, none, full, none, full, none, full, none",
                                  "full, fulll",
                                  "3, # 4"})
    for (const std::string key : {"split", "recompute", "placement", "width"})
      EXPECT_EQ(outcome("[" + inner + "]", key), outcome("[ " + inner + "]", key))
          << key << " " << inner;
}

TEST(Set, InsideANamedModelOrCluster) {
  const Scenario base = with(kReal, {});
  const Scenario s = with(kReal, {"model.seq_length=1024", "cluster.inter=100 Gbps", "nodes=2"});
  EXPECT_EQ(s.transformer->seq_length, 1024);
  EXPECT_EQ(s.transformer->num_layers, 32);
  EXPECT_EQ(s.cluster.nodes, 2);
  EXPECT_EQ(s.cluster.inter.bytes_per_s, 12.5e9);
  EXPECT_EQ(s.cluster.inter.latency_s, base.cluster.inter.latency_s);
  EXPECT_EQ(with(kReal, {"cluster.device.memory=32 GiB"}).cluster.device.peak_flops_per_s,
            base.cluster.device.peak_flops_per_s);
  EXPECT_EQ(with(kReal, {"model.bytes_per_parameter.weights=3"}).transformer->bytes.gradients,
            base.transformer->bytes.gradients);
  EXPECT_EQ(with(kReal, {"cluster.device.peak.fp16=1 TFLOP/s"})
                .cluster.device.peak_flops_per_s.at("fp16"),
            1e12);
}

TEST(Set, InsideALink) {
  const Scenario s = with(kAbstract, {"cluster.link=10 GB/s"});
  EXPECT_EQ(s.cluster.link->bytes_per_s, 10e9);
  EXPECT_EQ(s.cluster.link->latency_s, 1e-6) << "a bandwidth alone leaves the latency";
  const std::string short_link =
      "model: {forward: 1 s, backward: 2 s}\nschedule: gpipe\n"
      "cluster: {devices: 4, link: 25 GB/s}\n";
  const Scenario latency = with(short_link, {"cluster.link.latency=5 us"});
  EXPECT_EQ(latency.cluster.link->bytes_per_s, 25e9);
  EXPECT_EQ(latency.cluster.link->latency_s, 5e-6);
}

TEST(Set, ANameReplaces) {
  EXPECT_EQ(with(kReal, {"model=gpt-1.3b"}).transformer->name, load_model("gpt-1.3b").name);
  EXPECT_EQ(with(kReal, {"schedule=2bw", "microbatches=8"}).schedule->name, "pipedream-2bw");
  EXPECT_EQ(with(kReal, {"name=a b, c: d"}).name, "a b, c: d");
}

TEST(Set, TheLastOneWins) {
  EXPECT_EQ(with(kAbstract, {"stages=2", "stages=3", "pipeline.stages=4"}).shape.depth, 4U);
}

TEST(Set, ReachesEveryKey) {
  for (const KeyRow& row : key_table()) {
    const std::string path =
        row.section == "scenario" ? std::string(row.key)
        : row.section == "device" ? "cluster.device." + std::string(row.key)
        : row.section == "link"   ? "cluster.intra." + std::string(row.key)
        : row.section == "pcie" || row.section == "fabric"
            ? "cluster." + std::string(row.section) + "." + std::string(row.key)
        : row.section == "bytes_per_parameter"
            ? "model.bytes_per_parameter." + std::string(row.key)
            : std::string(row.section) + "." + std::string(row.key);
    const bool in_list = std::ranges::any_of(key_table(), [&](const KeyRow& above) {
      return above.type == KeyRow::Type::section_list && above.choices == row.section;
    });
    // A list is set as a whole.
    if (in_list || row.section == "measured_part") continue;
    if (row.section == "block" || row.section == "slots") continue;  // of a map, not of a name
    if (row.type == KeyRow::Type::text || row.type == KeyRow::Type::name_or_section) continue;
    const std::string message = error_of(kReal, {path + "=[no, {such: value}]"});
    EXPECT_NE(message.find("--set " + path), std::string::npos) << path << ": " << message;
    EXPECT_NE(message.find("'" + std::string(row.key) + "' must be"), std::string::npos)
        << path << ": " << message;
  }
}

// --- what is wrong ------------------------------------------------------------------------------

struct Wrong {
  const char* change;
  const char* message;
};

TEST(SetErrors, SayWhatIsWrong) {
  const Wrong rows[] = {
      {"stages", "--set stages: expected key=value, such as --set pipeline.stages=8"},
      {"=8", "--set =8: expected key=value, such as --set pipeline.stages=8"},
      {"stagse=8", "--set stagse=8: unknown key 'stagse'; did you mean 'stages'?"},
      {"pipeline.stagse=8",
       "--set pipeline.stagse=8: unknown key 'stagse' in 'pipeline'; did you mean 'stages'?"},
      {"pipline.stages=8",
       "--set pipline.stages=8: unknown key 'pipline.stages'; did you mean 'pipeline.stages'?"},
      {"latency=1 us",
       "--set latency=1 us: 'latency' could be any of cluster.link.latency, cluster.intra.latency, "
       "cluster.inter.latency"},
      {"base=gpt-2.2b",
       "--set base=gpt-2.2b: 'base' could be any of model.base, cluster.base, stack.base"},
      {"pipeline..stages=8",
       "--set pipeline..stages=8: 'pipeline..stages' is not a key such as pipeline.stages"},
      {"stages=four", "--set stages=four: 'stages' must be an integer >= 1, got 'four'"},
      {"stages=", "--set stages=: 'stages' must be an integer >= 1, got nothing"},
      {"stages=0", "--set stages=0: 'stages' must be an integer >= 1, got '0'"},
      {"stages=[1]", "--set stages=[1]: 'stages' must be an integer >= 1, got a list"},
      {"stages=[1", "--set stages=[1: this '[' is never closed"},
      {"stages=8 # comment=9", "no error"},
      {"stages={8: }}", "--set stages={8: }}: this '}' closes nothing"},
      {"forward=1",
       "--set forward=1: 'forward' must be a time such as '1.5 us' (units: s, ms, us, "
       "ns, min, h), or a list with one per stage: '1' has no unit"},
      {"schedule=gpip",
       "--set schedule=gpip: unknown schedule 'gpip'; did you mean 'gpipe'? "
       "(`penstock schedule list` shows all)"},
      {"model=gpt2.2b",
       "--set model=gpt2.2b: unknown model 'gpt2.2b'; did you mean 'gpt-2.2b'? "
       "(`penstock list models` shows all; a file needs its ending)"},
      {"stages=9",
       "--set stages=9: 9 stages x width 1 need 9 devices, the cluster 'inline cluster' "
       "has 8"},
      {"split=even",
       "--set split=even: a model by costs is given per stage; there is nothing to "
       "split"},
      {"forward=1 s,2 s,3 s,4 s",
       "--set forward=1 s,2 s,3 s,4 s: a list needs brackets: forward=[1 s,2 s,3 s,4 s]"},
      {"split=5,5,5", "--set split=5,5,5: a list needs brackets: split=[5,5,5]"},
      {"recompute=full,none",
       "--set recompute=full,none: a list needs brackets: recompute=[full,none]"},
      {"recompute=full,non",
       "--set recompute=full,non: 'recompute' must be one of none, selective, full, or a list with "
       "one per virtual stage, got 'full,non'"},
      {"recompute=[full, non]",
       "--set recompute=[full, non]: 'recompute' must be one of none, selective, full, or a list "
       "with one per virtual stage, got 'non'; did you mean 'none'?"},
      {"recompute=[full, none]",
       "--set recompute=[full, none]: 'recompute' lists 2 stages, the pipeline has 4"},
      {"forward=1,5 s",
       "--set forward=1,5 s: 'forward' must be a time such as '1.5 us' (units: s, ms, us, "
       "ns, min, h), or a list with one per stage: '1,5 s' has a comma; "
       "decimals follow a point, as in '1.5'"},
      {"gradient_accumulation_steps=64",
       "--set gradient_accumulation_steps=64: unknown key 'gradient_accumulation_steps'; give "
       "pipeline.global_batch_size (= microbatch_size x microbatches x width) or microbatches"},
      {"chunks=2",
       "--set chunks=2: 'gpipe' runs one stage per device: chunks is 2, the nearest legal value is "
       "1"},
  };
  for (const Wrong& row : rows) EXPECT_EQ(error_of(kAbstract, {row.change}), row.message);
}

TEST(SetErrors, AreReportedTogetherAndWithThoseOfTheFile) {
  const std::string message =
      error_of("schedule: gpip\nmodel: {forward: 1 s, backward: 1 s}\n", {"stages=x", "stagse=8"});
  EXPECT_NE(message.find("test.yaml:1:11: unknown schedule"), std::string::npos) << message;
  EXPECT_NE(message.find("--set stages=x: "), std::string::npos) << message;
  EXPECT_NE(message.find("--set stagse=8: "), std::string::npos) << message;
}

TEST(Set, DegreesHaveTheirShortNames) {
  const Scenario s =
      with(kReal, {"pp=2", "tp=2", "dp=2", "mbs=4", "gbs=32", "activation_checkpointing=full"});
  EXPECT_EQ(s.shape.depth, 2U);
  EXPECT_EQ(s.mesh.size(Axis::tensor), 2);
  EXPECT_EQ(s.mesh.width.at(0), 2);
  EXPECT_EQ(s.microbatch_size, 4);
  EXPECT_EQ(s.samples_per_update(), 32);
  EXPECT_TRUE(s.recompute.at(0).in_full());
  EXPECT_EQ(with(kReal, {"pp=2", "cp=2", "schedule=interleaved-1f1b", "vpp=2", "microbatches=4"})
                .shape.chunks,
            2U);
  EXPECT_NE(error_of(kReal, {"precision=fp88"}).find("did you mean 'fp8'"), std::string::npos);
  EXPECT_NE(error_of(kReal, {"fp8=true"}).find("give model.precision: fp8"), std::string::npos);
}

}  // namespace
}  // namespace penstock::overrides_test

// Tables of training runs: which they are, what a row becomes, what is refused.
#include "validate/run_table.hpp"

#include "base/error.hpp"
#include "validate/measured_rows.hpp"

#include <gtest/gtest.h>

namespace penstock::run_table_test {
namespace {

const std::string kColumns =
    "id,model,layers,hidden,heads,vocab,seq,gpu,nodes,dp,tp,pp,microbatch,microbatches,zero,"
    "tp_mode,split,iteration_s,peak_gib,peak_of\n";
const std::string kRow =
    "a,llama-1b,6,512,8,1000,256,h100,1,2,2,2,1,4,1,REDUCE_SCATTER,4/2,1.5,2,\"stage 0, rank 0\"\n";

std::string errors_of(const std::string& text) {
  try {
    parse_run_table(text, "t.csv");
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST(RunTable, IsKnownByItsHeader) {
  EXPECT_EQ(measured_format("t.csv", kColumns + kRow), MeasuredFormat::runs);
  EXPECT_EQ(measured_format("t.csv", "a,b\n1,2\n"), MeasuredFormat::unknown);
}

TEST(RunTable, ARowIsAScenarioAndWhatWasMeasured) {
  const RunRow row = parse_run_table(kColumns + kRow, "t.csv").at(0);
  EXPECT_EQ(row.id, "a");
  EXPECT_EQ(row.pipeline_depth, 2);
  EXPECT_EQ(row.measured_s, 1.5);
  EXPECT_EQ(row.measured_bytes, 2.0 * 1024 * 1024 * 1024);
  EXPECT_EQ(row.peak_of, PeakOf::first_stage);
  EXPECT_FALSE(row.of_whole_gpu);
  for (const char* line : {"family: llama\n", "split: [4, 2]\n", "sequence_parallel: true\n",
                           "distributed_optimizer: true\n", "\"base\":\"dgx-h100\""})
    EXPECT_NE(row.scenario.find(line), std::string::npos) << line << row.scenario;
}

TEST(RunTable, ASourceIsAStackAndAGpuItsDevice) {
  const auto scenario = [](const std::string& source, const std::string& cluster) {
    const std::string columns =
        "source,layers,hidden,heads,vocab,seq,gpu,cluster_json,dp,tp,pp,microbatch,microbatches\n";
    return parse_run_table(columns + source + ",6,512,8,1000,256,b200," + cluster + ",1,2,2,1,4\n",
                           "t.csv")
        .at(0)
        .scenario;
  };
  const std::string nearest = scenario("SimuMax docs", "\"{\"\"base\"\": \"\"gb200-nvl72\"\"}\"");
  EXPECT_NE(nearest.find("stack: megatron\n"), std::string::npos) << nearest;
  EXPECT_NE(nearest.find("\"device\":\"B200\""), std::string::npos) << nearest;
  EXPECT_EQ(nearest.find("sequence_parallel"), std::string::npos) << nearest;
  const std::string said = scenario("nanotron", "\"{\"\"device\"\": \"\"H100\"\"}\"");
  EXPECT_NE(said.find("\"device\":\"H100\""), std::string::npos) << said;
  EXPECT_NE(said.find("sequence_parallel: true"), std::string::npos) << said;
}

TEST(RunTable, ACellStaysOneValue) {
  std::string row = kRow;
  row.replace(row.find("llama-1b"), 8, "\"llama, x: [1\"");
  EXPECT_NE(parse_run_table(kColumns + row, "t.csv").at(0).scenario.find("name: \"llama, x: [1\""),
            std::string::npos);
}

TEST(RunTable, RefusesWhatIsNoNumberAndGpusThatNoClusterHas) {
  std::string row = kRow;
  row.replace(row.find("1.5"), 3, "1,5");
  EXPECT_NE(errors_of(kColumns + row).find("line 2 has 21 cells"), std::string::npos);
  row = kRow;
  row.replace(row.find("1.5"), 3, "1.x");
  row.replace(row.find("h100"), 4, "z80");
  EXPECT_NE(errors_of(kColumns + row).find("'iteration_s': must be a number"), std::string::npos);
  EXPECT_NE(errors_of(kColumns + row).find("no cluster is known for 'z80'"), std::string::npos);
  EXPECT_NE(errors_of("layers,gpu\n1,h100\n").find("column 'hidden' is missing"),
            std::string::npos);
  EXPECT_NE(errors_of("").find("holds no row"), std::string::npos);
}

}  // namespace
}  // namespace penstock::run_table_test

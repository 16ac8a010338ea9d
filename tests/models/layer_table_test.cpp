// SPDX-License-Identifier: Apache-2.0
#include "models/layer_table.hpp"

#include "base/error.hpp"

#include <gtest/gtest.h>

#include <string>

namespace penstock::layer_table_test {
namespace {

PipedreamProfile parse(const std::string& text) { return parse_layer_table(text, "layers.csv"); }

std::string error_of(const std::string& text) {
  try {
    parse(text);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST(LayerTable, AChainHasTimesAndBytesWithTheirUnits) {
  const PipedreamProfile profile = parse(
      "# measured on one GPU\n\nactivation,layer,forward,backward,parameters\n"
      "2 KB,conv,1.5 ms,3 ms,1 MB\n1 KB,fc,500 us,1 ms,4 KB\n");
  ASSERT_EQ(profile.layers.size(), 2U);
  EXPECT_EQ(profile.layers[0].id, "conv");
  EXPECT_DOUBLE_EQ(profile.layers[0].forward_s, 1.5e-3);
  EXPECT_DOUBLE_EQ(profile.layers[1].backward_s, 1e-3);
  EXPECT_DOUBLE_EQ(profile.layers[0].activation_bytes, 2000);
  EXPECT_DOUBLE_EQ(profile.layers[1].parameter_bytes, 4000);
  EXPECT_EQ(profile.layers[0].last_reader, 1);
  EXPECT_EQ(profile.layers[1].last_reader, -1);
}

TEST(LayerTable, UnitsMayStandInTheFirstLineAndColumnsHaveTheirUsualNames) {
  for (const char* text :
       {"layer,forward [ms],backward (ms),activation [MB],parameters\n",
        "name,fwd_ms,bwd_ms,act_MB,params\n", "Layer,FWD ms,BWD ms,output (MB),num_params\n"}) {
    const PipedreamProfile profile =
        parse(std::string(text) + "conv,1.5,3,2,1000\nfc,500us,1ms,3 KB,4 KB\n");
    ASSERT_EQ(profile.layers.size(), 2U) << text;
    EXPECT_DOUBLE_EQ(profile.layers[0].forward_s, 1.5e-3) << text;
    EXPECT_DOUBLE_EQ(profile.layers[0].backward_s, 3e-3) << text;
    EXPECT_DOUBLE_EQ(profile.layers[0].activation_bytes, 2e6) << text;
    EXPECT_DOUBLE_EQ(profile.layers[0].parameter_bytes, 4000) << text;
    EXPECT_DOUBLE_EQ(profile.layers[1].forward_s, 0.5e-3) << text;
    EXPECT_DOUBLE_EQ(profile.layers[1].activation_bytes, 3000) << text;
    EXPECT_DOUBLE_EQ(profile.layers[1].parameter_bytes, 4000) << text;
  }
  EXPECT_DOUBLE_EQ(parse("layer,ms\na,9\n").layers[0].forward_s, 3e-3);
}

TEST(LayerTable, HeadersAreReadAsPeopleWriteThem) {
  for (const char* text :
       {"# by hand\nLayer Name,Forward time (ms),bwd_ms,params [M],act_mb\nfc,1,2,3,4\n",
        "name;time_fwd_ms;time_bwd_ms;num_parameters;output size (MB)\nfc;1;2;3e6;4\n",
        "layer,fwd ms,bwd ms,params,out_mb\nfc,1,2,3M,4\n",
        "layer\tf_ms\tb_ms\tparam_count\tact_out (mb)\nfc\t1\t2\t3000000\t4\n"}) {
    const ProfiledLayer layer = parse(text).layers.at(0);
    EXPECT_DOUBLE_EQ(layer.forward_s, 1e-3) << text;
    EXPECT_DOUBLE_EQ(layer.backward_s, 2e-3) << text;
    EXPECT_DOUBLE_EQ(layer.parameter_bytes, 12e6) << text;
    EXPECT_DOUBLE_EQ(layer.activation_bytes, 4e6) << text;
  }
  EXPECT_NE(error_of("layer,time_ms,params (B)\nfc,1,7\n"), "") << "bytes or billions?";
}

TEST(LayerTable, ABareNumberNamesTheUnitThatIsMissing) {
  EXPECT_NE(error_of("layer,time\na,9\n").find("'time [ms]'"), std::string::npos);
  EXPECT_NE(error_of("layer,time,act\na,9 ms,7\n").find("'activation [MB]'"), std::string::npos);
  EXPECT_NE(error_of("layer,time [furlong]\na,9\n").find("unknown column 'time [furlong]'"),
            std::string::npos);
  EXPECT_NE(error_of("layer,fwd,forward,bwd\na,1 ms,1 ms,1 ms\n").find("given twice"),
            std::string::npos);
}

TEST(LayerTable, SaysWhetherOnlyOutputsAreKnown) {
  EXPECT_TRUE(parse("layer,time,activation\na,9 ms,2 KB\n").outputs_only);
  EXPECT_FALSE(parse("layer,time,activation,stash\na,9 ms,2 KB,0\n").outputs_only);
}

TEST(LayerTable, OneTimeIsAThirdForwardAndTwoThirdsBackward) {
  const PipedreamProfile profile = parse("layer,time\na,9 ms\n");
  EXPECT_DOUBLE_EQ(profile.layers[0].forward_s, 3e-3);
  EXPECT_DOUBLE_EQ(profile.layers[0].backward_s, 6e-3);
}

TEST(LayerTable, AStashIsKeptBesideTheOutputAndNotSent) {
  const PipedreamProfile profile =
      parse("layer,time,activation,stash\na,9 ms,2 KB,30 KB\nb,9 ms,2 KB,0\n");
  const std::vector<StageCosts> costs = profiled_stage_costs(profile, {1, 1}, {});
  EXPECT_EQ(costs[0].activation_bytes, 32000);
  EXPECT_EQ(costs[0].output_bytes, 2000);
  EXPECT_EQ(costs[1].activation_bytes, 4000);  // its input and its output
}

TEST(LayerTable, AllThatIsWrongIsSaidWithItsLine) {
  const std::string said = error_of("layer,time\na,9\nb,9 ms,3\n,1 ms\n");
  EXPECT_NE(said.find("layers.csv:2"), std::string::npos) << said;
  EXPECT_NE(said.find("layers.csv:3"), std::string::npos) << said;
  EXPECT_NE(said.find("a layer needs a name"), std::string::npos) << said;
}

TEST(LayerTable, AWrongColumnHidesNoWrongCell) {
  const std::string errors = error_of("layer,forwrd,backward,colour\na,1 ms,x,red\n");
  EXPECT_NE(errors.find("unknown column 'forwrd'"), std::string::npos) << errors;
  EXPECT_NE(errors.find("unknown column 'colour'"), std::string::npos) << errors;
  EXPECT_NE(errors.find("'backward' must be"), std::string::npos) << errors;
}

TEST(LayerTable, ASpreadsheetsByteOrderMarkIsNoPartOfAName) {
  EXPECT_EQ(parse("\xEF\xBB\xBFlayer,time\na,9 ms\n").layers.size(), 1U);
}

TEST(LayerTable, AMistypedColumnIsSuggestedFor) {
  EXPECT_NE(error_of("layer,tiem\na,9 ms\n").find("did you mean 'time'"), std::string::npos);
}

TEST(LayerTable, TimesAreNeededOnceOrAsTwo) {
  EXPECT_NE(error_of("layer,forward\na,9 ms\n").find("or 'time'"), std::string::npos);
  EXPECT_NE(error_of("layer,time,forward,backward\na,9 ms,1 ms,1 ms\n").find("or 'time'"),
            std::string::npos);
}

TEST(LayerTable, NothingIsNoModel) {
  EXPECT_NE(error_of("").find("names of its columns"), std::string::npos);
  EXPECT_NE(error_of("layer,time\n").find("holds no layer"), std::string::npos);
}

}  // namespace
}  // namespace penstock::layer_table_test

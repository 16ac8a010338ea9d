// SPDX-License-Identifier: Apache-2.0
// How a process finds the others of its run: what torchrun, mpirun, srun and penstock's own
// launcher put into the environment.
#include "hw/host/gloo_group.hpp"

#include "base/error.hpp"
#include "tests/hw/error_text.hpp"

#include <gtest/gtest.h>

#include <map>

namespace penstock::group_settings_test {
namespace {

using Variables = std::map<std::string, std::string>;

std::optional<GroupSettings> settings_of(const Variables& variables) {
  const Environment get = [&](const std::string& name) {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
  return group_settings(get, 60);
}

TEST(GroupSettings, AProcessAloneHasNone) { EXPECT_FALSE(settings_of({}).has_value()); }

TEST(GroupSettings, TorchrunsVariablesAreUnderstood) {
  const auto s = settings_of({{"RANK", "3"},
                              {"WORLD_SIZE", "4"},
                              {"MASTER_ADDR", "node7"},
                              {"MASTER_PORT", "4000"},
                              {"TORCHELASTIC_RUN_ID", "abc"},
                              {"TORCHELASTIC_USE_AGENT_STORE", "True"}});
  ASSERT_TRUE(s.has_value());
  EXPECT_EQ(s->identity.rank, 3);
  EXPECT_EQ(s->identity.size, 4);
  EXPECT_EQ(s->identity.run, "abc");
  EXPECT_EQ(s->master_address, "node7");
  EXPECT_EQ(s->ports, (std::vector<int>{4001, 4002, 4003, 4004}));
}

TEST(GroupSettings, MpirunOnOneMachineNeedsNoAddress) {
  const auto s = settings_of({{"OMPI_COMM_WORLD_RANK", "1"},
                              {"OMPI_COMM_WORLD_SIZE", "2"},
                              {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}});
  ASSERT_TRUE(s.has_value());
  EXPECT_EQ(s->identity.rank, 1);
  EXPECT_EQ(s->master_address, "127.0.0.1");
  EXPECT_EQ(s->ports.front(), 29500);
}

TEST(GroupSettings, MpirunOnSeveralMachinesMeetsWhereItRuns) {
  const auto s = settings_of({{"OMPI_COMM_WORLD_RANK", "1"},
                              {"OMPI_COMM_WORLD_SIZE", "4"},
                              {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                              {"OMPI_MCA_orte_hnp_uri",
                               "1214906368.0;tcp://192.0.2.2,10.0.0.1:37327;tcp6://[fd00::2]:41"}});
  EXPECT_EQ(s->master_address, "192.0.2.2");
}

TEST(GroupSettings, MpiexecOnOneMachineNeedsNoAddress) {
  const auto s = settings_of({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALNRANKS", "2"}});
  ASSERT_TRUE(s.has_value());
  EXPECT_EQ(s->identity.size, 2);
  EXPECT_EQ(s->master_address, "127.0.0.1");
}

TEST(GroupSettings, SlurmsFirstNodeIsWhereRankZeroIs) {
  const Variables task = {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "2"}};
  for (const auto& [nodes, first] : Variables{{"gpu[03-06,09],login1", "gpu03"},
                                              {"gpu[7,9]", "gpu7"},
                                              {"a1,a2", "a1"},
                                              {"alone", "alone"}}) {
    Variables variables = task;
    variables["SLURM_STEP_NODELIST"] = nodes;
    EXPECT_EQ(settings_of(variables)->master_address, first);
  }
}

TEST(GroupSettings, AFolderNeedsNoAddress) {
  const auto s = settings_of({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"PENSTOCK_RENDEZVOUS", "here"}});
  EXPECT_EQ(s->folder, "here");
}

TEST(GroupSettings, AnInterfaceStandsForItsAddress) {
  const auto s = settings_of({{"RANK", "0"},
                              {"WORLD_SIZE", "2"},
                              {"PENSTOCK_RENDEZVOUS", "here"},
                              {"PENSTOCK_INTERFACE", "lo"}});
  EXPECT_EQ(s->hostname, "127.0.0.1");
}

TEST(GroupSettings, WhatIsWrongIsNamed) {
  const auto error = [](const Variables& v) { return error_of([&] { settings_of(v); }); };
  EXPECT_TRUE(has_parts(error({{"RANK", "0"}}), {"WORLD_SIZE", "is not set, but RANK is"}));
  EXPECT_TRUE(has_parts(error({{"WORLD_SIZE", "2"}}), {"RANK", "is not set, but WORLD_SIZE is"}));
  EXPECT_TRUE(has_parts(error({{"RANK", "2"}, {"WORLD_SIZE", "2"}}),
                        {"RANK", "must be an integer from 0 to 1, got '2'"}));
  EXPECT_TRUE(
      has_parts(error({{"RANK", "0"}, {"WORLD_SIZE", "two"}}), {"WORLD_SIZE", "got 'two'"}));
  EXPECT_TRUE(
      has_parts(error({{"RANK", "0"}, {"WORLD_SIZE", "2"}}), {"MASTER_ADDR", "is not set"}));
  EXPECT_TRUE(
      has_parts(error({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"PENSTOCK_INTERFACE", "none0"}}),
                {"PENSTOCK_INTERFACE", "'none0' has no IPv4 address here; there are", "lo"}));
}

}  // namespace
}  // namespace penstock::group_settings_test

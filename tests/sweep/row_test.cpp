// SPDX-License-Identifier: Apache-2.0
// A row survives its way through a pipe.
#include "sweep/row.hpp"

#include "sweep/bytes.hpp"
#include "sweep/messages.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace penstock::row_test {
namespace {

Row some_row() {
  Row row;
  row.point = 1ULL << 40U;
  row.status = Row::Status::infeasible;
  row.why = "device 3 needs 92.4 GiB, has 80 GiB";
  row.too_few_devices = 64;
  row.given_forward_s_per_sample = 0.125;
  row.scenario = std::string("a\0b", 3);
  row.engine = "exact";
  row.width = "[15, 1]";
  for (std::size_t i = 0; i < row.numbers.size(); ++i)
    row.numbers[i] = i % 3 == 0 ? std::nan("") : 1.0 / static_cast<double>(i);
  row.numbers.back() = std::numeric_limits<double>::infinity();
  return row;
}

TEST(Row, IsReadBackAsItWas) {
  const Row row = some_row();
  const Row read = decode(encode(row));
  EXPECT_EQ(read.point, row.point);
  EXPECT_EQ(read.status, row.status);
  EXPECT_EQ(read.why, row.why);
  EXPECT_EQ(read.too_few_devices, row.too_few_devices);
  EXPECT_EQ(read.given_forward_s_per_sample, row.given_forward_s_per_sample);
  EXPECT_EQ(read.scenario, row.scenario);
  EXPECT_EQ(read.engine, row.engine);
  EXPECT_EQ(read.schedule, "");
  EXPECT_EQ(read.transfers, "");
  EXPECT_EQ(read.width, row.width);
  EXPECT_EQ(read.replication, "");
  for (std::size_t i = 0; i < row.numbers.size(); ++i) {
    if (std::isnan(row.numbers[i]))
      EXPECT_TRUE(std::isnan(read.numbers[i])) << i;
    else
      EXPECT_EQ(read.numbers[i], row.numbers[i]) << i;
  }
}

TEST(Row, CutShortOrTooLongIsSaid) {
  const std::string bytes = encode(some_row());
  for (std::size_t size = 0; size < bytes.size(); ++size)
    EXPECT_THROW(decode(bytes.substr(0, size)), Garbled) << size;
  EXPECT_THROW(decode(bytes + "x"), Garbled);
}

TEST(Row, OfAnUnknownStatusIsNone) {
  std::string bytes = encode(some_row());
  bytes[sizeof(std::uint64_t)] = 5;
  EXPECT_THROW(decode(bytes), Garbled);
}

TEST(Task, IsReadBackAsItWas) {
  const Task task{{7, 2, {{"pipeline.stages", "4"}, {"model.forward", ""}}}, true};
  const Task read = decode_task(encode(task));
  EXPECT_EQ(read.alone, true);
  EXPECT_EQ(read.point.number, 7U);
  EXPECT_EQ(read.point.scenario, 2U);
  ASSERT_EQ(read.point.changes.size(), 2U);
  EXPECT_EQ(read.point.changes[0].key, "pipeline.stages");
  EXPECT_EQ(read.point.changes[0].value, "4");
  EXPECT_EQ(read.point.changes[1].value, "");
}

TEST(Task, IsAloneOrNot) {
  std::string bytes = encode(Task{});
  bytes[0] = 2;
  EXPECT_THROW(decode_task(bytes), Garbled);
}

}  // namespace
}  // namespace penstock::row_test

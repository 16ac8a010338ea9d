// SPDX-License-Identifier: Apache-2.0
// Quantities: every unit, exact doubles, what is refused, and how values are printed.
#include "base/units.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <regex>

namespace penstock::units_test {
namespace {

double parsed(std::string_view text, Dimension dimension) {
  std::string why;
  const auto value = parse_quantity(text, dimension, why);
  EXPECT_TRUE(value.has_value()) << text << " " << why;
  return value.value_or(std::nan(""));
}

std::string refused(std::string_view text, Dimension dimension) {
  std::string why;
  EXPECT_FALSE(parse_quantity(text, dimension, why).has_value()) << text;
  return why;
}

struct Row {
  const char* text;
  Dimension dimension;
  double value;
};

using D = Dimension;

TEST(Units, EveryUnitHasItsExactValue) {
  const Row rows[] = {
      {"3 s", D::time, 3},
      {"3 ms", D::time, 0.003},
      {"0.1 ms", D::time, 0.0001},
      {"1.5 us", D::time, 1.5e-6},
      {"1.5 µs", D::time, 1.5e-6},
      {"1.5 μs", D::time, 1.5e-6},
      {"7 ns", D::time, 7e-9},
      {"0.3 ns", D::time, 3e-10},
      {"2 min", D::time, 120},
      {"1.5 h", D::time, 5400},
      {"5 B", D::bytes, 5},
      {"5 KB", D::bytes, 5e3},
      {"5 MB", D::bytes, 5e6},
      {"80 GB", D::bytes, 80e9},
      {"5 TB", D::bytes, 5e12},
      {"5 KiB", D::bytes, 5120},
      {"48 MiB", D::bytes, 50331648},
      {"16 GiB", D::bytes, 17179869184.0},
      {"1 TiB", D::bytes, 1099511627776.0},
      {"5 B/s", D::bandwidth, 5},
      {"5 KB/s", D::bandwidth, 5e3},
      {"5 MB/s", D::bandwidth, 5e6},
      {"25 GB/s", D::bandwidth, 25e9},
      {"1.6 TB/s", D::bandwidth, 1.6e12},
      {"1 KiB/s", D::bandwidth, 1024},
      {"1 MiB/s", D::bandwidth, 1048576},
      {"1 GiB/s", D::bandwidth, 1073741824},
      {"8 bps", D::bandwidth, 1},
      {"8 Kbps", D::bandwidth, 1e3},
      {"8 Mbps", D::bandwidth, 1e6},
      {"25 Gbps", D::bandwidth, 3.125e9},
      {"1 Tbps", D::bandwidth, 125e9},
      {"8 bit/s", D::bandwidth, 1},
      {"8 Kbit/s", D::bandwidth, 1e3},
      {"8 Mbit/s", D::bandwidth, 1e6},
      {"8 Gbit/s", D::bandwidth, 1e9},
      {"8 Tbit/s", D::bandwidth, 1e12},
      {"5 FLOP/s", D::flops_rate, 5},
      {"5 GFLOP/s", D::flops_rate, 5e9},
      {"15.7 TFLOP/s", D::flops_rate, 15.7e12},
      {"1 PFLOP/s", D::flops_rate, 1e15},
      {"5 GFLOPS", D::flops_rate, 5e9},
      {"312 TFLOPS", D::flops_rate, 312e12},
      {"2 PFLOPS", D::flops_rate, 2e15},
      {"6%", D::fraction, 0.06},
      {"48.5 %", D::fraction, 0.485},
      {"0.07", D::fraction, 0.07},
      {"3", D::number, 3},
      {"2.5", D::number, 2.5},
  };
  for (const Row& row : rows) EXPECT_EQ(parsed(row.text, row.dimension), row.value) << row.text;
}

TEST(Units, ValuesAreTheNearestDoubles) {
  for (int i = 1; i < 2000; ++i) {
    const std::string digits = std::to_string(i);
    EXPECT_EQ(parsed("0." + digits + " ms", D::time), std::stod("0." + digits + "e-3"));
    EXPECT_EQ(parsed(digits + " us", D::time), std::stod(digits + "e-6"));
    EXPECT_EQ(parsed(digits + ".7 GB", D::bytes), std::stod(digits + ".7e9"));
    EXPECT_EQ(parsed(digits + "%", D::fraction), std::stod(digits + "e-2"));
  }
}

TEST(Units, FormsOfNumbers) {
  EXPECT_EQ(parsed("1.5us", D::time), 1.5e-6);
  EXPECT_EQ(parsed("  1.5   us  ", D::time), 1.5e-6);
  EXPECT_EQ(parsed("+2 s", D::time), 2);
  EXPECT_EQ(parsed(".5 s", D::time), 0.5);
  EXPECT_EQ(parsed("5. s", D::time), 5);
  EXPECT_EQ(parsed("1e-3 s", D::time), 1e-3);
  EXPECT_EQ(parsed("1E3 ms", D::time), 1);
  EXPECT_EQ(parsed("1e+3ms", D::time), 1);
  EXPECT_EQ(parsed("-1 s", D::time), -1) << "whether a value may be negative is the caller's";
  EXPECT_EQ(parsed("0", D::time), 0) << "zero needs no unit";
  EXPECT_EQ(parsed("0.0", D::bytes), 0);
  EXPECT_EQ(parsed("1e-400 s", D::time), 0);
  EXPECT_EQ(parsed("1e-99999999999 s", D::time), 0);
}

TEST(Units, WhatIsWrongIsSaid) {
  struct Wrong {
    const char* text;
    Dimension dimension;
    const char* why;
  };
  const Wrong rows[] = {
      {"5", D::time, "has no unit"},
      {"", D::time, "is not a number with a unit"},
      {"s", D::time, "is not a number with a unit"},
      {"fast", D::time, "is not a number with a unit"},
      {".", D::time, "is not a number with a unit"},
      {"-", D::time, "is not a number with a unit"},
      {".nan", D::time, "is not a number with a unit"},
      {"inf s", D::time, "is not a number with a unit"},
      {"nan", D::number, "is not a number"},
      {"1.2.3 s", D::time, "is not a number with a unit"},
      {"1_000 s", D::time, "is not a number with a unit"},
      {"1,5 s", D::time, "has a comma; decimals follow a point, as in '1.5'"},
      {"0x10", D::number, "is not a plain number"},
      {"5 s", D::number, "is not a plain number"},
      {"1e400 s", D::time, "is too large"},
      {"1e99999999999 s", D::time, "is too large"},
      {"1e308 h", D::time, "is too large"},
      {"5 sec", D::time, "has the unknown unit 'sec'; did you mean 's'?"},
      {"5 msec", D::time, "has the unknown unit 'msec'; did you mean 'ms'?"},
      {"5 m", D::time, "has the unknown unit 'm'; did you mean 'ms'?"},
      {"5 S", D::time, "has the unknown unit 'S'; did you mean 's'?"},
      {"5 days", D::time, "has the unknown unit 'days'"},
      {"5 GB", D::time, "is a size, not a time"},
      {"5 gb", D::bytes, "has the unknown unit 'gb'; did you mean 'GB'?"},
      {"5 G", D::bytes, "has the unknown unit 'G'; did you mean 'GiB'?"},
      {"5 bytes", D::bytes, "has the unknown unit 'bytes'; did you mean 'B'?"},
      {"25 Gbps", D::bytes, "is a bandwidth, not a size"},
      {"25 GB", D::bandwidth, "is a size, not a bandwidth; did you mean 'GB/s'?"},
      {"25 GBps", D::bandwidth, "has the unknown unit 'GBps'; did you mean 'GB/s'?"},
      {"25 Gb/s", D::bandwidth, "has the unknown unit 'Gb/s'; did you mean 'Gbit/s'?"},
      {"25 gbps", D::bandwidth, "has the unknown unit 'gbps'; did you mean 'Gbps'?"},
      {"125 TFLOP", D::flops_rate, "has the unknown unit 'TFLOP'; did you mean 'TFLOP/s'?"},
      {"125 TF", D::flops_rate, "has the unknown unit 'TF'; did you mean 'TFLOP/s'?"},
      {"6 percent", D::fraction, "has the unknown unit 'percent'"},
      {"6 s", D::fraction, "is a time, not a share"},
  };
  for (const Wrong& row : rows) EXPECT_EQ(refused(row.text, row.dimension), row.why) << row.text;
}

TEST(Units, PatternAcceptsWhatTheReaderAccepts) {
  for (const D d : {D::time, D::bytes, D::bandwidth, D::flops_rate, D::fraction, D::number}) {
    const std::regex pattern(penstock::pattern(d));
    for (const char* text :
         {"3 s", "3", "1.5us", "1.5 µs", "16 GiB", "25 Gbps", "25 Gbit/s", "6%", "1e3 ms",
          "125 TFLOP/s", ".5 h", "5. KB", "x", "", "1 x", "nan", "1e s"}) {
      std::string why;
      const bool accepted = parse_quantity(text, d, why).has_value();
      const bool share =
          d == D::fraction && std::string_view(text) == "3";  // a plain number in YAML
      if (share) continue;
      EXPECT_EQ(std::regex_match(text, pattern), accepted) << text;
    }
  }
}

TEST(Units, DescriptionsHaveAnExampleThatParses) {
  for (const D d : {D::time, D::bytes, D::bandwidth, D::flops_rate, D::fraction, D::number}) {
    const std::string text = describe(d);
    const std::size_t from = text.find('\'') + 1;
    parsed(text.substr(from, text.find('\'', from) - from), d);
  }
}

TEST(Format, Time) {
  EXPECT_EQ(format_time(0), "0 s");
  EXPECT_EQ(format_time(1.5e-6), "1.50 us");
  EXPECT_EQ(format_time(0.0234), "23.4 ms");
  EXPECT_EQ(format_time(2.05), "2.05 s");
  EXPECT_EQ(format_time(999.9e-6), "1.00 ms") << "never '1000 us'";
  EXPECT_EQ(format_time(123), "123 s");
  EXPECT_EQ(format_time(5e-9), "5.00 ns");
}

TEST(Format, Bytes) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1024), "1.00 KiB");
  EXPECT_EQ(format_bytes(9.55 * 1024 * 1024 * 1024), "9.55 GiB");
  EXPECT_EQ(format_bytes(std::pow(2, 50)), "1024 TiB");
}

TEST(Format, Bandwidth) {
  EXPECT_EQ(format_bandwidth(25e9), "25.0 GB/s");
  EXPECT_EQ(format_bandwidth(HUGE_VAL), "unlimited");
}

TEST(Format, PercentAndCount) {
  EXPECT_EQ(format_percent(0.125), "12.5 %");
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(999), "999");
  EXPECT_EQ(format_count(130048), "130,048");
  EXPECT_EQ(format_count(-1234567), "-1,234,567");
  EXPECT_EQ(format_count(-123), "-123");
}

TEST(ByteUnit, IsThatOfTheLargest) {
  EXPECT_STREQ(byte_unit(0).name, "KiB");
  EXPECT_EQ(byte_unit(3 << 20).text(1 << 20), "1.00");
  EXPECT_STREQ(byte_unit(3 << 20).name, "MiB");
  EXPECT_STREQ(byte_unit(std::int64_t{1} << 30).name, "GiB");
  EXPECT_EQ(byte_unit(std::int64_t{1} << 34).text(std::int64_t{3} << 29), "1.50");
  EXPECT_EQ(byte_unit(std::int64_t{1} << 34).text(0), "0");
  EXPECT_EQ(byte_unit(std::int64_t{1} << 34).text(1 << 20), "<0.01");
  EXPECT_STREQ(byte_unit(std::int64_t{400} << 20).name, "MiB");
  EXPECT_EQ(byte_unit(std::int64_t{400} << 20).text(1 << 28), "256.0");
}

}  // namespace
}  // namespace penstock::units_test

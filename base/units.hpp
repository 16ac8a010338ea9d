// SPDX-License-Identifier: Apache-2.0
// Quantities with units, as people write them: `16 GiB`, `25 Gbps`, `1.5 us`, `125 TFLOP/s`, `6%`.
//
// GB = 10^9 bytes, GiB = 2^30 bytes; Gbps = 10^9 bits/s, GB/s = 10^9 bytes/s. A number without a
// unit is refused wherever it would be ambiguous; 0 needs none.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace penstock {

enum class Dimension { time, bytes, bandwidth, flops_rate, fraction, number };

/// Units allowed for a dimension with an example, for error messages: "a time such as '1.5 us' …".
std::string describe(Dimension dimension);

/// A regular expression of the accepted text, for the JSON schema.
std::string pattern(Dimension dimension);

/// The value in seconds, bytes, bytes/s, FLOP/s or as a plain number. On failure returns nothing
/// and says in `why` what is wrong ("has no unit", "unknown unit 'Gb'; did you mean ...").
std::optional<double> parse_quantity(std::string_view text, Dimension dimension, std::string& why);

std::string format_time(double seconds);  ///< "1.50 us", "23.4 ms", "2.05 s"
std::string format_bytes(double bytes);

/// For numbers that stand below each other.
struct ByteUnit {
  const char* name;
  double bytes;
  int decimals = 2;

  std::string text(std::int64_t value) const;  ///< "17.23", "0", "<0.01", without the name
};

/// That of the largest of them: KiB, MiB or GiB.
ByteUnit byte_unit(std::int64_t largest);          ///< binary: "9.55 GiB"
std::string format_bandwidth(double bytes_per_s);  ///< "25.0 GB/s"
std::string format_percent(double fraction);       ///< "12.5 %"
std::string format_count(std::int64_t count);      ///< "130,048"

/// "1 update", "2 updates", "3 batches".
std::string counted(std::int64_t count, std::string_view what);

}  // namespace penstock

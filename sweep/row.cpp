// SPDX-License-Identifier: Apache-2.0
#include "sweep/row.hpp"

#include "sweep/bytes.hpp"

#include <algorithm>
#include <cmath>

namespace penstock {
namespace {

constexpr std::string Row::*kRowTexts[] = {&Row::why,        &Row::scenario,  &Row::engine,
                                           &Row::schedule,   &Row::transfers, &Row::width,
                                           &Row::replication};

}  // namespace

std::string one_line(std::string text) {
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = ' ';
  return text;
}

/// Bytes in front of the numbers say which of them there are: a refused point has none.
std::string encode(const Row& row) {
  ByteWriter to;
  to.put(row.point);
  to.put(row.status);
  to.put(row.too_few_devices);
  to.put(row.given_forward_s_per_sample);
  for (const auto text : kRowTexts) to.put(row.*text);
  for (std::size_t first = 0; first < row.numbers.size(); first += 8) {
    std::uint8_t present = 0;
    for (std::size_t i = first; i < std::min(first + 8, row.numbers.size()); ++i)
      present = static_cast<std::uint8_t>(present | !std::isnan(row.numbers[i]) << (i - first));
    to.put(present);
  }
  for (const double number : row.numbers)
    if (!std::isnan(number)) to.put(number);
  return to.take_bytes();
}

Row decode(std::string_view bytes) {
  ByteReader from(bytes);
  Row row;
  row.point = from.get<std::uint64_t>();
  row.status = from.get<Row::Status>();
  if (row.status > Row::Status::failed) throw Garbled();
  row.too_few_devices = from.get<std::int64_t>();
  row.given_forward_s_per_sample = from.get<double>();
  for (const auto text : kRowTexts) row.*text = from.text();
  std::vector<std::uint8_t> present((row.numbers.size() + 7) / 8);
  for (std::uint8_t& eight : present) eight = from.get<std::uint8_t>();
  for (std::size_t i = 0; i < row.numbers.size(); ++i)
    if ((present[i / 8] >> i % 8 & 1) != 0) row.numbers[i] = from.get<double>();
  if (!from.at_end()) throw Garbled();
  return row;
}

}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
// Writes values as bytes, one after the other, for messages between processes of the same program:
// numbers as they are in memory, strings after their length. A reader never trusts that a message
// is long enough.
#pragma once

#include "base/error.hpp"

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace penstock {

class ByteWriter {
 public:
  template <class T>
  void put(T value) {
    static_assert(std::is_trivially_copyable_v<T>);
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void put(const std::string& text) {
    put(static_cast<std::uint32_t>(text.size()));
    bytes_.append(text);
  }
  std::string take_bytes() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

/// Says that what came is none of our messages.
class Garbled : public SystemError {
 public:
  Garbled() : SystemError("a message between workers is garbled") {}
};

/// Reads such values. Throws Garbled where there are fewer bytes than a value has, and for a bool
/// that is neither 0 nor 1.
class ByteReader {
 public:
  explicit ByteReader(std::string_view from) : from_(from) {}

  template <class T>
  T get() {
    static_assert(std::is_trivially_copyable_v<T>);
    if constexpr (std::is_same_v<T, bool>) {
      const auto byte = get<std::uint8_t>();
      if (byte > 1) throw Garbled();
      return byte == 1;
    } else {
      T value;
      std::memcpy(&value, take_bytes(sizeof value).data(), sizeof value);
      return value;
    }
  }
  std::string text() { return std::string(take_bytes(get<std::uint32_t>())); }
  bool at_end() const { return from_.empty(); }

 private:
  std::string_view take_bytes(std::size_t size) {
    if (from_.size() < size) throw Garbled();
    const std::string_view taken = from_.substr(0, size);
    from_.remove_prefix(size);
    return taken;
  }

  std::string_view from_;
};

}  // namespace penstock

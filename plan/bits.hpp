// SPDX-License-Identifier: Apache-2.0
// A set of small numbers, one bit each: layers before a cut, states before a state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace penstock {

class Bits {
 public:
  Bits() = default;
  explicit Bits(std::size_t size) : words_((size + 63) / 64) {}

  void insert(int i) { words_[word(i)] |= mask(i); }
  bool contains(int i) const { return (words_[word(i)] & mask(i)) != 0; }
  Bits& operator|=(const Bits& other) {
    for (std::size_t w = 0; w < words_.size(); ++w) words_[w] |= other.words_[w];
    return *this;
  }
  bool meets(const Bits& other) const {
    for (std::size_t w = 0; w < words_.size(); ++w)
      if ((words_[w] & other.words_[w]) != 0) return true;
    return false;
  }
  bool includes(const Bits& other) const {
    for (std::size_t w = 0; w < words_.size(); ++w)
      if ((other.words_[w] & ~words_[w]) != 0) return false;
    return true;
  }
  /// Returns the numbers in it, ascending.
  std::vector<int> members() const {
    std::vector<int> found;
    for (std::size_t i = 0; i < words_.size() * 64; ++i)
      if (contains(static_cast<int>(i))) found.push_back(static_cast<int>(i));
    return found;
  }

 private:
  static std::size_t word(int i) { return static_cast<std::size_t>(i) / 64; }
  static std::uint64_t mask(int i) { return std::uint64_t{1} << (static_cast<unsigned>(i) % 64); }

  std::vector<std::uint64_t> words_;
};

}  // namespace penstock

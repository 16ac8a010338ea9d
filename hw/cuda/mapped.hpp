// SPDX-License-Identifier: Apache-2.0
// Host memory that the GPU reads and writes in place, as words of its timer.
#pragma once

#include "hw/cuda/driver.hpp"

#include <atomic>

namespace penstock::cuda {

class Mapped {
 public:
  explicit Mapped(std::size_t words) {
    void* memory = nullptr;
    check(cudaHostAlloc(&memory, words * sizeof *words_, cudaHostAllocMapped),
          "allocate mapped memory");
    words_ = static_cast<unsigned long long*>(memory);
    for (std::size_t i = 0; i < words; ++i) words_[i] = 0;
  }
  ~Mapped() { cudaFreeHost(words_); }
  Mapped(const Mapped&) = delete;
  Mapped& operator=(const Mapped&) = delete;
  unsigned long long* at(std::size_t i) const { return words_ + i; }
  std::atomic_ref<unsigned long long> word(std::size_t i) const {
    return std::atomic_ref(words_[i]);
  }

 private:
  unsigned long long* words_ = nullptr;
};

}  // namespace penstock::cuda

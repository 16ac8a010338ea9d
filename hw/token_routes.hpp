// SPDX-License-Identifier: Apache-2.0
// Which copies of a microbatch's tokens are with which rank's experts, and what these keep of them.
//
// The ranks of an expert group have all experts of a layer together. How many rows each gets is
// known when its router has run: whoever issues the work waits for that moment, as real stacks do
// that drop no tokens.
#pragma once

#include "hw/device.hpp"

#include <functional>
#include <string_view>
#include <vector>

namespace penstock {

/// Describes what the ranks of an expert group send one another, rank by rank: rows of `row_bytes`.
struct RowExchange {
  enum class What : std::uint8_t { counts, to_experts, back };
  std::string_view name;  ///< "tokens"
  What what;
  Tensor from, to;
  std::int64_t row_bytes;
  std::vector<std::int64_t> sent, received;  ///< rows, by rank of the group
};

/// Holds the routes of a microbatch's tokens on a stage, layer by layer.
class TokenRoutes {
 public:
  struct Layer {
    std::vector<std::int64_t> sent, received;  ///< rows, by rank of the group
    std::vector<std::int64_t> products;  ///< received rows, by rank and then by expert that is here
    std::int64_t rows = 0;               ///< all that are received
    Block *held = nullptr, *kept = nullptr;  ///< from F to W, and from I to W
  };

  explicit TokenRoutes(std::size_t layers) : layers_(layers) {}
  virtual ~TokenRoutes() = default;
  TokenRoutes(const TokenRoutes&) = delete;
  TokenRoutes& operator=(const TokenRoutes&) = delete;

  Layer& layer(std::size_t i) { return layers_[i]; }
  /// Waits until so many int32 are there; returns them.
  std::vector<std::int64_t> read_counts(Tensor counts, std::size_t how_many) const {
    std::vector<std::int32_t> read(how_many);
    download(read.data(), counts, static_cast<std::int64_t>(how_many) * 4);
    return {read.begin(), read.end()};
  }
  /// Return and take memory on the compute queue; none for no bytes.
  Block* allocate(std::int64_t bytes) { return bytes > 0 ? take(bytes) : nullptr; }
  void release(Block*& block) {
    if (block != nullptr) give_back(block);
    block = nullptr;
  }
  /// Releases what layers hold: of a microbatch that is done, or that has no backward.
  void release_all() {
    for (Layer& layer : layers_)
      for (Block** block : {&layer.held, &layer.kept}) release(*block);
  }

 private:
  virtual void download(void* to, Tensor from, std::int64_t bytes) const = 0;
  virtual Block* take(std::int64_t bytes) = 0;
  virtual void give_back(Block* block) = 0;

  std::vector<Layer> layers_;
};

class DeviceTokenRoutes : public TokenRoutes {
 public:
  /// Says that so many bytes more (or less) are held.
  using Changed = std::function<void(std::int64_t bytes)>;
  DeviceTokenRoutes(Device& device, std::size_t layers, Changed changed = {})
      : TokenRoutes(layers), device_(device), changed_(std::move(changed)) {}

 private:
  void download(void* to, Tensor from, std::int64_t bytes) const override {
    device_.download(to, from, bytes);
  }
  Block* take(std::int64_t bytes) override {
    if (changed_) changed_(bytes);
    return device_.allocate(kComputeQueue, bytes);
  }
  void give_back(Block* block) override {
    if (changed_) changed_(-block->bytes);
    device_.release(kComputeQueue, block);
  }

  Device& device_;
  Changed changed_;
};

}  // namespace penstock

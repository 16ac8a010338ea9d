// SPDX-License-Identifier: Apache-2.0
// The processes of a run: who they are, and the few things they do together before and after it.
//
// A process is a *rank*; each owns consecutive devices of the Program. Collective calls are made by
// all ranks in the same order, from one thread. A rank that does not come within the deadline is a
// SystemError that names it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace penstock {

class Group {
 public:
  virtual ~Group() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual void barrier() = 0;
  /// Everybody's bytes at rank 0, in order of rank; elsewhere empty.
  virtual std::vector<std::string> gather(const std::string& bytes) = 0;
  /// The bytes of rank `root` everywhere.
  virtual std::string broadcast(const std::string& bytes, int root) = 0;
  /// Seconds to add to this process's steady clock to get rank 0's (0 on the same boot).
  virtual double clock_offset_s() const = 0;

  /// Devices of a rank: as even as possible, consecutive.
  std::vector<int> devices_of(int rank, int devices) const {
    std::vector<int> mine;
    for (int d = rank * devices / size(); d < (rank + 1) * devices / size(); ++d) mine.push_back(d);
    return mine;
  }
  int rank_of(int device, int devices) const {
    int r = 0;
    while ((r + 1) * devices / size() <= device) ++r;
    return r;
  }
};

/// One process alone.
class SingleProcess : public Group {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  void barrier() override {}
  std::vector<std::string> gather(const std::string& bytes) override { return {bytes}; }
  std::string broadcast(const std::string& bytes, int) override { return bytes; }
  double clock_offset_s() const override { return 0; }
};

}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
// Several processes as one run: they meet at rank 0 (base/meeting.hpp), and connect pairwise
// through gloo.
#pragma once

#include "hw/host/meeting.hpp"
#include "hw/group.hpp"

#include <map>
#include <memory>
#include <string>

namespace gloo {
class Context;
namespace transport {
class Device;
}
}  // namespace gloo

namespace penstock {

/// What gloo says, without the place in its source.
std::string gloo_text(const std::exception& error);

class GlooGroup : public Group {
 public:
  /// Meets the others. Throws SystemError that names the ranks that did not come. From then on the
  /// process ignores SIGPIPE: gloo writes to connections whose other end may be gone.
  explicit GlooGroup(const GroupSettings& settings);
  ~GlooGroup() override;

  int rank() const override { return settings_.identity.rank; }
  int size() const override { return settings_.identity.size; }
  void barrier() override;
  std::vector<std::string> gather(const std::string& bytes) override;
  std::string broadcast(const std::string& bytes, int root) override;
  double clock_offset_s() const override { return clock_offset_s_; }

  /// A context of two processes, this one and `peer`, with a TCP connection of its own; `end` is
  /// 0 on one of them and 1 on the other. Both name the connection alike, and make theirs in the
  /// same order. Throws SystemError that says `name` and `peer`.
  std::shared_ptr<gloo::Context> connect(const std::string& name, int peer, int end);
  double deadline_s() const { return settings_.deadline_s; }
  /// Address at which this process is reached by the others.
  const std::string& address() const { return address_; }

 private:
  std::string next_key(const char* what);
  std::string wait_for(const std::string& key, int owner, const std::string& what, double wait_s);
  std::vector<std::string> collect(const std::string& key, const std::string& mine);
  std::string choose_address();
  double measure_clock_offset_s();
  [[noreturn]] void give_up(const std::string& reason);

  GroupSettings settings_;
  std::unique_ptr<RendezvousStore> store_;
  std::shared_ptr<gloo::transport::Device> device_;
  std::string address_;
  double clock_offset_s_ = 0;
  std::map<std::string, int> connected_;  ///< connections made so far, by name
  std::uint64_t calls_ = 0;               ///< collective calls so far: makes their keys unique
};

}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
#include "program/check.hpp"

#include "program/live_versions.hpp"
#include "program/walk.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace penstock {
namespace {

/// Collects sentences, and stops counting when nobody would read on.
class Findings {
 public:
  template <class... Args>
  void add_finding(fmt::format_string<Args...> format, Args&&... args) {
    if (texts_.size() < 20) texts_.push_back(fmt::format(format, std::forward<Args>(args)...));
  }
  bool empty() const { return texts_.empty(); }
  std::vector<std::string> take_texts() { return std::move(texts_); }

 private:
  std::vector<std::string> texts_;
};

void check_each_op_once(const Program& program, const DependencyTable& table, Findings& findings) {
  const OpLists& ops = program.ops;
  for (const std::uint32_t g : table.rejected()) {
    const Op& op = ops[g];
    const bool known =
        op.stage < program.placement.stages() && op.microbatch < table.microbatches();
    findings.add_finding(
        "{} {}", to_string(op),
        known ? "stands twice" : "is outside of the schedule's stages and microbatches");
  }
  const auto stages = static_cast<std::uint32_t>(program.placement.stages());
  for (int d = 0; d < ops.devices(); ++d) {
    for (const Op& op : ops.of_device(d)) {
      if (!is_compute(op.kind) || op.stage >= stages || op.microbatch >= table.microbatches())
        continue;
      const int home = program.placement.device_of(op.stage, op.microbatch);
      if (home != d) {
        findings.add_finding("{} stands on device {}, but its stage lives on device {}",
                             to_string(op), d, home);
      }
    }
  }
  for (std::uint32_t s = 0; s < stages; ++s) {
    for (std::uint32_t k = 0; k < table.microbatches(); ++k) {
      const std::uint32_t backward = table.backward(s, k);
      if (table.forward(s, k) == kNoOp) findings.add_finding("{}F{} is missing", s, k);
      if (!program.has_backward(s, k)) {
        if (backward != kNoOp)
          findings.add_finding("{}B{} is not the one backward of its update", s, k);
      } else if (backward == kNoOp) {
        findings.add_finding("{}B{} (or {}I{}) is missing", s, k, s, k);
      } else if (const bool split = ops[backward].kind == OpKind::backward_input;
                 split != (table.weight(s, k) != kNoOp)) {
        findings.add_finding("{}W{} {}", s, k,
                             split ? "is missing" : "stands beside a full backward");
      }
    }
  }
}

/// The orders of one device; every op is known to stand where its stage lives.
class DeviceOrder {
 public:
  DeviceOrder(const Program& program, const DependencyTable& table, int device, Findings& findings)
      : program_(program),
        table_(table),
        device_(device),
        end_(program.ops.end(device)),
        findings_(findings) {}

  void check() const {
    for (std::uint32_t g = program_.ops.begin(device_); g < end_; ++g) {
      const Op& op = program_.ops[g];
      if (!is_compute(op.kind)) continue;
      expect(table_.producer(op), g);
      if (is_backward(op.kind)) {
        const std::uint32_t width = program_.placement.width_of(op.stage);
        for (std::uint32_t i = 0; i < program_.microbatches_of(op); ++i)
          expect(table_.forward(op.stage, op.microbatch - i * width), g);
      }
      if (op.kind == OpKind::backward_weight) expect(table_.backward(op.stage, op.microbatch), g);
    }
  }

 private:
  /// `first` must stand before `second` when it is on this device, too.
  void expect(std::uint32_t first, std::uint32_t second) const {
    if (first < second || first >= end_) return;
    findings_.add_finding("{} waits for {}, which stands after it on device {}",
                          to_string(program_.ops[second]), to_string(program_.ops[first]), device_);
  }

  const Program& program_;
  const DependencyTable& table_;
  int device_;
  std::uint32_t end_;
  Findings& findings_;
};

void check_order_on_devices(const Program& program, const DependencyTable& table,
                            Findings& findings) {
  for (int d = 0; d < program.ops.devices(); ++d) DeviceOrder(program, table, d, findings).check();
}

/// Updates that a device makes in the whole run.
std::uint32_t updates_of(const Program& program, int device) {
  const auto& positions = program.placement.positions();
  const auto here = std::ranges::find(positions, program.placement.position_of(device));
  return program.updates(static_cast<std::uint32_t>(here - positions.begin()));
}

/// Listed versions may leave gaps, so what counts is how many are needed at once.
void check_held(const Program& program, Findings& findings) {
  for (std::uint32_t s = 0; s < static_cast<std::uint32_t>(program.placement.stages()); ++s) {
    const auto version_of = [&](const Op& op) {
      return is_compute(op.kind) && op.stage == s ? program.version(op) : kNoOp;
    };
    const auto makes = [](const Op& op) { return op.kind == OpKind::step; };
    for (std::uint32_t r = 0; r < program.placement.width_of(s); ++r) {
      const int d = program.placement.device_at(r, program.placement.positions()[s]);
      const std::uint32_t needed = live_versions(program.ops.of_device(d), version_of, makes);
      const std::uint32_t held = program.versions.held(s);
      if (needed > held)
        findings.add_finding("stage {} on device {} needs {} weight versions at once, but holds {}",
                             s, d, needed, held);
    }
  }
}

void check_versions(const Program& program, Findings& findings) {
  const bool listed = program.versions.kind == VersionRule::Kind::listed;
  for (int d = 0; d < program.ops.devices(); ++d) {
    std::uint32_t made = 0;
    for (const Op& op : program.ops.of_device(d)) {
      if (op.kind == OpKind::step) ++made;
      if (!is_compute(op.kind)) continue;
      const std::uint32_t version = program.version(op);
      const std::uint32_t held = program.versions.held(op.stage);
      if (version > made) {
        findings.add_finding(
            "{} on device {} needs weight version {}, but only {} updates were made before it",
            to_string(op), d, version, made);
      } else if (!listed && version + held <= made) {
        findings.add_finding(
            "{} on device {} needs weight version {}, no longer held after update {} ({} held)",
            to_string(op), d, version, made, held);
      }
    }
    const std::uint32_t due = updates_of(program, d);
    if (made != due) findings.add_finding("device {} makes {} updates instead of {}", d, made, due);
  }
}

/// Time does not pass: a message has been sent or not.
struct Untimed {
  std::vector<bool> sent;
  bool arrived(std::uint32_t g) const { return sent[g]; }
  void transfer(std::uint32_t, int, std::uint32_t to) { sent[to] = true; }
  void run_op(int, std::uint32_t, std::uint32_t) {}
  void meet(int, std::uint32_t, std::uint32_t, std::uint32_t) {}
  void leave(int, std::uint32_t, std::uint32_t) {}
};

class DeadlockReport {
 public:
  DeadlockReport(const Program& program, const DependencyTable& table, const Walk<Untimed>& walk,
                 const Untimed& clock)
      : program_(program), table_(table), walk_(walk), clock_(clock) {}

  void write(Findings& findings) const {
    for (const int d : cycle()) {
      const Wait wait = wait_of(d);
      findings.add_finding("deadlock: device {} is stuck before {}: {}", d, to_string(head(d)),
                           wait.why);
    }
  }

 private:
  struct Wait {
    int device = -1;  // the device that would have to move
    std::string why;
  };

  bool stuck(int d) const { return walk_.cursor(d) != program_.ops.end(d); }
  const Op& head(int d) const { return program_.ops[walk_.cursor(d)]; }

  Wait wait_of(int d) const {
    const OpLists& ops = program_.ops;
    const std::uint32_t g = walk_.cursor(d);
    const Op& op = ops[g];
    if (op.has(Op::receives) && !clock_.arrived(g)) {
      const Op& from = ops[table_.producer(op)];
      const int device = table_.device_of(from);
      return {device, fmt::format("it waits for the message of {} from device {}", to_string(from),
                                  device)};
    }
    if (NormChain(program_).takes(op, d) && !clock_.arrived(g)) {
      const int device = program_.placement.norm_from(d);
      return {device, fmt::format("it waits for the partial norm of device {}", device)};
    }
    const std::uint32_t sent = ops.previous_compute(d, g);
    if (program_.transfers == Transfers::coupled && sent != kNoOp && ops[sent].has(Op::sends)) {
      const std::uint32_t to = table_.consumer(ops[sent]);
      if (!clock_.arrived(to)) {
        const int device = table_.device_of(ops[to]);
        return {device, fmt::format("its send of {} waits until device {} receives it for {}",
                                    to_string(ops[sent]), device, to_string(ops[to]))};
      }
    }
    for (int other = 0; other < ops.devices(); ++other) {
      if (other != d && stuck(other) && head(other) != op) return {other, "it waits at a barrier"};
    }
    return {-1, "it waits at a barrier"};
  }

  /// The devices of one waiting cycle, or all stuck ones when the waits do not close.
  std::vector<int> cycle() const {
    std::vector<int> path;
    int d = 0;
    while (d < program_.ops.devices() && !stuck(d)) ++d;
    while (d >= 0 && d < program_.ops.devices() && stuck(d)) {
      const auto seen = std::find(path.begin(), path.end(), d);
      if (seen != path.end()) return {seen, path.end()};
      path.push_back(d);
      d = wait_of(d).device;
    }
    return path;
  }

  const Program& program_;
  const DependencyTable& table_;
  const Walk<Untimed>& walk_;
  const Untimed& clock_;
};

}  // namespace

std::vector<std::string> check_deadlock(const Program& program, const DependencyTable& table) {
  Findings findings;
  Untimed clock{std::vector<bool>(program.ops.size(), false)};
  Walk<Untimed> walk(program, table, clock);
  if (!walk.run()) DeadlockReport(program, table, walk, clock).write(findings);
  return findings.take_texts();
}

std::vector<std::string> check(const Program& program, const DependencyTable& table) {
  auto problems = check_order(program, table);
  return problems.empty() ? check_deadlock(program, table) : problems;
}

std::vector<std::string> check_order(const Program& program, const DependencyTable& table) {
  Findings findings;
  check_each_op_once(program, table, findings);
  if (findings.empty()) check_order_on_devices(program, table, findings);
  if (findings.empty()) check_versions(program, findings);
  if (findings.empty() && program.versions.kind == VersionRule::Kind::listed)
    check_held(program, findings);
  return findings.take_texts();
}

}  // namespace penstock

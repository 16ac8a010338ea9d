// SPDX-License-Identifier: Apache-2.0
// A table as it stands in its file: every action with its place, found by what it does. Used by the
// reader alone.
#pragma once

#include "base/error.hpp"
#include "schedules/formats/torch_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <unordered_map>

namespace penstock {

/// What is wrong with a file, in the order found.
class TorchFindings {
 public:
  void add_finding(const Diagnostic& diagnostic) {
    if (found_.size() < kMost) found_.push_back(diagnostic);
    ++count_;
  }
  bool empty() const { return found_.empty(); }
  /// Has something been found in this line (from 0)?
  bool any_in(std::size_t row) const {
    return std::ranges::any_of(
        found_, [&](const Diagnostic& d) { return d.where.line == static_cast<int>(row) + 1; });
  }
  /// Throws InputError when something was found.
  void throw_if_any(const std::string& origin);

 private:
  static constexpr std::size_t kMost = 200;
  std::vector<Diagnostic> found_;
  std::size_t count_ = 0;
};

/// An action's number: those of a row are consecutive, row after row.
using ActionId = std::uint32_t;
inline constexpr ActionId kNoAction = 0xFFFFFFFF;

class TorchSource {
 public:
  /// Reads the words. What is none is reported and left out.
  TorchSource(std::string_view text, std::string origin);

  const TorchTable& table() const { return table_; }
  TorchTable& table() { return table_; }
  std::size_t rows() const { return table_.rows.size(); }
  ActionId size() const { return static_cast<ActionId>(spots_.size()); }
  const Action& operator[](ActionId id) const { return actions_[id]; }
  ActionId begin(std::size_t row) const { return begin_[row]; }
  ActionId end(std::size_t row) const { return begin_[row + 1]; }
  std::uint32_t row_of(ActionId id) const { return spots_[id].row; }

  /// The action of a kind on a stage and microbatch, the first where it stands twice; for B or I,
  /// `backward` finds either. kNoAction when there is none.
  ActionId find(ActionKind kind, std::uint32_t stage, std::uint32_t microbatch) const;
  ActionId forward(std::uint32_t stage, std::uint32_t microbatch) const {
    return find(ActionKind::forward, stage, microbatch);
  }
  ActionId backward(std::uint32_t stage, std::uint32_t microbatch) const {
    return find(ActionKind::backward, stage, microbatch);
  }
  /// What an action needs of a neighbouring stage: the F or the B (or I) that makes its input;
  /// nothing at the ends.
  std::optional<Action> producer(const Action& a) const;

  /// Stages and microbatches are 0 ... count-1.
  std::uint32_t stages() const { return stages_; }
  std::uint32_t microbatches() const { return microbatches_; }
  bool communicates() const { return communicates_; }

  /// Are its words those of PyTorch 2.5, in which B is the input's half and BW the whole backward?
  bool has_older_words() const { return older_; }

  /// As its file writes it.
  std::string name(const Action& action) const;
  std::string name(ActionId id) const { return name(actions_[id]); }
  /// "line 2, column 7".
  std::string place(ActionId id) const;
  /// At the action.
  void report(ActionId id, const std::string& message);
  /// At a line as a whole.
  void report_row(std::size_t row, const std::string& message);
  TorchFindings& findings() { return findings_; }
  const std::string& origin() const { return origin_; }

 private:
  struct Spot {
    std::uint32_t row, column, length;
    bool both = false;  ///< a whole backward that is written BW
  };
  void read_row(std::string_view line, std::uint32_t row);
  void read_cell(std::string_view cell, Spot at);
  void read_pair(std::string_view cell, Spot at);
  std::optional<Action> read_action(std::string_view word, Spot at);
  void add_action(const Action& action, Spot at);
  /// Tells which words they are, and gives B of older ones its meaning.
  void settle_words();
  void index();
  void report_at(const Spot& at, const std::string& message);

  std::string origin_;
  std::vector<std::string_view> lines_;
  TorchTable table_;
  std::vector<Action> actions_;
  std::vector<Spot> spots_;
  std::vector<ActionId> begin_;
  std::unordered_map<std::uint64_t, ActionId> index_;
  std::uint32_t stages_ = 0, microbatches_ = 0;
  bool communicates_ = false, older_ = false;
  TorchFindings findings_;
};

struct MatchedMessages {
  /// Of each SEND the RECV it meets, and of each RECV its SEND; kNoAction where there is none.
  std::vector<ActionId> partner;
  std::vector<std::string> warnings;
};

/// Reports every SEND and RECV that has no other end, stands in the wrong row or on the wrong side
/// of its op, or meets another one than it should.
MatchedMessages check_messages(TorchSource& source);

/// Reports what every device is stuck on when a table never ends: the cycles, and the waits for
/// what is not there.
void find_deadlocks(TorchSource& source, const std::vector<ActionId>& partner);

}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
// torch's lowering, pass by pass: _add_unshard_reshard, _add_reduce_grad, _add_send_recv.
#include "base/error.hpp"
#include "schedules/formats/torch_table.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <map>

namespace penstock {
namespace {

constexpr std::size_t kActiveStages = 3;  // torch's max_active_stages

/// The stages whose parameters a device holds. torch gives them up in the order in which CPython
/// walks a set of small integers, and so the text of a table depends on it: slot hash & mask, on a
/// collision i = 5i + 1 + (hash >>= 5) after, in tables of 32 and more, the nine slots that follow;
/// a slot once used is not used again until the table is built anew, at 3/5 full.
class PythonSet {
 public:
  bool contains(std::uint32_t key) const { return std::ranges::find(slots_, key) != slots_.end(); }
  void add(std::uint32_t key) {
    put(key);
    ++used_;
    if (++filled_ * 5 >= (slots_.size() - 1) * 3) rebuild();
  }
  void remove(std::uint32_t key) {
    *std::ranges::find(slots_, key) = kRemoved;
    --used_;
  }
  std::vector<std::uint32_t> keys() const {
    std::vector<std::uint32_t> out;
    std::ranges::copy_if(slots_, std::back_inserter(out),
                         [](std::uint32_t s) { return s < kRemoved; });
    return out;
  }

 private:
  static constexpr std::uint32_t kFree = 0xFFFFFFFF, kRemoved = 0xFFFFFFFE;
  static constexpr std::size_t kProbes = 9;

  void put(std::uint32_t key) {
    const std::size_t mask = slots_.size() - 1;
    std::size_t perturb = key;
    for (std::size_t i = key & mask;; i = (i * 5 + 1 + (perturb >>= 5)) & mask) {
      const std::size_t last = i + kProbes <= mask ? i + kProbes : i;
      for (std::size_t j = i; j <= last; ++j) {
        if (slots_[j] != kFree) continue;
        slots_[j] = key;
        return;
      }
    }
  }
  void rebuild() {
    const std::vector<std::uint32_t> all = keys();
    std::size_t size = 8;
    while (size <= used_ * 4) size *= 2;
    slots_.assign(size, kFree);
    for (const std::uint32_t key : all) put(key);
    filled_ = used_;
  }

  std::vector<std::uint32_t> slots_ = std::vector<std::uint32_t>(8, kFree);
  std::size_t used_ = 0, filled_ = 0;
};

/// The three stages that compute next, from each cell of a row on; four when the last of them are
/// the two of a pair. One pass from the end, the stages kept in the order of their next use.
class NextStages {
 public:
  using Stages = std::array<std::uint32_t, kActiveStages + 1>;

  explicit NextStages(const ActionRow& row) : at_(row.size()) {
    std::vector<Use> uses;
    for (std::size_t i = row.size(); i-- > 0;) {
      const bool second = i > 0 && row[i - 1].paired;
      const std::size_t cell = second ? i - 1 : i;
      const auto old = std::ranges::find(uses, row[i].stage, &Use::stage);
      if (old != uses.end()) uses.erase(old);
      uses.insert(uses.begin(), {row[i].stage, cell});
      if (!second) at_[i] = first_of(uses);
    }
  }
  /// From the cell that begins at action `i`; kNoMicrobatch after the last.
  const Stages& from(std::size_t i) const { return at_[i]; }

 private:
  struct Use {
    std::uint32_t stage;
    std::size_t cell;
  };

  static Stages first_of(const std::vector<Use>& uses) {
    Stages out;
    out.fill(kNoMicrobatch);
    std::size_t count = std::min(uses.size(), kActiveStages);
    const bool pair_goes_on = uses.size() > count && uses[count].cell == uses[count - 1].cell;
    if (pair_goes_on) ++count;
    for (std::size_t i = 0; i < count; ++i) out[i] = uses[i].stage;
    return out;
  }

  std::vector<Stages> at_;
};

/// Without bubbles, and without what the passes add: torch's own tables have REDUCE_GRAD already.
ActionRow compute_only(const ActionRow& row) {
  ActionRow out;
  std::ranges::copy_if(row, std::back_inserter(out),
                       [](const Action& a) { return is_compute(a.kind); });
  return out;
}

ActionRow with_parameters(const ActionRow& row) {
  const NextStages next(row);
  PythonSet active;
  ActionRow out;
  const auto reshard = [&](std::uint32_t stage) {
    active.remove(stage);
    out.push_back({.kind = ActionKind::reshard, .stage = stage});
  };
  for (std::size_t i = 0; i < row.size(); ++i) {
    const bool second = i > 0 && row[i - 1].paired;
    if (!second) {
      const NextStages::Stages& wanted = next.from(i);
      for (const std::uint32_t stage : active.keys()) {
        if (std::ranges::find(wanted, stage) == wanted.end()) reshard(stage);
      }
      for (const std::uint32_t stage : wanted) {
        if (stage == kNoMicrobatch || active.contains(stage)) continue;
        active.add(stage);
        out.push_back({.kind = ActionKind::unshard, .stage = stage});
      }
    }
    out.push_back(row[i]);
  }
  for (const std::uint32_t stage : active.keys()) reshard(stage);
  return out;
}

bool finishes_gradient(const Action& a) {
  return a.kind == ActionKind::backward || a.kind == ActionKind::backward_weight;
}

ActionRow with_reductions(const ActionRow& row) {
  std::map<std::uint32_t, std::size_t> left;  // gradients to come, by stage
  for (const Action& a : row) left[a.stage] += finishes_gradient(a) ? 1 : 0;
  ActionRow out;
  std::vector<std::uint32_t> done;
  for (const Action& a : row) {
    out.push_back(a);
    if (finishes_gradient(a) && --left[a.stage] == 0) done.push_back(a.stage);
    if (a.paired) continue;
    for (const std::uint32_t stage : done)
      out.push_back({.kind = ActionKind::reduce_grad, .stage = stage});
    done.clear();
  }
  return out;
}

/// Runs the rows side by side, one cell of each device in turn, and places each message when it is
/// made: so that no order of sends and receives can hang.
class Messages {
 public:
  Messages(const std::vector<ActionRow>& rows, const Placement& where)
      : rows_(rows), where_(where), out_(rows.size()), cursor_(rows.size(), 0) {
    for (const ActionRow& row : rows) {
      for (const Action& a : row)
        if (is_compute(a.kind)) microbatches_ = std::max(microbatches_, a.microbatch + 1);
    }
    forward_there_.assign(stages() * microbatches_, false);
    backward_there_ = forward_there_;
  }

  std::vector<ActionRow> place() {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t d = 0; d < rows_.size(); ++d) moved = step(d) || moved;
    }
    for (std::size_t d = 0; d < rows_.size(); ++d)
      invariant(cursor_[d] == rows_[d].size(), "an order that deadlocks was lowered");
    return std::move(out_);
  }

 private:
  std::size_t stages() const { return static_cast<std::size_t>(where_.stages()); }
  std::size_t at(const Action& a) const {
    return std::size_t{a.stage} * microbatches_ + a.microbatch;
  }

  bool step(std::size_t d) {
    const ActionRow& row = rows_[d];
    const std::size_t begin = cursor_[d];
    if (begin == row.size()) return false;
    const std::size_t end = begin + (row[begin].paired ? 2 : 1);
    for (std::size_t i = begin; i < end; ++i)
      if (!ready(row[i])) return false;
    out_[d].insert(out_[d].end(), row.begin() + static_cast<std::ptrdiff_t>(begin),
                   row.begin() + static_cast<std::ptrdiff_t>(end));
    for (std::size_t i = begin; i < end; ++i) deliver(row[i], d);
    cursor_[d] = end;
    return true;
  }

  bool ready(const Action& a) const {
    if (a.kind == ActionKind::forward) return a.stage == 0 || forward_there_[at(a)];
    if (is_backward(a.kind)) return a.stage + 1 == stages() || backward_there_[at(a)];
    return true;
  }

  void deliver(const Action& a, std::size_t from) {
    const bool forward = a.kind == ActionKind::forward;
    const bool last = forward ? a.stage + 1 == stages() : a.stage == 0;
    if ((!forward && !is_backward(a.kind)) || last) return;
    Action receive{forward ? ActionKind::recv_f : ActionKind::recv_b, false,
                   forward ? a.stage + 1 : a.stage - 1, a.microbatch};
    (forward ? forward_there_ : backward_there_)[at(receive)] = true;
    const auto to = static_cast<std::size_t>(where_.device_of(receive.stage, a.microbatch));
    if (to == from) return;
    out_[from].push_back(
        {forward ? ActionKind::send_f : ActionKind::send_b, false, a.stage, a.microbatch});
    out_[to].push_back(receive);
  }

  const std::vector<ActionRow>& rows_;
  const Placement& where_;
  std::vector<ActionRow> out_;
  std::vector<std::size_t> cursor_;
  std::uint32_t microbatches_ = 0;
  std::vector<bool> forward_there_, backward_there_;  // [stage][microbatch]: the input of F, of B
};

}  // namespace

TorchTable with_communication(const TorchTable& compute, const Placement& where) {
  std::vector<ActionRow> rows;
  for (const ActionRow& row : compute.rows)
    rows.push_back(with_reductions(with_parameters(compute_only(row))));
  return {Messages(rows, where).place()};
}

}  // namespace penstock

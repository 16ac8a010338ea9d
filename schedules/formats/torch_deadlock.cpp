// SPDX-License-Identifier: Apache-2.0
// What an order can never finish, and why. Every device runs as far as it can; then each one that
// is left waits for one thing, so that following the waits from any of them ends in a cycle, or at
// something that will never be there. Each such end is one deadlock; the rest waits behind it.
#include "schedules/formats/torch_source.hpp"

#include <algorithm>

namespace penstock {
namespace {

class Runner {
 public:
  Runner(TorchSource& source, const std::vector<ActionId>& partner)
      : source_(source), partner_(partner), done_(source.size(), false) {
    for (std::size_t row = 0; row < source.rows(); ++row) {
      cursor_.push_back(source.begin(row));
      ready_.push_back(static_cast<std::uint32_t>(row));
    }
  }

  void run() {
    while (!ready_.empty()) {
      const std::uint32_t row = ready_.back();
      ready_.pop_back();
      advance(row);
    }
  }

  void report() {
    std::vector<std::uint32_t> state(source_.rows(), kNew);
    for (std::uint32_t row = 0; row < source_.rows(); ++row) {
      std::vector<std::uint32_t> path;
      std::uint32_t at = row;
      while (stuck(at) && state[at] == kNew) {
        state[at] = row;
        path.push_back(at);
        const auto next = wait_of(at).row;
        if (!next) break;
        at = *next;
      }
      if (path.empty()) continue;
      const bool dead_end = !wait_of(path.back()).row;
      const auto begin = dead_end ? path.end() - 1 : std::ranges::find(path, at);
      if (begin != path.end()) report_deadlock({begin, path.end()});
    }
  }

 private:
  static constexpr std::uint32_t kNew = 0xFFFFFFFF;

  struct Wait {
    std::string why;                   ///< empty: it does not
    ActionId action = kNoAction;       ///< that must run first
    std::optional<std::uint32_t> row;  ///< the device that must move
    ActionId blocked = kNoAction;      ///< what waits
  };

  bool stuck(std::uint32_t row) const { return cursor_[row] != source_.end(row); }

  void advance(std::uint32_t row) {
    while (stuck(row)) {
      const ActionId first = cursor_[row];
      const ActionId end = first + (source_[first].paired ? 2 : 1);
      const Wait wait = wait_of(row);
      if (!wait.why.empty()) {
        if (wait.action != kNoAction) waiting_[wait.action].push_back(row);
        return;
      }
      for (ActionId id = first; id < end; ++id) {
        done_[id] = true;
        if (const auto woken = waiting_.find(id); woken != waiting_.end()) {
          ready_.insert(ready_.end(), woken->second.begin(), woken->second.end());
          waiting_.erase(woken);
        }
      }
      cursor_[row] = end;
    }
  }

  /// The first thing that the next cell of a row lacks.
  Wait wait_of(std::uint32_t row) const {
    const ActionId first = cursor_[row];
    const ActionId end = first + (source_[first].paired ? 2 : 1);
    for (ActionId id = first; id < end; ++id) {
      Wait wait = wait_of_action(id);
      wait.blocked = id;
      if (!wait.why.empty()) return wait;
    }
    return {};
  }

  Wait wait_of_action(ActionId id) const {
    const Action& a = source_[id];
    if (!is_compute(a.kind)) return {};
    if (a.kind == ActionKind::backward_weight)
      return wait_for({ActionKind::backward_input, false, a.stage, a.microbatch}, id);
    if (is_backward(a.kind)) {
      Wait own = wait_for({ActionKind::forward, false, a.stage, a.microbatch}, id);
      if (!own.why.empty()) return own;
    }
    const auto from = source_.producer(a);
    if (!from) return {};
    const ActionId producer = source_.find(from->kind, from->stage, from->microbatch);
    const bool by_message = source_.communicates() && producer != kNoAction &&
                            source_.row_of(producer) != source_.row_of(id);
    if (!by_message) return wait_for(*from, id);
    const Action receive{a.kind == ActionKind::forward ? ActionKind::recv_f : ActionKind::recv_b,
                         false, a.stage, a.microbatch};
    Wait issued = wait_for(receive, id);
    if (!issued.why.empty()) return issued;
    const ActionId send = partner_[source_.find(receive.kind, a.stage, a.microbatch)];
    if (send == kNoAction)
      return {
          fmt::format("'{}', which nobody sends", to_string(receive)), kNoAction, {}, kNoAction};
    return wait_for(source_[send], id);
  }

  /// Of action `id`, for `wanted`.
  Wait wait_for(const Action& wanted, ActionId id) const {
    const ActionId found = source_.find(wanted.kind, wanted.stage, wanted.microbatch);
    if (found == kNoAction)
      return {fmt::format("'{}', which is nowhere", to_string(wanted)), kNoAction, {}, kNoAction};
    if (done_[found]) return {};
    const std::uint32_t row = source_.row_of(found);
    if (row == source_.row_of(id)) {
      const bool paired =
          found < id;  // all that stands before has run, but for the other of a pair
      return {
          fmt::format("'{}', which {} ({})", source_.name(found),
                      paired ? "runs together with it" : "stands after it", source_.place(found)),
          found,
          {},
          kNoAction};
    }
    return {fmt::format("'{}' of device {} ({})", source_.name(found), row, source_.place(found)),
            found, row, kNoAction};
  }

  void report_deadlock(const std::vector<std::uint32_t>& rows) {
    std::string text = "deadlock: ";
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const Wait wait = wait_of(rows[i]);
      text += fmt::format("{}device {} is stuck before '{}', which waits for {}",
                          i == 0 ? "" : "; ", rows[i], source_.name(wait.blocked), wait.why);
    }
    source_.report(wait_of(rows.front()).blocked, text);
  }

  TorchSource& source_;
  const std::vector<ActionId>& partner_;
  std::vector<bool> done_;
  std::vector<ActionId> cursor_;  // per row
  std::vector<std::uint32_t> ready_;
  std::unordered_map<ActionId, std::vector<std::uint32_t>>
      waiting_;  // rows that wait for an action
};

}  // namespace

void find_deadlocks(TorchSource& source, const std::vector<ActionId>& partner) {
  Runner runner(source, partner);
  runner.run();
  runner.report();
}

}  // namespace penstock

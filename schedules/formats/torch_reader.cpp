// SPDX-License-Identifier: Apache-2.0
#include "schedules/formats/torch_reader.hpp"

#include "schedules/formats/torch_source.hpp"

#include <algorithm>
#include <map>
#include <set>

namespace penstock {
namespace {

/// "2, 5, 7 and 12 more".
std::string listed(const std::vector<std::uint32_t>& numbers) {
  constexpr std::size_t kShown = 8;
  const std::vector<std::uint32_t> shown(
      numbers.begin(),
      numbers.begin() + static_cast<std::ptrdiff_t>(std::min(numbers.size(), kShown)));
  std::string text = fmt::format("{}", fmt::join(shown, ", "));
  if (numbers.size() > kShown) text += fmt::format(" and {} more", numbers.size() - kShown);
  return text;
}

/// Every stage and microbatch below the largest, and of each all ops.
class Completeness {
 public:
  explicit Completeness(TorchSource& source) : source_(source) {
    for (ActionId id = 0; id < source.size(); ++id) {
      const Action& a = source[id];
      if (!is_compute(a.kind)) continue;
      first_of_stage_.try_emplace(a.stage, id);
      first_of_microbatch_.try_emplace(a.microbatch, id);
      backwards_ = backwards_ || is_backward(a.kind);
    }
  }

  void check() {
    if (first_of_stage_.empty() || too_sparse()) return;
    report_gaps("stage", first_of_stage_);
    report_gaps("microbatch", first_of_microbatch_);
    if (!backwards_) {
      source_.report(0,
                     "the table has forwards only; a training schedule has B, or I and W, of "
                     "every forward");
    }
    for (const auto& [stage, first] : first_of_stage_) check_stage(stage, first);
    for (ActionId id = 0; id < source_.size(); ++id) check_weight(id);
  }

 private:
  /// So few ops that a list of what is missing would say nothing.
  bool too_sparse() {
    const std::size_t wanted = first_of_stage_.size() * first_of_microbatch_.size();
    if (wanted <= 16 * std::size_t{source_.size()} + 1000) return false;
    source_.report(
        0, fmt::format("the table has {} actions, too few for {} stages and {} "
                       "microbatches",
                       source_.size(), first_of_stage_.size(), first_of_microbatch_.size()));
    source_.findings().throw_if_any(source_.origin());
    return true;
  }

  void report_gaps(std::string_view what, const std::map<std::uint32_t, ActionId>& first) {
    std::uint32_t expected = 0;
    for (const auto& [number, id] : first) {
      if (number > expected) {
        source_.report(
            id, fmt::format("'{}' is of {} {}, but there is no {} {}{}; they are numbered "
                            "from 0 without gaps",
                            source_.name(id), what, number, what, expected,
                            number == expected + 1 ? "" : fmt::format(" to {}", number - 1)));
      }
      expected = number + 1;
    }
  }

  void check_stage(std::uint32_t stage, ActionId first) {
    std::vector<std::uint32_t> forwards, backwards;
    for (const auto& [k, somewhere] : first_of_microbatch_) {
      if (source_.forward(stage, k) == kNoAction) forwards.push_back(k);
      if (source_.backward(stage, k) == kNoAction) backwards.push_back(k);
    }
    if (!forwards.empty())
      source_.report(first,
                     fmt::format("stage {} has no F of microbatch {}", stage, listed(forwards)));
    if (!backwards.empty() && backwards_) {
      source_.report(first,
                     fmt::format("stage {} has no {} of microbatch {}", stage,
                                 source_.has_older_words() ? "BW, and no B," : "B, and no I,",
                                 listed(backwards)));
    }
  }

  /// I and W come together.
  void check_weight(ActionId id) {
    const Action a = source_[id];
    if (a.kind == ActionKind::backward_input &&
        source_.find(ActionKind::backward_weight, a.stage, a.microbatch) == kNoAction) {
      source_.report(
          id,
          fmt::format("'{}' has no '{}W{}'; without {} and W apart it is '{}'", source_.name(id),
                      a.stage, a.microbatch, source_.has_older_words() ? "B" : "I",
                      source_.name({ActionKind::backward, false, a.stage, a.microbatch})));
    }
    if (a.kind != ActionKind::backward_weight) return;
    const ActionId input = source_.backward(a.stage, a.microbatch);
    if (input == kNoAction || source_[input].kind != ActionKind::backward_input) {
      source_.report(
          id,
          fmt::format("'{}' has no '{}' that goes with it", source_.name(id),
                      source_.name({ActionKind::backward_input, false, a.stage, a.microbatch})));
    }
  }

  TorchSource& source_;
  std::map<std::uint32_t, ActionId> first_of_stage_, first_of_microbatch_;
  bool backwards_ = false;
};

/// Where the stages live, from the rows their forwards stand in.
class Homes {
 public:
  explicit Homes(TorchSource& source) : source_(source) {}

  /// Reports what has no home; else the placement.
  std::optional<Placement> find() {
    for (ActionId id = 0; id < source_.size(); ++id) {
      if (is_compute(source_[id].kind)) visit(id);
    }
    for (std::size_t row = 0; row < source_.rows(); ++row) {
      const bool computes = std::ranges::any_of(source_.table().rows[row],
                                                [](const Action& a) { return is_compute(a.kind); });
      if (computes) continue;
      right_ = false;
      if (source_.findings().any_in(row)) continue;  // its words have been refused
      source_.report_row(row,
                         fmt::format("device {} computes nothing; every line is a device", row));
    }
    if (!right_ || stages_.size() != source_.stages()) return std::nullopt;
    const bool mirrored =
        std::ranges::any_of(stages_, [](const auto& s) { return s.second.size() > 1; });
    return mirrored ? mirrored_placement() : unidirectional_placement();
  }

  static std::uint32_t chunks(const Placement& placement) {
    std::uint32_t most = 0;
    for (int p = 0; p < placement.depth(); ++p) {
      const auto here = std::ranges::count(placement.positions(), static_cast<std::uint32_t>(p));
      most = std::max(most, static_cast<std::uint32_t>(here));
    }
    return most;
  }

 private:
  /// All ops of a stage and microbatch stand where its forward does.
  void visit(ActionId id) {
    const Action& a = source_[id];
    if (a.kind == ActionKind::forward) {
      stages_[a.stage].try_emplace(source_.row_of(id), id);
      return;
    }
    const ActionId forward = source_.forward(a.stage, a.microbatch);
    if (forward == kNoAction || source_.row_of(forward) == source_.row_of(id)) return;
    source_.report(id, fmt::format("'{}' stands on device {}, but '{}' on device {} ({})",
                                   source_.name(id), source_.row_of(id), source_.name(forward),
                                   source_.row_of(forward), source_.place(forward)));
    right_ = false;
  }

  std::vector<int> widths() const { return std::vector<int>(source_.rows(), 1); }

  Placement unidirectional_placement() const {
    std::vector<std::uint32_t> positions;
    for (const auto& [stage, rows] : stages_) positions.push_back(rows.begin()->first);
    return {widths(), std::move(positions)};
  }

  /// Stage s on one device for the first half of the microbatches, on the mirrored one for the
  /// second half.
  std::optional<Placement> mirrored_placement() {
    std::vector<std::uint32_t> positions;
    for (const auto& [stage, rows] : stages_) {
      const ActionId first = source_.forward(stage, 0);
      positions.push_back(first == kNoAction ? rows.begin()->first : source_.row_of(first));
    }
    Placement placement(widths(), std::move(positions), source_.microbatches());
    for (ActionId id = 0; id < source_.size() && right_; ++id) {
      const Action& a = source_[id];
      const bool at_home =
          a.kind != ActionKind::forward ||
          placement.device_of(a.stage, a.microbatch) == static_cast<int>(source_.row_of(id));
      right_ = at_home;
    }
    if (right_) return placement;
    for (const auto& [stage, rows] : stages_) report_homes(rows);
    return std::nullopt;
  }

  /// Of a stage: each device but that of the first forward in the file.
  void report_homes(const std::map<std::uint32_t, ActionId>& rows) {
    const ActionId first = rows.begin()->second;
    for (const auto& [row, id] : rows) {
      if (id == first) continue;
      source_.report(id,
                     fmt::format("'{}' stands on device {}, '{}' on device {} ({}); a stage lives "
                                 "on one device, or, when the second half of the microbatches "
                                 "flows the other way (DualPipe, Chimera), on d and p-1-d",
                                 source_.name(id), row, source_.name(first), source_.row_of(first),
                                 source_.place(first)));
    }
  }

  TorchSource& source_;
  std::map<std::uint32_t, std::map<std::uint32_t, ActionId>> stages_;  // [stage][row]: a forward
  bool right_ = true;
};

/// What an action needs of its own row stands before it.
class OrderOfRows {
 public:
  explicit OrderOfRows(TorchSource& source) : source_(source) {}

  void check() {
    for (ActionId id = 0; id < source_.size(); ++id) {
      const Action a = source_[id];
      if (is_backward(a.kind)) expect(source_.forward(a.stage, a.microbatch), id);
      if (a.kind == ActionKind::backward_weight)
        expect(source_.backward(a.stage, a.microbatch), id);
      if (const auto from = source_.producer(a))
        expect(source_.find(from->kind, from->stage, from->microbatch), id);
    }
    for (std::size_t row = 0; row < source_.rows(); ++row) check_parameters(row);
  }

 private:
  void expect(ActionId first, ActionId then) {
    if (first == kNoAction || first < then || source_.row_of(first) != source_.row_of(then)) return;
    source_.report(then, fmt::format("'{}' needs '{}', which stands after it on device {} ({})",
                                     source_.name(then), source_.name(first), source_.row_of(then),
                                     source_.place(first)));
  }

  void complain(ActionId id, const std::string& why) {
    source_.report(id, fmt::format("'{}' {}", source_.name(id), why));
  }

  /// UNSHARD and RESHARD in turn and a stage's compute between them, where a row has any of a
  /// stage; REDUCE_GRAD after its last gradient.
  void check_parameters(std::size_t row) {
    std::set<std::uint32_t> computed, sharded, fetched;
    std::map<std::uint32_t, ActionId> last_gradient;
    for (ActionId id = source_.begin(row); id < source_.end(row); ++id) {
      const Action& a = source_[id];
      if (is_compute(a.kind)) computed.insert(a.stage);
      if (a.kind == ActionKind::unshard || a.kind == ActionKind::reshard) sharded.insert(a.stage);
      if (a.kind == ActionKind::backward || a.kind == ActionKind::backward_weight)
        last_gradient[a.stage] = id;
    }
    for (ActionId id = source_.begin(row); id < source_.end(row); ++id) {
      const Action a = source_[id];
      if (is_compute(a.kind)) {
        if (sharded.contains(a.stage) && !fetched.contains(a.stage))
          complain(
              id, fmt::format("computes without its parameters; '{}UNSHARD' comes first", a.stage));
      } else if (a.microbatch == kNoMicrobatch && !computed.contains(a.stage)) {
        complain(id, fmt::format("is of a stage that device {} does not compute", row));
      } else if (a.kind == ActionKind::unshard) {
        if (!fetched.insert(a.stage).second)
          complain(id, fmt::format("fetches what is there; '{}RESHARD' comes first", a.stage));
      } else if (a.kind == ActionKind::reshard) {
        if (fetched.erase(a.stage) == 0)
          complain(id, fmt::format("gives up what is not there; '{}UNSHARD' comes first", a.stage));
      } else if (a.kind == ActionKind::reduce_grad) {
        check_reduction(id, last_gradient[a.stage]);
      }
    }
  }

  void check_reduction(ActionId id, ActionId last_gradient) {
    if (last_gradient < id) return;
    complain(id, fmt::format("stands before '{}' ({}), a gradient of the same stage",
                             source_.name(last_gradient), source_.place(last_gradient)));
  }

  TorchSource& source_;
};

OpLists order_of(const TorchTable& table) {
  constexpr OpKind kKinds[] = {OpKind::forward, OpKind::backward, OpKind::backward_input,
                               OpKind::backward_weight};
  OpLists order;
  for (const ActionRow& row : table.rows) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      if (!is_compute(row[i].kind)) continue;
      const auto add = [&](const Action& a, bool paired) {
        order.add_op({.microbatch = a.microbatch,
                      .stage = static_cast<std::uint16_t>(a.stage),
                      .kind = kKinds[static_cast<int>(a.kind)],
                      .flags = static_cast<std::uint8_t>(paired ? Op::paired : 0)});
      };
      if (!row[i].paired) {
        add(row[i], false);
        continue;
      }
      const bool forward_first = row[i].kind == ActionKind::forward;
      add(forward_first ? row[i] : row[i + 1], true);
      add(forward_first ? row[i + 1] : row[i], false);
      ++i;
    }
    order.end_device();
  }
  return order;
}

}  // namespace

ImportedSchedule read_torch_csv(std::string_view text, const std::string& origin) {
  TorchSource source(text, origin);
  if (source.findings().empty() && source.microbatches() == 0)
    throw InputError(origin, "has no compute actions; expected a line per device such as 0F0,0B0");
  Completeness(source).check();
  Homes homes(source);
  const auto placement = homes.find();
  OrderOfRows(source).check();
  const MatchedMessages messages = check_messages(source);
  find_deadlocks(source, messages.partner);
  source.findings().throw_if_any(origin);
  invariant(placement.has_value(), "a table without errors has no placement");

  ImportedSchedule out;
  out.order = order_of(source.table());
  out.placement = *placement;
  out.depth = static_cast<std::uint32_t>(source.rows());
  out.chunks = Homes::chunks(*placement);
  out.microbatches = source.microbatches();
  out.communicates = source.communicates();
  out.warnings = messages.warnings;
  if (source.has_older_words())
    out.warnings.push_back(
        "read with the words of PyTorch 2.5: B is the input's half of a backward, W the weights', "
        "BW both");
  for (ActionId id = 0; id < source.size(); ++id) {
    out.full_backward = out.full_backward || source[id].kind == ActionKind::backward;
    out.split_backward = out.split_backward || source[id].kind == ActionKind::backward_input;
  }
  out.table = std::move(source.table());
  return out;
}

}  // namespace penstock

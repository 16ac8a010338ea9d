// SPDX-License-Identifier: Apache-2.0
// Orders of one chunk per device in a line, or of two there and back (a V), whose backward is split
// into I and W: what the searches for them are given, how they write an order down, and what it
// takes.
//
// Every microbatch is alike, so on a device each kind of op of each chunk runs in the order of the
// microbatches, and an order is one word per device over three or six letters (`Pass`). A device
// holds
//     activation from F to I,  activation_after_input from I to W
// of each chunk. The F of the upper chunk comes while the lower one's activation of that microbatch
// is still held, so no device can do with less room than for one activation of each; and this much
// always is enough: where the activations of lower chunks leave room for one of the upper chunk,
// the oldest microbatch in flight can always go on (its upper F waits for nothing but W's that are
// free to run), and after it the next.
#pragma once

#include "schedules/generator.hpp"

#include <array>
#include <limits>
#include <span>

namespace penstock {

inline constexpr double kNever = std::numeric_limits<double>::infinity();

/// An op of a device in a word; the lower chunk is the one microbatches enter first, or the only
/// one.
enum class Pass : std::uint8_t { f_lower, f_upper, i_upper, i_lower, w_upper, w_lower };
inline constexpr std::uint32_t kPasses = 6;
inline constexpr Pass kF0 = Pass::f_lower, kF1 = Pass::f_upper;
inline constexpr Pass kI0 = Pass::i_lower, kI1 = Pass::i_upper;
inline constexpr Pass kW0 = Pass::w_lower, kW1 = Pass::w_upper;

constexpr std::uint32_t index(Pass pass) { return static_cast<std::uint32_t>(pass); }
constexpr bool is_forward(Pass pass) { return pass <= Pass::f_upper; }
constexpr bool is_weight(Pass pass) { return pass >= Pass::w_upper; }
OpKind kind_of(Pass pass);
/// 1 for the upper chunk.
constexpr std::uint32_t chunk_of(Pass pass) {
  return pass == Pass::f_upper || pass == Pass::i_upper || pass == Pass::w_upper ? 1 : 0;
}

/// Most activations on a device, with room for the rounding of sums.
inline double with_slack(double limit) { return limit * (1 + 1e-9); }

struct OrderProblem {
  std::uint32_t devices = 0, chunks = 1, microbatches = 0;
  double transfer = 0;
  double limit_unit = 1;            ///< activations that a memory limit of 1 stands for
  std::vector<StageTimes> times{};  ///< by stage
  std::vector<double> limits{};     ///< by device: activations held at most

  std::uint32_t stage_count() const { return devices * chunks; }
  /// The letters of its words.
  std::span<const Pass> passes() const;
  std::uint32_t word_length() const { return 3 * chunks * microbatches; }
  std::size_t message_rows() const { return std::size_t{2} * stage_count() + 2; }
  std::size_t ops() const { return std::size_t{devices} * word_length(); }
  std::uint32_t stage(std::uint32_t d, Pass pass) const {
    return chunk_of(pass) == 0 ? d : 2 * devices - 1 - d;
  }
  std::uint32_t device(std::uint32_t s) const { return s < devices ? s : 2 * devices - 1 - s; }
  const StageTimes& time(std::uint32_t d, Pass pass) const { return times[stage(d, pass)]; }
  double duration(std::uint32_t d, Pass pass) const;
  /// What an op adds to the activations that its device holds.
  double change(std::uint32_t d, Pass pass) const;
  double message(std::uint32_t from, std::uint32_t to) const { return from == to ? 0 : transfer; }
  double limit(std::uint32_t d) const { return with_slack(limits[d]); }
  /// What device d holds of one microbatch.
  double one_microbatch(std::uint32_t d) const;
  /// Time device d computes.
  double work(std::uint32_t d) const;
  bool operator==(const OrderProblem&) const = default;
};

/// What the ops of a letter wait for, and whom their output goes to: other letters, by their places
/// in [device][pass]. Messages are kept in rows of microbatches, one for every step of their way
/// through the stages and back.
struct PassLine {
  double duration = 0;
  double message = 0;  ///< from its end until its output is there
  double change = 0;   ///< of the activations that its device holds
  std::size_t from = 0, to = 0;
  std::size_t input = 0, output = 0;  ///< rows; W's share one that nobody reads
};
/// [device][pass]; `from` and `to` are their number where there is none. A W is from its I, which
/// has to come before, and its input is that of the first F: always there.
std::vector<PassLine> pass_lines(const OrderProblem& problem);

/// Are two times the same, up to the rounding of sums?
bool same_time(double a, double b);

/// What an order takes.
struct OrderCost {
  double stage_time = kNever;  ///< the longest device, from its first start to its last end
  double makespan = kNever;
  double mean = kNever;  ///< of the stage times

  bool found() const { return makespan < kNever; }
  /// One of so many devices, which begins and ends then.
  void add_device(double begin, double end, std::uint32_t devices);
  /// The longest device first, then the makespan, both up to rounding.
  bool operator<(const OrderCost& other) const;
  /// For walks through orders: a smooth mixture, in which every device counts.
  double mixed() const { return stage_time + 0.01 * mean + 0.01 * makespan; }
};

/// An order, [device][word_length()], and what it takes.
struct Order {
  OrderCost cost;
  std::vector<Pass> word;
};

/// The problem of a shape of one or two chunks. `usual_limit`: when the shape does not say how much
/// may be held. One chunk that keeps no activations on any stage keeps one on each.
OrderProblem order_problem(const ScheduleShape& shape, double usual_limit);

/// The least memory_limit that every device can do with, rounded up to four digits.
double least_limit(const OrderProblem& problem);
bool fits_at_all(const OrderProblem& problem);

/// Can device d run these passes in this order: each I after its F, each W after its I, and never
/// more activations than its limit?
bool admissible(const OrderProblem& problem, std::uint32_t d, std::span<const Pass> passes);
bool admissible(const OrderProblem& problem, const std::vector<Pass>& word);

/// The word of an order; a B becomes an I and a W.
std::vector<Pass> word_of(const OrderProblem& problem, const OpLists& order);

/// Where passes begin, `length` of them, in which each kind stands as often: the place nearest to
/// the middle; the end when there is none.
std::size_t period_in(std::span<const Pass> passes, std::size_t length);

/// The word of a shorter problem made as long as that of `problem`: on every device, ops from its
/// middle in which each kind of op stands as often are repeated. Empty when there are none.
std::vector<Pass> lengthened(const OrderProblem& problem, const std::vector<Pass>& word);

/// Appends the order of every device.
void append_order(const OrderProblem& problem, std::span<const Pass> word, OpLists& order);

}  // namespace penstock

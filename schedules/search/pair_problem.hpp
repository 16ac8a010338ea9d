// Orders of two chunks per device whose backward is split into I and W: what their search is given,
// how it writes an order down, and what it aims at.
//
// Every microbatch is alike, so on a device each kind of op of each chunk runs in the order of the
// microbatches, and an order is one word per device over six letters (`Pass`). A device holds
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

/// An op of a device in a word; the lower chunk is the one microbatches enter first.
enum class Pass : std::uint8_t { f_lower, f_upper, i_upper, i_lower, w_upper, w_lower };
inline constexpr std::uint32_t kPasses = 6;
inline constexpr Pass kF0 = Pass::f_lower, kF1 = Pass::f_upper;
inline constexpr Pass kI0 = Pass::i_lower, kI1 = Pass::i_upper;

constexpr std::uint32_t index(Pass pass) { return static_cast<std::uint32_t>(pass); }
constexpr bool is_forward(Pass pass) { return pass <= Pass::f_upper; }
constexpr bool is_weight(Pass pass) { return pass >= Pass::w_upper; }
/// 1 for the upper chunk.
constexpr std::uint32_t chunk_of(Pass pass) {
  return pass == Pass::f_upper || pass == Pass::i_upper || pass == Pass::w_upper ? 1 : 0;
}

struct PairProblem {
  std::uint32_t devices = 0, microbatches = 0;
  double transfer = 0;
  double limit_unit = 1;              ///< activations that a memory limit of 1 stands for
  std::vector<StageTimes> times;      ///< by stage
  std::vector<std::uint32_t> device;  ///< by stage
  std::vector<std::array<std::uint32_t, 2>> stages;  ///< by device: lower, upper
  std::vector<double> limits;                        ///< by device: activations held at most

  std::uint32_t stage_count() const { return static_cast<std::uint32_t>(times.size()); }
  std::uint32_t word_length() const { return kPasses * microbatches; }
  std::size_t ops() const { return std::size_t{devices} * word_length(); }
  std::uint32_t stage(std::uint32_t d, Pass pass) const { return stages[d][chunk_of(pass)]; }
  double duration(std::uint32_t d, Pass pass) const;
  double message(std::uint32_t from, std::uint32_t to) const { return from == to ? 0 : transfer; }
  /// Time device d computes.
  double work(std::uint32_t d) const;
};

/// An order, [device][word_length()], and what it takes.
struct PairOrder {
  double makespan = kNever;
  double stage_time = kNever;  ///< the longest device, from its first start to its last end
  std::vector<Pass> word;

  bool found() const { return makespan < kNever; }
};

/// What a good order is: no worse in stage time and in makespan than the known order that is best
/// by stage time, then makespan; and then the least sum of the two.
struct PairAim {
  double stage_time = kNever, makespan = kNever;

  void add(const PairOrder& known);
  double cost(double stage_time, double makespan) const;
  double cost(const PairOrder& order) const { return cost(order.stage_time, order.makespan); }
};

/// The problem of a shape on a placement with two stages per device. `usual_limit`: when the shape
/// does not say how much may be held.
PairProblem pair_problem(const ScheduleShape& shape, const Placement& where, double usual_limit);

/// The least memory_limit that every device can do with, rounded up to four digits.
double least_limit(const PairProblem& problem);
bool fits_at_all(const PairProblem& problem);

/// Stage time and makespan that no order is below.
PairAim least_times(const PairProblem& problem);

/// Can device d run these passes in this order: each I after its F, each W after its I, and never
/// more activations than its limit?
bool admissible(const PairProblem& problem, std::uint32_t d, std::span<const Pass> passes);
bool admissible(const PairProblem& problem, const std::vector<Pass>& word);

/// The word of an order; a B becomes an I and a W.
std::vector<Pass> word_of(const PairProblem& problem, const OpLists& order);

/// Where passes begin, `length` of them, in which each kind stands as often: the place nearest to
/// the middle; the end when there is none.
std::size_t period_in(std::span<const Pass> passes, std::size_t length);

/// The word of a shorter problem made as long as that of `problem`: on every device, ops from its
/// middle in which each kind of op stands as often are repeated. Empty when there are none.
std::vector<Pass> lengthened(const PairProblem& problem, const std::vector<Pass>& word);

/// Appends the order of every device.
void append_order(const PairProblem& problem, std::span<const Pass> word, OpLists& order);

}  // namespace penstock

// What a schedule is: a pure function from its shape to the compute order of every device, plus the
// rule of its weight versions. A new schedule is one file, one row of the table in catalog.cpp, one
// test and one scenario.
#pragma once

#include "schedules/program.hpp"

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace penstock {

/// The shape a schedule is asked for. Microbatches are those of one replica.
struct ScheduleShape {
  std::uint32_t depth = 1;                    ///< p
  std::uint32_t microbatches_per_update = 1;  ///< m
  std::uint32_t batches = 1;
  bool vertical_sync = false;      ///< PipeDream: every stage uses the version stage 0 used
  std::uint32_t extra_copies = 0;  ///< PipeDream's code keeps one more copy than the paper

  /// Replicas of each stage where they differ (PipeDream's 1F1B-RR); empty: all have as many.
  std::vector<int> widths{};

  /// Microbatches of one batch, and of the run, on a replica of a stage.
  std::uint32_t per_batch(std::uint32_t stage) const;
  std::uint32_t total(std::uint32_t stage = 0) const { return per_batch(stage) * batches; }
  /// Forwards a replica of a stage runs ahead of its first backward, as many as there are
  /// replicas to feed behind it: floor((R - 1 - sum_{i<s} R_i) / R_s) with R_i replicas of stage i
  /// and R in all (PipeDream's runtime); p - 1 - s with equal widths.
  std::uint32_t warmup(std::uint32_t stage) const;
};

/// How the weights of a schedule are updated.
using UpdateRule = VersionRule::Kind;

struct Schedule {
  std::string_view name;
  std::vector<std::string_view> aliases;
  std::string_view paper;
  std::string_view summary;  ///< one line: order, flush, what it is for
  std::string_view bubble;   ///< formula of the bubble, where one is published
  std::string_view stash;    ///< microbatches stashed on stage s
  UpdateRule update;
  /// Appends the compute order of every device: of one batch (m microbatches) when the schedule
  /// flushes, of the whole run otherwise.
  void (*generate)(const ScheduleShape& shape, OpLists& order);
  /// The bubble of equal stages and free transfers, of one flush; 0 in steady state without one.
  double (*ideal_bubble)(const ScheduleShape& shape);
  /// Why the schedule does not admit this shape, with the nearest legal value; "" when it does.
  std::string (*refuse)(const ScheduleShape& shape);
  /// Data parallelism: a replica is the whole model, and its gradients are reduced while the last
  /// backward goes on.
  bool whole_model = false;

  bool flushes() const { return update == UpdateRule::flush; }
};

/// Every schedule, in the order `penstock schedule list` prints them.
std::span<const Schedule> schedules();

/// The schedule with this name or alias (case and '_' or '-' do not matter); null when there is
/// none.
const Schedule* find_schedule(std::string_view name);

/// All names and aliases, for suggestions and completion.
std::vector<std::string> schedule_names();

/// For generators: `warmup` forwards, then one forward and one backward in turn, then the backwards
/// that are left, over microbatches 0 ... count-1 of stage `stage` (1F1B and its relatives).
void append_one_f_one_b(OpLists& order, std::uint32_t stage, std::uint32_t warmup,
                        std::uint32_t count);

// One function per schedule file.
void generate_model_parallel(const ScheduleShape&, OpLists&);
void generate_gpipe(const ScheduleShape&, OpLists&);
void generate_gpipe_fifo(const ScheduleShape&, OpLists&);
void generate_1f1b(const ScheduleShape&, OpLists&);
void generate_dapple_pb(const ScheduleShape&, OpLists&);
void generate_pipedream(const ScheduleShape&, OpLists&);
void generate_pipedream_2bw(const ScheduleShape&, OpLists&);
void generate_data_parallel(const ScheduleShape&, OpLists&);

}  // namespace penstock

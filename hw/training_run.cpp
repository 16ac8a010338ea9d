#include "hw/training_run.hpp"

#include "base/clock.hpp"
#include "base/error.hpp"
#include "hw/reference.hpp"
#include "hw/run_plan_file.hpp"
#include "hw/stages.hpp"
#include "hw/training_data.hpp"
#include "traces/byte_sink.hpp"

#include <fmt/format.h>

#include <cmath>
#include <filesystem>

namespace penstock {
namespace {

constexpr std::string_view kMark = "penstock checkpoint 2\n";

/// One training, from its start or a checkpoint to its end.
class Training {
 public:
  Training(const RunPlan& plan, Device& device, const TrainingOptions& options)
      : plan_(plan), options_(options), run_(plan, device, make_stage) {
    for (std::uint32_t s = 0; s < static_cast<std::uint32_t>(plan.program.placement.stages()); ++s)
      curve_.parameters += make_stage(plan, s, device.math().element_bytes())->sizes().parameters;
    curve_.loss_floor = loss_floor(plan);
    if (options.resume && std::filesystem::exists(options.checkpoint)) resume();
  }

  TrainingCurve run() {
    const double before_s = curve_.seconds, started_s = steady_s();
    double saved_s = started_s;
    for (auto u = static_cast<std::uint32_t>(curve_.points.size()); u < run_.updates(); ++u) {
      if (options_.stop && options_.stop()) {
        curve_.stopped_because = "it was interrupted";
        break;
      }
      run_.run_update(u);
      add_point(u);
      curve_.seconds = before_s + steady_s() - started_s;
      if (!std::isfinite(curve_.points.back().loss)) {
        curve_.stopped_because =
            fmt::format("it diverged: the loss of update {} is no number", u + 1);
        break;
      }
      if (steady_s() - saved_s < options_.checkpoint_every_s) continue;
      save();
      saved_s = steady_s();
    }
    save();
    curve_.weights_digest = weights_digest(run_.weights());
    return curve_;
  }

 private:
  void add_point(std::uint32_t update) {
    const TrainingSpec& t = plan_.training;
    CurvePoint point{.update = update + 1, .loss = run_.loss(update)};
    const bool last = update + 1 == run_.updates();
    if (t.evaluation_microbatches > 0 && (last || (update + 1) % t.evaluate_every == 0))
      point.evaluation_loss = run_.evaluate(t.evaluation_microbatches);
    curve_.points.push_back(point);
    if (options_.progress) options_.progress(point);
  }

  /// Of the plan, but for how many updates are made of it.
  std::string identity() const {
    RunPlan same = plan_;
    same.scenario.clear();
    return digest(to_text(same));
  }

  void save() {
    if (options_.checkpoint.empty()) return;
    std::string bytes(kMark);
    bytes += identity() + "\n" + to_text(curve_);
    bytes += '\0';
    bytes += run_.save();
    write_file(options_.checkpoint, bytes);
  }

  void resume() {
    const std::string bytes = read_file(options_.checkpoint, std::int64_t{1} << 40);
    std::string_view rest = bytes;
    if (!rest.starts_with(kMark)) throw InputError(options_.checkpoint, "is no checkpoint");
    rest.remove_prefix(kMark.size());
    const std::string mine = identity() + "\n";
    if (!rest.starts_with(mine))
      throw InputError(options_.checkpoint,
                       "is the checkpoint of another scenario, or of another "
                       "number of updates; remove it to begin anew");
    rest.remove_prefix(mine.size());
    const std::size_t end = rest.find('\0');
    if (end == std::string_view::npos) throw InputError(options_.checkpoint, "is not whole");
    TrainingCurve before = parse_training_curve(rest.substr(0, end), options_.checkpoint);
    curve_.points = std::move(before.points);
    curve_.seconds = before.seconds;
    run_.load(rest.substr(end + 1));
  }

  const RunPlan& plan_;
  const TrainingOptions& options_;
  SequentialRun run_;
  TrainingCurve curve_;
};

}  // namespace

TrainingCurve train(const RunPlan& plan, const RunOptions& options,
                    const TrainingOptions& training) {
  if (const std::string why = why_not_sequential(plan); !why.empty())
    throw InputError(plan.name, why);
  if (waits_for_no_other(plan) && plan.lone_updates.empty())
    throw InputError(plan.name,
                     "has no order of the updates of its replicas: `penstock train` makes one");
  SingleProcess alone;
  RunControl control(0);
  RunPlan bare = plan;
  bare.channels.clear();
  const auto backend = open_backend("host", {bare, options.settings, control, alone, {0}});
  return Training(bare, backend->device(0), training).run();
}

}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
#include "hw/training_run.hpp"

#include "base/clock.hpp"
#include "base/error.hpp"
#include "hw/reference.hpp"
#include "hw/run_plan_file.hpp"
#include "hw/stages.hpp"
#include "hw/training_data.hpp"
#include "traces/byte_sink.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>

namespace penstock {
namespace {

// A checkpoint is these lines, the digest of the plan, that of it and all that follows, the curve
// so far as JSON, and after a zero byte what the run needs to go on.
constexpr std::string_view kAnyVersion = "penstock checkpoint ";
constexpr std::string_view kMark = "penstock checkpoint 4\n";

/// The text before the first line feed, which is taken off.
std::string_view take_line(std::string_view& text) {
  const std::size_t end = std::min(text.find('\n'), text.size());
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return line;
}

/// One training, from its start or a checkpoint to its end.
class Training {
 public:
  Training(const RunPlan& plan, Device& device, const TrainingOptions& options)
      : plan_(plan),
        options_(options),
        identity_(training_identity(plan)),
        run_(plan, device, make_stage) {
    RunPlan whole = plan;
    whole.division = {};
    for (std::uint32_t s = 0; s < static_cast<std::uint32_t>(plan.program.placement.stages()); ++s)
      curve_.parameters += make_stage(whole, s, device.math().element_bytes())->sizes().parameters;
    curve_.loss_floor = loss_floor(plan);
    if (options.resume && std::filesystem::exists(options.checkpoint)) resume();
  }

  TrainingCurve run() {
    const double before_s = curve_.seconds, started_s = steady_s();
    double saved_s = started_s;
    curve_.points.reserve(run_.updates());
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

  void save() {
    if (options_.checkpoint.empty()) return;
    std::string body = to_text(curve_);
    body += '\0';
    body += run_.save();
    write_file(options_.checkpoint,
               std::string(kMark) + identity_ + "\n" + digest(identity_ + body) + "\n" + body);
  }

  void resume() {
    const std::string bytes = read_back(options_.checkpoint, std::int64_t{1} << 40);
    const auto refuse = [&](const char* why) { throw InputError(options_.checkpoint, why); };
    std::string_view rest = bytes;
    if (!rest.starts_with(kAnyVersion)) refuse("is no checkpoint");
    if (!rest.starts_with(kMark))
      refuse("is a checkpoint of another version of penstock; --force begins anew");
    rest.remove_prefix(kMark.size());
    const std::string theirs(take_line(rest));
    const std::string_view check = take_line(rest);
    if (check != digest(theirs + std::string(rest)))
      refuse("is a damaged checkpoint: it was cut short or changed since; --force begins anew");
    if (theirs != identity_)
      refuse(
          "is the checkpoint of another scenario, or of another number of updates; --force "
          "begins anew");
    const std::size_t end = rest.find('\0');
    TrainingCurve before = parse_training_curve(rest.substr(0, end), options_.checkpoint);
    curve_.points = std::move(before.points);
    curve_.seconds = before.seconds;
    run_.load(rest.substr(end + 1));
  }

  const RunPlan& plan_;
  const TrainingOptions& options_;
  std::string identity_;
  SequentialRun run_;
  TrainingCurve curve_;
};

}  // namespace

std::string training_identity(const RunPlan& plan) {
  RunPlan same = plan;
  same.scenario.clear();
  return digest(to_text(same));
}

void require_free_checkpoint(const std::string& path, bool resume, bool force) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) throw InputError("--checkpoint " + path, "is a folder");
  if (!fs::is_regular_file(path, ignored)) return;
  std::string begin(kAnyVersion.size(), '\0');
  if (path.ends_with(".gz"))
    begin = read_back(path, std::int64_t{1} << 40).substr(0, begin.size());
  else
    std::ifstream(path, std::ios::binary).read(begin.data(), std::ssize(begin));
  if (begin != kAnyVersion)
    throw InputError("--checkpoint " + path,
                     "is there and is no checkpoint; it is left alone, name another file");
  if (!resume && !force)
    throw InputError("--checkpoint " + path,
                     "is there already; --resume continues that training, --force replaces it");
}

TrainingCurve train(const RunPlan& plan, const RunOptions& options,
                    const TrainingOptions& training) {
  if (waits_for_no_other(plan) && plan.lone_updates.empty())
    throw InputError(plan.name,
                     "has no order of the updates of its replicas: `penstock train` makes one");
  SingleProcess alone;
  RunControl control(0);
  RunPlan bare = plan;
  bare.channels.clear();
  RunSettings settings = options.settings;
  settings.threads = false;  // nothing runs beside it but other trainings
  const auto backend = open_backend("host", {bare, settings, control, alone, {0}});
  return Training(bare, backend->device(0), training).run();
}

}  // namespace penstock

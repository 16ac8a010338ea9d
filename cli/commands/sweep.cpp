// SPDX-License-Identifier: Apache-2.0
// penstock sweep
#include "base/exit_codes.hpp"
#include "base/say.hpp"
#include "base/units.hpp"
#include "base/numbers.hpp"
#include "cli/running.hpp"
#include "cli/sweep_report.hpp"
#include "sweep/axes.hpp"
#include "sweep/evaluate.hpp"
#include "sweep/inputs.hpp"
#include "sweep/other_split.hpp"
#include "sweep/overview.hpp"
#include "sweep/python_workers.hpp"
#include "sweep/run.hpp"
#include "sweep/watch.hpp"
#include "traces/byte_sink.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>

namespace penstock {
namespace {

std::atomic<bool> stop_wanted{false};

/// Ctrl-C and the end that Slurm announces: what runs is finished; a second one ends at once.
void stop_on_signals() {
  struct sigaction action {};
  action.sa_handler = [](int) { stop_wanted.store(true); };
  action.sa_flags = static_cast<int>(SA_RESETHAND) | SA_RESTART;
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
}

template <class Number>
Number number_option(const Arguments& arguments, const char* name, Number otherwise, Number least) {
  if (!arguments.flag(name)) return otherwise;
  const std::string text = arguments.value(name);
  const auto value = parse_number<Number>(text);
  if (!value || *value < least)
    throw InputError(fmt::format("--{}", name),
                     fmt::format("must be a number >= {}, got '{}'", least, text));
  return *value;
}

bool writes_file(const Arguments& arguments) { return arguments.value("output", "-") != "-"; }

bool shows_table(const Arguments& arguments) {
  return arguments.value("format", "table") == "table";
}

/// What contradicts itself is said before any work is done.
void check_options(const Arguments& arguments) {
  if (arguments.flag("resume") && arguments.flag("force"))
    throw InputError("--resume", "continues the file that --force replaces; give one of them");
  for (const char* name : {"resume", "force"}) {
    if (arguments.flag(name) && !writes_file(arguments))
      throw InputError(fmt::format("--{}", name), "needs a file: -o FILE.csv, .jsonl or .sqlite");
  }
  if (writes_file(arguments) && !shows_table(arguments))
    throw InputError("--format", "is that of standard output; a file's is its extension");
  for (const char* name : {"top", "sort", "columns"}) {
    if (arguments.flag(name) && !shows_table(arguments))
      throw InputError(fmt::format("--{}", name), "shapes the table; csv and json have every row");
  }
  for (const char* name : {"jobs", "timeout"}) {
    if (arguments.flag("on") && arguments.flag(name))
      throw InputError(fmt::format("--{}", name), "is of workers of this machine, not of --on");
  }
  if (writes_file(arguments)) check_extension(arguments.value("output"));
  if (!arguments.flag("over") && arguments.positional.size() < 2)
    throw InputError("penstock sweep",
                     "there is nothing to vary: give axes, such as --over stages=2,4,8");
}

TableOptions table_options(const Arguments& arguments) {
  TableOptions options;
  options.top = number_option<std::size_t>(arguments, "top", 10, 0);
  if (arguments.flag("sort")) read_sort(arguments.value("sort"), options);
  if (arguments.flag("columns"))
    options.columns = split_values(arguments.value("columns"), "--columns");
  return options;
}

std::unique_ptr<Output> output_of(const Arguments& arguments, const Columns& columns,
                                  const Manifest& manifest) {
  if (writes_file(arguments)) {
    const Existing existing = arguments.flag("resume")  ? Existing::resume
                              : arguments.flag("force") ? Existing::overwrite
                                                        : Existing::refuse;
    return open_output(arguments.value("output"), columns, manifest, existing);
  }
  if (shows_table(arguments)) return no_output();
  return standard_output(arguments.value("format"), columns);
}

Space space_of(const Arguments& arguments, const std::shared_ptr<Documents>& documents) {
  for (const std::string& file : arguments.positional) {
    if (file != "-") require_file(file);
    if (std::ranges::count(arguments.positional, file) > 1)
      throw InputError(file, "is given twice");
  }
  const auto changes = overrides_of(arguments);
  const auto axes = parse_axes(arguments.values("over"), arguments.values("zip"), changes);
  read_inputs(arguments.positional, axes, changes, documents);
  return Space(arguments.positional, axes, arguments.values("where"), changes, *documents);
}

Evaluate evaluation(const Evaluator& evaluator, const Arguments& arguments) {
  const EngineChoice engine = engine_of(arguments, EngineChoice::automatic);
  if (engine == EngineChoice::simgrid) why_no_simgrid();  // loaded for all workers
  return [&evaluator](const Point& point) { return evaluator.row(point); };
}

std::unique_ptr<const Evaluator> evaluator_of(const Arguments& arguments,
                                              const std::shared_ptr<Documents>& documents) {
  return std::make_unique<Evaluator>(arguments.positional, overrides_of(arguments),
                                     engine_of(arguments, EngineChoice::automatic), documents);
}

SweepRecipe recipe_of(const Arguments& arguments, const Documents& documents) {
  return {arguments.positional,    arguments.values("over"),
          arguments.values("zip"), arguments.values("where"),
          arguments.values("set"), arguments.value("engine", "auto"),
          data_folder(),           documents.files()};
}

/// False when it was stopped before all points were visited.
bool visit_all(const Evaluator& evaluator, SweepRun& run, const Arguments& arguments,
               const Documents& documents, const WorkerOptions& options) {
  const NextPoint next = [&] { return run.next_point(); };
  const TakeRow take = [&](Row&& row) { run.take_row(std::move(row)); };
  try {
    if (arguments.flag("on"))
      visit_on(arguments.value("on"), recipe_of(arguments, documents), next, take, options);
    else
      visit(evaluation(evaluator, arguments), next, take, options);
    return run.finish();
  } catch (const LostOutput&) {
    throw;
  } catch (const SystemError& error) {
    if (!writes_file(arguments)) throw;
    throw SystemError(
        fmt::format("{}\nthe rows in {} are whole; the same command with --resume "
                    "continues",
                    error.what(), arguments.value("output")));
  }
}

/// Says how far off the best row may be; "" where nothing fits or times are given.
std::string how_sure_of_best(const Overview& overview, const Evaluator& evaluator,
                             const Space& space) {
  const auto best = overview.best_point();
  const std::string error = best ? evaluator.expected_error(space.point(best->number)) : "";
  return error.empty() ? "" : "the best row may be off: " + error;
}

/// Returns what whoever compares the rows has to know.
std::vector<std::string> cautions_of(const Overview& overview, const Evaluator& evaluator,
                                     const Space& space) {
  std::vector<std::string> all{
      overview.models(), overview.batches(),     overview.work(),
      overview.gpus(),   overview.fixed_width(), how_sure_of_best(overview, evaluator, space)};
  std::erase(all, "");
  return all;
}

void say_end(const Arguments& arguments, const Overview& overview,
             const std::vector<std::string>& cautions, const SweepRun& run, const SweepWatch& watch,
             bool complete) {
  const std::string rate = arguments.flag("reproducible") ? "" : watch.summary();
  say("{}{}\n", overview.counts(), rate);
  for (const std::string& caution : cautions) say("{}\n", caution);
  if (complete) {
    if (overview.failed() > 0 && writes_file(arguments))
      say("the same command with --resume tries again what failed\n");
    return;
  }
  say("stopped with {} of {} points left{}\n", format_count(static_cast<std::int64_t>(run.left())),
      format_count(static_cast<std::int64_t>(run.total())),
      writes_file(arguments) ? "; the same command with --resume continues" : "");
}

/// With "env" as a number, and a file of its own for each shard.
Arguments of_shard(Arguments arguments) {
  const auto rank = rank_of_many(environment);
  if (!arguments.flag("shard")) {
    if (!rank) return arguments;
    throw InputError("penstock sweep",
                     fmt::format("was started as one of {} ({}), each of which would do the whole; "
                                 "give --shard env and -o rows-%K.csv, then merge; or --shard 1/1",
                                 rank->size, rank->rank_variable));
  }
  const std::string given = arguments.value("shard");
  const Shard shard = parse_shard(given);
  for (const char* name : {"output", "report"}) {
    if (!arguments.flag(name)) continue;
    const std::string file = arguments.value(name);
    const std::string own = file_of_shard(file, shard);
    if (given == "env" && shard.count > 1 && own == file)
      throw InputError(fmt::format("--{} {}", name, file),
                       "is one file for all shards; %K in its name is the number of each");
    arguments.options[name] = {own};
  }
  arguments.options["shard"] = {to_string(shard)};
  return arguments;
}

WorkerOptions worker_options(const Arguments& arguments) {
  WorkerOptions options;
  constexpr int kMostJobs = 1024;
  options.jobs = number_option<int>(arguments, "jobs", 0, 1);
  if (options.jobs > kMostJobs)
    throw InputError("--jobs",
                     fmt::format("must be at most {}, got {}; more machines take a --shard "
                                 "each",
                                 kMostJobs, options.jobs));
  options.point_limit_s = number_option<double>(arguments, "timeout", 0, 0.001);
  options.stop = &stop_wanted;
  return options;
}

}  // namespace

int run_sweep(const Arguments& given) {
  const Arguments arguments = of_shard(given);
  check_options(arguments);
  WorkerOptions workers = worker_options(arguments);
  const Shard shard = parse_shard(arguments.value("shard", to_string(Shard{})));
  const auto documents = std::make_shared<Documents>();
  const Space space = space_of(arguments, documents);
  const Columns columns(space, *documents);
  Overview overview(space, columns, table_options(arguments));
  const auto evaluator = evaluator_of(arguments, documents);
  if (space.next(0) == space.size()) {
    throw InputError("--where", fmt::format("no point is left of {}",
                                            format_count(static_cast<std::int64_t>(space.size()))));
  }
  stop_on_signals();  // before there is a file
  const auto output = output_of(
      arguments, columns,
      manifest_of(recipe_of(arguments, *documents), space, PENSTOCK_VERSION, to_string(shard)));
  std::optional<SweepWatch> watch;
  std::optional<SweepReport> report;
  if (arguments.flag("report")) report.emplace(space, columns, *documents);
  SweepRun run(space, columns, *output, shard, [&](const Cells& row, const Row* evaluated) {
    evaluated == nullptr ? overview.add_resumed(row) : overview.add_row(row);
    if (report) report->add_row(row);
    if (evaluated == nullptr) return;
    overview.add_unwritten(*evaluated);
    watch->saw_another(overview);
  });
  workers.full = [&run] { return run.full(); };
  workers.tick = [&run] { run.tick(); };
  workers.left = [&run] { return run.left(); };
  if (arguments.flag("resume")) run.resume();
  watch.emplace(run.left());
  const bool complete = visit_all(*evaluator, run, arguments, *documents, workers);
  watch->end();
  if (shows_table(arguments) || report) look_for_split(overview, *evaluator, space, stop_wanted);
  if (shows_table(arguments)) print_painted(overview.table(canvas_of_terminal()));
  flush_output();
  const std::vector<std::string> cautions = cautions_of(overview, *evaluator, space);
  say_end(arguments, overview, cautions, run, *watch, complete);
  if (report)
    write_report(report->report(overview, cautions, arguments), arguments.value("report"));
  return complete ? exit_ok : exit_interrupted;
}

}  // namespace penstock

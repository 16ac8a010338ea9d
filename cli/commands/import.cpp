// SPDX-License-Identifier: Apache-2.0
// penstock import layout STRING | FILE: what a scenario or a model file says of it.
#include "base/error.hpp"
#include "base/exit_codes.hpp"
#include "base/numbers.hpp"
#include "base/say.hpp"
#include "cli/running.hpp"
#include "scenarios/config_import.hpp"
#include "scenarios/document.hpp"
#include "scenarios/file_import.hpp"
#include "scenarios/flag_files.hpp"
#include "scenarios/megatron_import.hpp"
#include "traces/byte_sink.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace penstock {
namespace {

/// What of the job its scenario leaves out or takes for granted, for those who do not see the
/// scenario: its comments under such titles, a line each.
void say_what_is_missing(const std::string& scenario) {
  bool missing = false;
  for (std::size_t at = 0, end = 0; at < scenario.size(); at = end + 1) {
    end = std::min(scenario.find('\n', at), scenario.size());
    const std::string_view line(scenario.data() + at, end - at);
    const bool option = line.starts_with("#   ");
    if (!option)
      missing = line.starts_with("# cannot be modelled") || line.starts_with("# not known here") ||
                line.starts_with("# has no value") || line.starts_with("# assumed");
    if (missing) say("{}{}\n", option ? "  " : "note: ", line.substr(option ? 4 : 2));
  }
}

using Importer = std::string (*)(const std::string& text, const std::string& origin,
                                 const std::string& cluster, const ScriptSurroundings& defined,
                                 const std::string& model);

/// Holds what surrounds a script: --define, the file it is, and --launch.
ScriptSurroundings surroundings_of(const Arguments& arguments, const std::string& file) {
  ScriptSurroundings out;
  if (file != "-") out.file = file;
  for (const std::string& define : arguments.values("define")) {
    const std::size_t equals = define.find('=');
    if (equals == 0 || equals == define.npos)
      throw InputError("--define", fmt::format("must be NAME=VALUE, got '{}'", define));
    out[define.substr(0, equals)] = define.substr(equals + 1);
  }
  const std::string launch = arguments.value("launch");
  const auto number = parse_number<std::size_t>(launch);
  if (!launch.empty() && number.value_or(0) == 0)
    throw InputError("--launch", fmt::format("must be an integer >= 1, got '{}'", launch));
  out.launch = number.value_or(0);
  return out;
}

/// A job of another framework, from its file or standard input.
std::string import_job(const Arguments& arguments, Importer importer, const std::string& file) {
  if (file != "-") require_file(file);
  const std::string scenario = importer(
      read_file(file == "-" ? "/dev/stdin" : file), file == "-" ? "standard input" : file,
      arguments.value("cluster"), surroundings_of(arguments, file), arguments.value("model"));
  say_what_is_missing(scenario);
  return scenario;
}

struct Job {
  std::string_view name;
  Importer importer;
};
constexpr Job kJobs[] = {
    {"megatron-args",
     [](const std::string& text, const std::string& origin, const std::string& cluster,
        const ScriptSurroundings& defined, const std::string& model) {
       return scenario_of_megatron(text, origin, cluster, defined, model);
     }},
    {"nanotron-config",
     [](const std::string& text, const std::string& origin, const std::string& cluster,
        const ScriptSurroundings& defined, const std::string& model) {
       if (!defined.empty()) throw InputError("--define", "is for scripts; nanotron's is a file");
       return scenario_of_nanotron(text, origin, cluster, model);
     }},
    {"torchtitan-config",
     [](const std::string& text, const std::string& origin, const std::string& cluster,
        const ScriptSurroundings& defined, const std::string& model) {
       return scenario_of_torchtitan(text, origin, cluster, defined, model);
     }}};

/// The job that a file is by its name and what is in it; null where it is none.
const Job* job_of(const std::string& file) {
  const auto ends = [&](const char* with) { return file.ends_with(with); };
  if (ends(".toml")) return &kJobs[2];
  if (ends(".sh") || ends(".sbatch") || ends(".slurm")) {
    require_file(file);
    const std::string text = read_file(file);
    const auto has = [&](const char* word) { return text.find(word) != text.npos; };
    return &kJobs[(has("torchtitan") || has("run_train.sh")) && !has("--num-layers") ? 2 : 0];
  }
  if (!ends(".yaml") && !ends(".yml") && !ends(".json")) return nullptr;
  require_file(file);
  const std::string text = read_file(file);
  if (ends(".json")) return has_keys_of_job(text, file) ? &kJobs[0] : nullptr;
  const Value document = parse_document(text, file);
  return document.find("parallelism") != nullptr && document.find("tokens") != nullptr ? &kJobs[1]
                                                                                       : &kJobs[0];
}

}  // namespace

int run_import(const Arguments& arguments) {
  const std::string& what = arguments.positional[0];
  if (what == "layout") {
    if (arguments.positional.size() < 2)
      throw InputError("penstock import layout",
                       "the layout is missing, such as 'Et*2|(t*2|)*3,t*2L'");
    put_output(arguments, import_layout(arguments.positional[1], arguments.value("stages")));
    return exit_ok;
  }
  for (const Job& job : kJobs) {
    if (what != job.name) continue;
    if (arguments.positional.size() < 2)
      throw InputError("penstock import " + what, "the file is missing ('-': standard input)");
    put_output(arguments, import_job(arguments, job.importer, arguments.positional[1]));
    return exit_ok;
  }
  if (const Job* job = job_of(what); job != nullptr && arguments.positional.size() == 1) {
    put_output(arguments, import_job(arguments, job->importer, what));
    return exit_ok;
  }
  for (const char* option : {"cluster", "define", "launch", "model"})
    if (arguments.flag(option))
      throw InputError(fmt::format("--{}", option),
                       "is for jobs of other frameworks, such as 'megatron-args FILE'");
  if (arguments.positional.size() > 1)
    throw InputError("penstock import", fmt::format("takes one file, got '{}' behind '{}'",
                                                    arguments.positional[1], what));
  const bool csv = what.ends_with(".csv");
  if (!csv && !what.ends_with(".txt") && !what.ends_with(".json")) {
    throw InputError(
        "penstock import",
        fmt::format("'{}' is none of 'layout STRING', 'megatron-args FILE', 'nanotron-config "
                    "FILE', 'torchtitan-config FILE', a FILE.csv of "
                    "torch.distributed.pipelining or of layers, a profile graph.txt, "
                    "a config.json, a job's .sh, .yaml or .toml",
                    what));
  }
  require_file(what);
  if (what.ends_with(".json")) {
    const std::string model = import_model(what);
    say_what_is_missing(model);
    put_output(arguments, model);
    return exit_ok;
  }
  const std::string text = csv ? read_file(what) : "";
  put_output(arguments, csv && !is_layer_table(text)
                            ? import_csv(text, what)
                            : import_profile(what, arguments.value("stages")));
  return exit_ok;
}

}  // namespace penstock

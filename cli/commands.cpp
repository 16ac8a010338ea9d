// The table of commands: what they are called, what they take, what runs them.
#include "cli/options.hpp"

namespace penstock {
namespace {

const OptionSpec kFormat{"format",         "F",   "table (default), json or csv",
                         "table|json|csv", false, {}};
const OptionSpec kSet{"set", "KEY=VALUE", "change a key of the scenario (repeatable)",
                      "key", true,        {}};
const OptionSpec kEngine{"engine",
                         "E",
                         "simgrid (default), exact, or auto: exact where it is valid",
                         "auto|exact|simgrid",
                         false,
                         {}};
const OptionSpec kReproducible{"reproducible", "", "leave out what varies between two runs", {},
                               false,          {}};
const OptionSpec kOutput{"output", "FILE", "write there instead of to standard output",
                         "file",   false,  "o"};

const std::vector<CommandSpec>& table() {
  static const std::vector<CommandSpec> kCommands = {
      {"simulate",
       "does a scenario fit, how fast is it, and why",
       "SCENARIO",
       1,
       1,
       {kSet,
        kEngine,
        kFormat,
        {"events", "", "every op with its times: a list in json, the rows of csv", {}, false, {}},
        {"trace", "FILE", "write a Chrome trace (.json or .json.gz)", "file", false, {}},
        kReproducible,
        kOutput},
       "penstock simulate scenarios/gpt-2.2b-2bw.yaml\n"
       "penstock simulate my.yaml --set microbatches=32 --set cluster.inter='100 Gbps'\n"
       "penstock simulate my.yaml --trace run.json.gz     # open it in ui.perfetto.dev\n"
       "penstock simulate my.yaml --format json --events -o run.json",
       run_simulate,
       "file"},
      {"compare",
       "scenarios or results side by side",
       "A B [C...]",
       1,
       64,
       {kSet, kEngine, kFormat, kReproducible, kOutput},
       "penstock compare scenarios/gpt-2.2b-*.yaml\n"
       "penstock compare before.json after.json           # results of simulate --format json",
       run_compare,
       "file"},
      {"schedule list",
       "the schedules with their rules and formulas",
       "",
       0,
       0,
       {kFormat, kOutput},
       "penstock schedule list",
       run_schedule_list},
      {"schedule show",
       "draw a schedule in the terminal, with unitless op times",
       "NAME",
       1,
       1,
       {kSet,
        {"width",
         "COLUMNS",
         "columns to draw in; default: the terminal's, else 100",
         {},
         false,
         {}},
        kFormat,
        kOutput},
       "penstock schedule show 1f1b --set stages=4 --set microbatches=8\n"
       "penstock schedule show gpipe --set forward=1 --set backward=2 --set transfer=0.5\n"
       "keys: stages, microbatches, batches, forward, backward, backward_input, backward_weight, "
       "step,\n"
       "      transfer, transfers, and the pipeline's own (vertical_sync ...)",
       run_schedule_show,
       "schedule"},
      {"trace check",
       "does a Chrome trace obey the viewers' rules",
       "FILE",
       1,
       1,
       {kFormat},
       "penstock trace check run.json.gz",
       run_trace_check,
       "file"},
      {"list",
       "what is shipped: models, devices, clusters, schedules",
       "models|devices|clusters|schedules",
       1,
       1,
       {kFormat, kOutput},
       "penstock list models",
       run_list,
       "models|devices|clusters|schedules"},
      {"init",
       "a commented scenario to start from",
       "[FILE]",
       0,
       1,
       {{"schema", "", "the JSON Schema of scenarios instead, for editors", {}, false, {}},
        {"keys", "", "every key with its meaning instead (docs/scenario.md)", {}, false, {}}},
       "penstock init my.yaml && penstock simulate my.yaml",
       run_init,
       "file"},
      {"doctor",
       "what this machine can run, and why not",
       "",
       0,
       0,
       {kFormat},
       "penstock doctor",
       run_doctor},
      {"completion",
       "shell completion",
       "bash",
       1,
       1,
       {},
       "source <(penstock completion bash)",
       run_completion,
       "bash"},
  };
  return kCommands;
}

}  // namespace

std::span<const CommandSpec> commands() { return table(); }

}  // namespace penstock

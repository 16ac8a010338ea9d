// SPDX-License-Identifier: Apache-2.0
// penstock._core: what the package penstock needs of C++. Whatever computes does so without the
// interpreter's lock, and what may take long on a thread of its own (python/unlocked.hpp).
#include "base/module_path.hpp"
#include "cli/options.hpp"
#include "plan/search/questions.hpp"
#include "python/convert.hpp"
#include "python/run.hpp"
#include "python/unlocked.hpp"
#include "scenarios/keys.hpp"
#include "scenarios/overrides.hpp"
#include "sweep/elsewhere.hpp"

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <chrono>

namespace py = pybind11;

namespace penstock {
namespace {

using WithoutLock = py::call_guard<Unlocked>;
using Changes = std::vector<std::pair<std::string, std::string>>;

std::vector<Override> overrides_of(const Changes& changes) {
  std::vector<Override> overrides;
  for (const auto& [key, value] : changes) overrides.push_back({key, value});
  return overrides;
}

EngineChoice engine_named(const std::string& name) {
  const auto* const named = std::ranges::find(kEngineNames, name);
  if (named == std::end(kEngineNames))
    throw InputError("engine", "must be auto, exact, fluid or simgrid, got '" + name + "'");
  return EngineChoice(named - kEngineNames);
}

std::shared_ptr<Run> run_scenario(const std::shared_ptr<ReadScenario>& scenario,
                                  const Changes& changes, const std::string& engine) {
  const EngineChoice choice = engine_named(engine);
  std::optional<Scenario> resolved;
  {
    const Unlocked unlocked;
    resolved.emplace(scenario->resolve(overrides_of(changes)));
  }
  const bool quick = is_quick(*resolved);
  return interruptibly(quick, [scenario, choice, resolved = std::move(*resolved)]() mutable {
    return std::make_shared<Run>(scenario->simulate(std::move(resolved), choice), choice);
  });
}

py::object field_value(const std::shared_ptr<Run>& run, std::size_t number) {
  const auto value = interruptibly(run->is_quick(result_fields().at(number)), [run, number] {
    return run->value(result_fields().at(number));
  });
  return value ? to_python(*value) : py::ellipsis();
}

py::object whole(const std::shared_ptr<Run>& run) {
  return to_python(interruptibly(false, [run] { return run->json(); }));
}

std::string report(const std::shared_ptr<Run>& run) {
  return interruptibly(false, [run] { return run->report(); });
}

/// Of what the run keeps at the same place of every op: no copy, and the run lives as long as it.
template <class T>
py::array column(const py::object& run, const T* first, std::size_t count, std::size_t stride) {
  py::array array(py::dtype::of<T>(), {count}, {stride}, first, run);
  array.attr("setflags")(py::arg("write") = false);
  return array;
}

py::dict timeline(const py::object& object) {
  const auto& run = object.cast<const Run&>();
  const Simulation& s = run.simulation();
  const std::size_t ops = s.program.ops.size();
  static const Op kNone;
  static const Span kNever{};
  const Op* op = ops == 0 ? &kNone : &s.program.ops[0];
  const Span* span = ops == 0 ? &kNever : &std::as_const(*s.timeline).op(0);
  py::dict columns;
  columns["start"] = column(object, &span->start_s, ops, sizeof(Span));
  columns["end"] = column(object, &span->end_s, ops, sizeof(Span));
  columns["kind"] =
      column(object, reinterpret_cast<const std::uint8_t*>(&op->kind), ops, sizeof(Op));
  columns["stage"] = column(object, &op->stage, ops, sizeof(Op));
  columns["microbatch"] = column(object, &op->microbatch, ops, sizeof(Op));
  std::vector<std::uint32_t> ends;
  for (int d = 0; d < s.program.ops.devices(); ++d) ends.push_back(s.program.ops.end(d));
  columns["ends_of_devices"] = ends;
  return columns;
}

py::list fields() {
  py::list list;
  for (const Field<Summary>& f : result_fields())
    list.append(py::make_tuple(std::string(f.name), std::string(f.type), f.nullable,
                               std::string(kUnitNames[static_cast<std::size_t>(f.unit)]),
                               std::string(f.meaning)));
  return list;
}

/// May its value be any text, such as a name?
bool is_text_key(const std::string& key) {
  try {
    const KeyRow* const row = key_row(key_path(key, key));
    // What is missing may be a list, too.
    return row != nullptr && row->type == KeyRow::Type::text && !row->key.starts_with("missing");
  } catch (const InputError&) {
    return false;
  }
}

py::dict command_table() {
  py::dict table;
  for (const CommandSpec& command : commands()) {
    py::list options;
    for (const OptionSpec& o : command.options)
      options.append(py::make_tuple(std::string(o.name), std::string(o.value),
                                    std::string(o.choices), o.repeated, std::string(o.help)));
    table[py::str(std::string(command.name))] = py::make_tuple(
        std::string(command.summary), command.min_positional, command.max_positional, options);
  }
  return table;
}

/// What an executor's worker has: the points of a sweep or the candidates of a search.
class RemoteWork {
 public:
  explicit RemoteWork(const std::string& recipe) {
    if (is_problem(recipe))
      problem_.emplace(recipe);
    else
      points_.emplace(recipe);
  }

  /// Of as many items as take `seconds`, at least of one.
  py::list answers(const std::vector<std::string>& items, double seconds) const {
    std::vector<std::string> answers;
    {
      const Unlocked unlocked;
      const auto start = std::chrono::steady_clock::now();
      for (const std::string& item : items) {
        answers.push_back(problem_ ? problem_->answer(item) : points_->answer(item));
        if (std::chrono::steady_clock::now() - start > std::chrono::duration<double>(seconds))
          break;
      }
    }
    py::list list;
    for (const std::string& answer : answers) list.append(py::bytes(answer));
    return list;
  }

 private:
  std::optional<RemoteProblem> problem_;
  std::optional<RemotePoints> points_;
};

std::vector<std::string> kind_tokens() {
  std::vector<std::string> tokens;
  for (std::size_t kind = 0; kind < kOpKinds; ++kind)
    tokens.emplace_back(token(static_cast<OpKind>(kind)));
  return tokens;
}

}  // namespace
}  // namespace penstock

PYBIND11_MODULE(_core, m) {
  using namespace penstock;
  translate_errors();
  end_quietly_at_exit();
  m.attr("version") = PENSTOCK_VERSION;
  m.def("set_program_path", [](const std::string& path) { set_program_path(path); });
  m.def("data_folder", &data_folder);
  m.def("result_fields", &fields);
  m.def("parse_yaml", [](const std::string& text, const std::string& origin) {
    return to_python(parse_document(text, origin));
  });
  m.def("command_table", &command_table);
  m.def("is_text_key", &is_text_key);
  m.attr("kinds") = kind_tokens();
  py::class_<ReadScenario, std::shared_ptr<ReadScenario>>(m, "ReadScenario")
      .def_static("of_file", &ReadScenario::of_file, WithoutLock())
      .def_static("of_text", &ReadScenario::of_text, WithoutLock())
      .def_static("of_text_alone", &ReadScenario::of_text_alone, WithoutLock())
      .def("own_files", &ReadScenario::own_files)
      .def("simulate", &run_scenario);
  py::class_<RemoteWork>(m, "RemoteWork")
      .def(py::init<const std::string&>())
      .def("answers", &RemoteWork::answers);
  py::class_<Run, std::shared_ptr<Run>>(m, "Run")
      .def("value", &field_value)
      .def("json", &whole)
      .def("report", &report)
      .def("scenario", [](const Run& run) { return run.simulation().scenario.text(); })
      .def("timeline", &timeline);
}

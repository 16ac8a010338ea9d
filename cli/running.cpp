#include "cli/running.hpp"

#include "base/child_process.hpp"
#include "cli/perturbation_study.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace penstock {
namespace {

/// What the child sends: its kind of end in the first byte, then JSON or the error's text.
enum class ChildEnd : char { result = 'r', input_error = 'i', failure = 'f' };

std::string answer_of_child(const std::function<std::string()>& work) {
  const auto marked = [](ChildEnd ended, const std::string& text) {
    return static_cast<char>(ended) + text;
  };
  try {
    return marked(ChildEnd::result, work());
  } catch (const InputError& error) {
    return marked(ChildEnd::input_error, error.what());
  } catch (const std::exception& error) {
    return marked(ChildEnd::failure, error.what());
  }
}

}  // namespace

std::vector<Override> overrides_of(const Arguments& arguments) {
  std::vector<Override> overrides;
  for (const std::string& text : arguments.values("set")) overrides.push_back(parse_override(text));
  return overrides;
}

void require_file(const std::string& path) {
  if (::access(path.c_str(), R_OK) != 0)
    throw InputError(path, std::string("cannot be read: ") + std::strerror(errno));
}

EngineChoice engine_of(const Arguments& arguments) {
  const std::string name = arguments.value("engine", "simgrid");
  return name == "exact"  ? EngineChoice::exact
         : name == "auto" ? EngineChoice::automatic
                          : EngineChoice::simgrid;
}

std::string in_child(const std::string& path, const std::string& done,
                     const std::function<std::string()>& work) {
  const ChildResult child = run_in_child(path, [&] { return answer_of_child(work); });
  if (!child.answer)
    throw SystemError("'" + path + "' could not be " + done + ": ended without a result, " +
                      how_it_ended(child.status));
  const std::string& answer = *child.answer;
  std::string text = answer.substr(1);
  switch (static_cast<ChildEnd>(answer[0])) {
    case ChildEnd::result: return text;
    case ChildEnd::input_error: {
      throw InputError(path, "cannot be " + done + "\n" + text);
    }
    case ChildEnd::failure: break;
  }
  throw SystemError(text);
}

ChildSimulation simulate_in_child(const std::string& path, const std::vector<Override>& overrides,
                                  EngineChoice engine, const OutputOptions& options,
                                  const std::function<std::string(const Simulation&)>& section) {
  Json answer = Json::parse(in_child(path, "simulated", [&] {
    const Scenario scenario = load_scenario(path, overrides);
    const auto perturbed = study_perturbations(scenario, engine);
    const Simulation s = simulate(scenario, engine);
    Result result = summarize(s);
    result.perturbed = perturbed;
    return Json{{"result", to_json(s, result, options)}, {"section", section ? section(s) : ""}}
        .dump();
  }));
  return {std::move(answer["result"]), answer["section"].get<std::string>()};
}

}  // namespace penstock

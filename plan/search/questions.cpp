// SPDX-License-Identifier: Apache-2.0
#include "plan/search/questions.hpp"

#include "base/json_fields.hpp"

namespace penstock {

constexpr const auto& names_of(Sharded) { return kShardedNames; }

void each_field(Like<Shape> auto& s, auto&& visit) {
  VISIT_FIELDS(visit, s, depth, width, tensor, microbatch_size, microbatches, sequence_parallel,
               sharded, context, expert);
}

void each_field(Like<Arrangement> auto& a, auto&& visit) {
  VISIT_FIELDS(visit, a, placement, rank_order);
}

Json field_json(const Schedule* const& schedule) { return schedule->name; }
void take_field(const Place& at, const Json& json, const Schedule*& schedule) {
  schedule = json.is_string() ? find_schedule(json.get<std::string>()) : nullptr;
  if (schedule == nullptr) at.wrong("the name of a schedule", json);
}

constexpr const auto& names_of(Checkpoint) { return kCheckpointNames; }

Json field_json(const std::vector<Recomputation>& stages) {
  Json json = Json::array();
  for (const Recomputation& r : stages) json.push_back(to_string(r));
  return json;
}
void take_field(const Place& at, const Json& json, std::vector<Recomputation>& stages) {
  for (const Json& text : json) {
    const auto named = recomputation_named(text.get<std::string>());
    if (!named) return at.wrong("recomputations", json);
    stages.push_back(*named);
  }
}

void each_field(Like<PlanFamily> auto& f, auto&& visit) {
  VISIT_FIELDS(visit, f, shape, schedule, chunks, arrangement, checkpoint);
}

void each_field(Like<Choice> auto& c, auto&& visit) {
  VISIT_FIELDS(visit, c, family, layers, recompute, widths);
  visit("split", c.divided);
  VISIT_FIELDS(visit, c, placed, overlaps);
}

void each_field(Like<Question> auto& q, auto&& visit) { VISIT_FIELDS(visit, q, choice, answer); }

Json field_json(const Overfull& overfull) {
  Json json = Json::array();
  for (const auto& [position, held] : overfull)
    json.push_back({position, held.bytes, held.capacity_bytes});
  return json;
}
void take_field(const Place&, const Json& json, Overfull& overfull) {
  for (const Json& one : json)
    overfull[one.at(0).get<int>()] = {one.at(1).get<double>(), one.at(2).get<double>()};
}

void each_field(Like<Judgement> auto& j, auto&& visit) {
  visit("fits", j.fits);
  visit("iteration_time_s", j.iteration_time_s, FieldRange{0, 1e30, true});
  VISIT_FIELDS(visit, j, memory_bytes, tightest_bytes, capacity_bytes, overfull, engine, why,
               main_cause, mfu, mfu_causal);
}

void each_field(Like<Looked> auto& l, auto&& visit) {
  VISIT_FIELDS(visit, l, judgement, exact, samples_per_update, reasons, scenario, cannot_run,
               unanswered);
}

void each_field(Like<NumberedLook> auto& n, auto&& visit) {
  VISIT_FIELDS(visit, n, number, looked);
}

void each_field(Like<ProblemRecipe> auto& r, auto&& visit) {
  VISIT_FIELDS(visit, r, text, origin, batch, headroom);
}

namespace {

/// Is every message alone on its link? Asked only where that may be: it lays out all replicas.
bool shares_nothing(const Scenario& scenario) {
  const Cluster& cluster = scenario.cluster;
  const bool may = cluster.link || (!cluster.network && cluster.attachment == Attachment::pairs);
  return may && uses_exact(prepare(scenario), EngineChoice::automatic);
}

void bound_of(const Problem& problem, const Scenario& scenario, Looked& looked) {
  looked.judgement = relaxed(scenario, problem.plain_reduction(), problem.programs());
  looked.exact = !looked.judgement.fits || looked.judgement.engine == "exact";
  if (looked.exact || !shares_nothing(scenario)) return;
  looked.exact = true;
  looked.judgement = judge(scenario, EngineChoice::exact, nullptr, problem.programs());
}

template <class T>
T parsed(std::string_view text) {
  try {
    JsonProblems problems("message");
    const Place whole(problems);
    T value;
    take_value(whole, Json::parse(text), value);
    problems.throw_if_any();
    return value;
  } catch (const std::exception& error) {
    throw SystemError(fmt::format("a message of the search is garbled: {}", error.what()));
  }
}

Problem problem_of(const ProblemRecipe& recipe) {
  return Problem(recipe.text, recipe.origin, recipe.batch, recipe.headroom);
}

struct NumberedQuestion {
  std::uint64_t number = 0;
  Question question;
};
void each_field(Like<NumberedQuestion> auto& n, auto&& visit) {
  VISIT_FIELDS(visit, n, number, question);
}

}  // namespace

Looked look_at(const Problem& problem, const Question& question) {
  Looked looked;
  try {
    const Scenario scenario = problem.resolve(question.choice);
    looked.samples_per_update = scenario.samples_per_update();
    if (question.answer) {
      looked.scenario = scenario.text();
      looked.judgement =
          judge(scenario, EngineChoice::automatic, &looked.reasons, problem.programs());
    } else {
      bound_of(problem, scenario, looked);
    }
  } catch (const InputError& error) {
    looked.cannot_run = error.what();
  } catch (const SystemError& error) {
    looked.unanswered = error.what();
  }
  return looked;
}

std::string to_json(const ProblemRecipe& recipe) {
  return Json{{"problem", to_field(recipe)}}.dump();
}

bool is_problem(const std::string& recipe) { return recipe.starts_with("{\"problem\":"); }

std::string to_json(std::uint64_t number, const Question& question) {
  return to_field(NumberedQuestion{number, question}).dump();
}

NumberedLook numbered_look(std::string_view answer) { return parsed<NumberedLook>(answer); }

std::optional<std::string> QuestionItems::next() {
  if (asked_ == questions_.size()) return std::nullopt;
  const std::size_t number = asked_++;
  return to_json(number, questions_[number]);
}

void QuestionItems::take_answer(std::string_view answer) {
  NumberedLook look = numbered_look(answer);
  answers_.at(look.number) = std::move(look.looked);
}

RemoteProblem::RemoteProblem(const std::string& recipe)
    : problem_(problem_of(parsed<ProblemRecipe>(Json::parse(recipe).at("problem").dump()))) {}

std::string RemoteProblem::answer(std::string_view item) const {
  const auto asked = parsed<NumberedQuestion>(item);
  return to_field(NumberedLook{asked.number, look_at(problem_, asked.question)}).dump();
}

}  // namespace penstock

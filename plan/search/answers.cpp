// SPDX-License-Identifier: Apache-2.0
#include "plan/search/answers.hpp"

#include "base/error.hpp"

#include <algorithm>

namespace penstock {

double Answers::elapsed_s() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - started_).count();
}

bool Answers::confirms() const {
  return options_.confirm && confirmed() < options_.most_confirmations &&
         (confirmations_ == 0 || affordable());
}

bool Answers::confirms_of_orders() const {
  return options_.confirm && of_orders_ < 2 * options_.most_confirmations && affordable();
}

bool Answers::affordable() const {
  return confirmed_ops_ < options_.most_confirmed_ops &&
         elapsed_s() + longest_s_ < options_.most_seconds;
}

void Answers::confirm(const PlanFamily& family) {
  ++confirmations_;
  spend(family);
}

void Answers::spend(const PlanFamily& family) {
  confirmed_ops_ += 2 * family.stages() * family.shape.microbatches * family.shape.width;
}

Judgement Answers::judgement_of(const Scenario& scenario) {
  const double samples = scenario.samples_per_update();
  if (!options_.confirm)
    return per_batch(judge(scenario, EngineChoice::exact, nullptr, problem_.programs()), samples);
  return timed([&] { return per_batch(options_.confirm(scenario), samples); });
}

Judgement Answers::judgement_of(const SearchNode& node, SearchQueue& behind, double best) {
  if (!options_.others) return judgement_of(problem_.resolve(node.candidate));
  return timed([&] {
    const Looked looked = look(node.candidate, behind, true, best);
    if (!looked.unanswered.empty()) throw SystemError(looked.unanswered);
    if (!looked.cannot_run.empty()) throw InputError("plan", looked.cannot_run);
    return per_batch(looked.judgement, looked.samples_per_update);
  });
}

template <class Work>
Judgement Answers::timed(Work&& work) {
  const double began_s = elapsed_s();
  const auto took = [&] { longest_s_ = std::max(longest_s_, elapsed_s() - began_s); };
  try {
    const Judgement judgement = work();
    took();
    return judgement;
  } catch (const SystemError& error) {  // the process died, not the plan
    took();
    ++unanswered_;
    unanswered_because_ = error.what();
    throw;
  }
}

Looked Answers::look(const Candidate& candidate, SearchQueue& behind, bool answer, double best) {
  const Question question{problem_.choice(candidate), answer};
  if (!options_.others) return look_at(problem_, question);
  const std::string key = to_json(0, question);
  if (!looked_.contains(key)) ask_others(question, key, behind, best);
  return std::move(looked_.extract(key).mapped());
}

void Answers::ask_others(const Question& question, const std::string& key, SearchQueue& behind,
                         double best) {
  std::vector<Question> questions{question};
  std::vector<std::string> keys{key};
  const std::size_t done = std::min(confirmed(), options_.most_confirmations);
  const std::size_t most =
      std::min(options_.others->at_once(),
               question.answer ? options_.most_confirmations - done + 1 : SIZE_MAX);
  std::vector<SearchNode> passed;
  while (!behind.empty() && questions.size() < most && passed.size() < 4 * most) {
    passed.push_back(take_node(behind));
    const SearchNode& node = passed.back();
    const auto level = question.answer ? SearchNode::relaxed : SearchNode::cut;
    if (node.level != level || is_hopeless(node.bound, best)) continue;
    Question next{problem_.choice(node.candidate), question.answer};
    std::string name = to_json(0, next);
    if (looked_.contains(name) || std::ranges::find(keys, name) != keys.end()) continue;
    questions.push_back(std::move(next));
    keys.push_back(std::move(name));
  }
  for (SearchNode& node : passed) behind.push(std::move(node));
  std::vector<Looked> answers = options_.others->look_at(questions);
  for (std::size_t i = 0; i < keys.size(); ++i) looked_[keys[i]] = std::move(answers[i]);
}

Judgement Answers::per_batch(Judgement judgement, double samples) const {
  judgement.iteration_time_s *= static_cast<double>(problem_.batch()) / samples;
  return judgement;
}

void Answers::tell(SearchResult& result) const {
  result.confirmations = confirmations_;
  result.unanswered = unanswered_;
  result.unanswered_because = unanswered_because_;
}

}  // namespace penstock

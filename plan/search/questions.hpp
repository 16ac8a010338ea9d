// SPDX-License-Identifier: Apache-2.0
// What the search asks of one candidate, so that others can be asked, several at a time: processes
// on other machines that have the same problem.
#pragma once

#include "plan/search/candidate.hpp"
#include "plan/search/judgement.hpp"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace penstock {

struct Question {
  Choice choice;
  /// `judge` by the engine that is valid; else `relaxed`, and `exact` where that is the answer.
  bool answer = false;
};

/// Times are those of the scenario, not of the problem's batch.
struct Looked {
  Judgement judgement{};
  bool exact = false;  ///< of a bound: it is the answer, or does not fit
  double samples_per_update = 0;
  std::vector<std::string> reasons;  ///< of an answer: what limits it
  std::string scenario;              ///< of an answer: its text
  std::string cannot_run;            ///< InputError's
  std::string unanswered;            ///< SystemError's: the process died, not the plan
};

/// Asked here. Throws nothing that is about the candidate.
Looked look_at(const Problem& problem, const Question& question);

/// Those who look at candidates in place of this process.
struct Others {
  /// Answers, in the order of the questions. Throws SystemError when nobody is there to answer.
  std::function<std::vector<Looked>(const std::vector<Question>&)> look_at;
  std::function<std::size_t()> at_once;  ///< how many questions they would take now
};

/// What another process makes the same problem of.
struct ProblemRecipe {
  std::string text, origin;
  std::int64_t batch = 0;
  double headroom = 0;
};
std::string to_json(const ProblemRecipe& recipe);
/// Is the recipe that of a problem?
bool is_problem(const std::string& recipe);

/// An item has a number, which its answer repeats.
std::string to_json(std::uint64_t number, const Question& question);
struct NumberedLook {
  std::uint64_t number = 0;
  Looked looked;
};
/// Throws SystemError for what is none.
NumberedLook numbered_look(std::string_view answer);

/// Questions as items for other processes, and what becomes of them.
class QuestionItems {
 public:
  /// `questions` must outlive it.
  explicit QuestionItems(const std::vector<Question>& questions)
      : questions_(questions), answers_(questions.size()) {}

  /// Nothing: there are no more.
  std::optional<std::string> next();
  /// Throws SystemError for what is none.
  void take_answer(std::string_view answer);
  /// In the order of the questions, when all are taken.
  std::vector<Looked> answers() { return std::move(answers_); }

 private:
  const std::vector<Question>& questions_;
  std::vector<Looked> answers_;
  std::size_t asked_ = 0;
};

/// Another process's end of a search.
class RemoteProblem {
 public:
  /// Of what `to_json` wrote. Throws InputError.
  explicit RemoteProblem(const std::string& recipe);
  /// Thread-safe.
  std::string answer(std::string_view item) const;

 private:
  Problem problem_;
};

}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
// The questions that the search asks about candidates, as messages, so that processes on other
// machines that have the same problem can answer several at a time.
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
  /// Whether to `judge` the choice by the engine that is valid; else `relaxed` gives a bound.
  bool answer = false;
};

/// What a choice takes. Times are those of the scenario, not of the problem's batch.
struct Looked {
  Judgement judgement{};
  bool exact = false;  ///< whether a bound is the answer, or the plan does not fit
  double samples_per_update = 0;
  std::vector<std::string> reasons;  ///< what limits the plan; of an answer alone
  std::string scenario;              ///< the text of the scenario; of an answer alone
  std::string cannot_run;            ///< the message of InputError
  std::string unanswered;            ///< the message of SystemError, which is not about the plan
};

/// Answers a question in this process. Throws nothing that is about the candidate.
Looked look_at(const Problem& problem, const Question& question);

/// Processes that evaluate candidates in place of this one.
struct Others {
  /// Returns the answers in the order of the questions. Throws SystemError when no process is there
  /// to answer.
  std::function<std::vector<Looked>(const std::vector<Question>&)> look_at;
  std::function<std::size_t()> at_once;  ///< returns how many questions they would take now
};

/// What another process needs to make the same problem.
struct ProblemRecipe {
  std::string text, origin;
  std::int64_t batch = 0;
  double headroom = 0;
};
std::string to_json(const ProblemRecipe& recipe);
/// Returns whether the recipe is that of a problem.
bool is_problem(const std::string& recipe);

/// Returns a question as an item. Its answer repeats the number.
std::string to_json(std::uint64_t number, const Question& question);
struct NumberedLook {
  std::uint64_t number = 0;
  Looked looked;
};
/// Returns the answer of a message. Throws SystemError when it is none.
NumberedLook numbered_look(std::string_view answer);

/// Hands out questions as items for other processes, and collects their answers.
class QuestionItems {
 public:
  /// Keeps a reference to the questions, which must outlive it.
  explicit QuestionItems(const std::vector<Question>& questions)
      : questions_(questions), answers_(questions.size()) {}

  /// Returns the next item, or none when there are no more.
  std::optional<std::string> next();
  /// Takes an answer. Throws SystemError when it is none.
  void take_answer(std::string_view answer);
  /// Returns the answers in the order of the questions. Requires that all were taken.
  std::vector<Looked> answers() { return std::move(answers_); }

 private:
  const std::vector<Question>& questions_;
  std::vector<Looked> answers_;
  std::size_t asked_ = 0;
};

/// The other process's end of a search.
class RemoteProblem {
 public:
  /// Makes the problem of a recipe that `to_json` wrote. Throws InputError.
  explicit RemoteProblem(const std::string& recipe);
  /// Returns the answer to an item. Thread-safe.
  std::string answer(std::string_view item) const;

 private:
  Problem problem_;
};

}  // namespace penstock

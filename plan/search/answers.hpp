// SPDX-License-Identifier: Apache-2.0
// Obtains what candidates take, from this process or from others, several candidates at a time,
// within limits on their number, their ops and the time.
#pragma once

#include "plan/search/search.hpp"
#include "plan/search/search_queue.hpp"

#include <chrono>
#include <map>
#include <string>

namespace penstock {

class Answers {
 public:
  /// Keeps references to both, which must outlive it.
  Answers(const Problem& problem, const SearchOptions& options)
      : problem_(problem), options_(options) {}

  /// Returns the seconds since it was made.
  double elapsed_s() const;
  /// Returns whether another candidate may be confirmed.
  bool confirms() const;
  /// Returns whether another cut nearest to the bound of an order may be confirmed; these are
  /// counted by themselves.
  bool confirms_of_orders() const;
  /// Returns whether there is time for another answer that takes as long as the longest so far.
  bool affordable() const;
  /// Returns how many were confirmed, without those of orders.
  std::size_t confirmed() const { return confirmations_ - of_orders_; }
  /// Counts a candidate of this family that will be confirmed.
  void confirm(const PlanFamily& family);
  void confirm_of_orders() { ++of_orders_; }
  /// Counts the ops of a candidate of this family that is confirmed beyond the number of
  /// confirmations.
  void spend(const PlanFamily& family);

  /// Returns the answer of an engine, with the time of the problem's batch. Throws InputError where
  /// the plan cannot run, and SystemError where there was no answer.
  Judgement judgement_of(const Scenario& scenario);
  /// Returns the same for a node; see `look` about `behind` and `best`.
  Judgement judgement_of(const SearchNode& node, SearchQueue& behind, double best);
  /// Returns what the candidate takes. Others are asked about candidates in the queue behind it as
  /// well, as far as these may cost less than `best`.
  Looked look(const Candidate& candidate, SearchQueue& behind, bool answer, double best);
  Judgement per_batch(Judgement judgement, double samples) const;

  void tell(SearchResult& result) const;

 private:
  template <class Work>
  Judgement timed(Work&& work);
  void ask_others(const Question& question, const std::string& key, SearchQueue& behind,
                  double best);

  const Problem& problem_;
  const SearchOptions& options_;
  std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
  double longest_s_ = 0;  // that an answer took
  std::int64_t confirmed_ops_ = 0;
  std::size_t confirmations_ = 0, of_orders_ = 0, unanswered_ = 0;
  std::string unanswered_because_;
  std::map<std::string, Looked> looked_;  // by others, and not asked for yet
};

}  // namespace penstock

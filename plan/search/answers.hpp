// SPDX-License-Identifier: Apache-2.0
// Who is asked for what candidates take: this process, or others, several candidates at a time; and
// how much may still be asked, by number, by ops and by time.
#pragma once

#include "plan/search/search.hpp"
#include "plan/search/search_queue.hpp"

#include <chrono>
#include <map>
#include <string>

namespace penstock {

class Answers {
 public:
  /// Both must outlive it.
  Answers(const Problem& problem, const SearchOptions& options)
      : problem_(problem), options_(options) {}

  double elapsed_s() const;
  /// May another one be confirmed?
  bool confirms() const;
  /// Cuts nearest to the bound of an order are confirmed beside the others.
  bool confirms_of_orders() const;
  /// Is there time for another one as long as the longest so far?
  bool affordable() const;
  /// Beside those of orders.
  std::size_t confirmed() const { return confirmations_ - of_orders_; }
  /// Counts one that will be asked for.
  void confirm(const PlanFamily& family);
  void confirm_of_orders() { ++of_orders_; }
  /// Counts what is asked for beside them.
  void spend(const PlanFamily& family);

  /// The answer of an engine, its time that of the problem's batch. Throws InputError where the
  /// plan cannot run, SystemError where nothing was answered.
  Judgement judgement_of(const Scenario& scenario);
  /// The same, of what is at the head of `behind`'s queue; see `look`.
  Judgement judgement_of(const SearchNode& node, SearchQueue& behind, double best);
  /// What is known of the candidate. Others are asked about those in the queue behind it as well,
  /// as far as they may be better than the best.
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

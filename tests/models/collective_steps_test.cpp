// SPDX-License-Identifier: Apache-2.0
// The steps of collectives, executed on texts: who ends with which sum, in which order it was made,
// and that what moves is what is predicted.
#include "models/collective_steps.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <random>
#include <set>
#include <string>

namespace penstock::collective_steps_test {
namespace {

using Steps = std::vector<CollectiveStep>;
using Kind = CollectiveStep::Kind;
/// By GPU: what it has, a text per element. "(0+1)" is the sum of GPUs 0 and 1.
using State = std::map<int, std::vector<std::string>>;

/// Of two sums the order of their terms is no matter; that of several sums is.
std::string sum(const std::string& a, const std::string& b) {
  return "(" + std::min(a, b) + "+" + std::max(a, b) + ")";
}

/// Executes the steps with members side by side, in an order of the generator's choice: of the
/// members that can go on, one does. False where all wait for a message that nobody sends.
bool execute(const Steps& steps, State& state, std::mt19937& random) {
  std::map<int, std::deque<CollectiveStep>> own;
  for (const CollectiveStep& step : steps) own[step.gpu].push_back(step);
  std::map<std::pair<int, int>, std::deque<std::vector<std::string>>> wires;
  std::map<int, std::vector<std::string>> piles;
  for (std::size_t left = steps.size(); left > 0; --left) {
    std::vector<int> ready;
    for (const auto& [gpu, rest] : own) {
      if (rest.empty()) continue;
      const CollectiveStep& next = rest.front();
      if (next.kind == Kind::send || !wires[{next.peer, gpu}].empty()) ready.push_back(gpu);
    }
    if (ready.empty()) return false;
    const int gpu = ready[random() % ready.size()];
    const CollectiveStep step = own[gpu].front();
    own[gpu].pop_front();
    std::vector<std::string>& here = state.at(gpu);
    if (step.kind == Kind::send) {
      wires[{gpu, step.peer}].emplace_back(here.begin() + step.first, here.begin() + step.end);
      continue;
    }
    std::vector<std::string> came = wires[{step.peer, gpu}].front();
    wires[{step.peer, gpu}].pop_front();
    EXPECT_EQ(std::ssize(came), step.end - step.first);
    auto& pile = piles[gpu];
    for (std::size_t i = 0; i < pile.size(); ++i) came[i] = sum(came[i], pile[i]);
    pile.clear();
    if (step.kind == Kind::pile) pile = came;
    for (std::size_t i = 0; i < came.size() && step.kind != Kind::pile; ++i) {
      std::string& own_element = here[static_cast<std::size_t>(step.first) + i];
      own_element = step.kind == Kind::add ? sum(own_element, came[i]) : came[i];
    }
  }
  return true;
}

State start(const std::vector<int>& gpus, std::int64_t elements) {
  State state;
  for (const int gpu : gpus)
    state[gpu].assign(static_cast<std::size_t>(elements), std::to_string(gpu));
  return state;
}

/// The GPUs in a sum, each as often as it is there.
std::multiset<int> terms(const std::string& text) {
  std::multiset<int> found;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (std::isdigit(static_cast<unsigned char>(text[i])) == 0) continue;
    std::size_t length = 0;
    found.insert(std::stoi(text.substr(i), &length));
    i += length - 1;
  }
  return found;
}

constexpr ReductionAlgorithm kAlgorithms[] = {
    ReductionAlgorithm::ring, ReductionAlgorithm::hierarchical, ReductionAlgorithm::tree,
    ReductionAlgorithm::server, ReductionAlgorithm::all_to_all};

/// Groups of GPUs, with where they are.
struct Members {
  std::vector<int> gpus;
  NodeOf node_of;
  const char* what;
};

std::vector<Members> groups() {
  std::vector<Members> all;
  for (int n = 2; n <= 9; ++n) {
    std::vector<int> gpus;
    for (int i = 0; i < n; ++i) gpus.push_back(i);
    all.push_back({gpus, [](int) { return 0; }, "one node"});
    all.push_back({gpus, [](int gpu) { return gpu; }, "a node each"});
    all.push_back({gpus, [](int gpu) { return gpu / 2; }, "pairs"});
    all.push_back({gpus, [](int gpu) { return gpu / 3; }, "threes"});
  }
  all.push_back({{11, 3, 7, 2}, [](int gpu) { return gpu / 8; }, "in no order"});
  return all;
}

TEST(CollectiveSteps, OfAnAllReduceLeaveEveryMemberWithEachGradientOnceInOneOrder) {
  std::mt19937 random(1);
  for (const ReductionAlgorithm algorithm : kAlgorithms) {
    for (const auto& [gpus, node_of, what] : groups()) {
      for (const std::int64_t elements : {1, 7, 64}) {
        const std::string name(kReductionNames[static_cast<int>(algorithm)]);
        SCOPED_TRACE(name + " of " + std::to_string(gpus.size()) + ", " + what);
        State state = start(gpus, elements);
        const Steps steps =
            collective_steps(Collective::all_reduce, algorithm, gpus, node_of, elements, 2);
        ASSERT_TRUE(execute(steps, state, random));
        const std::vector<std::string> sums = state.at(gpus[0]);
        for (const std::string& each : sums)
          ASSERT_EQ(terms(each), std::multiset<int>(gpus.begin(), gpus.end()));
        for (const int gpu : gpus) ASSERT_EQ(state.at(gpu), sums);
      }
    }
  }
}

TEST(CollectiveSteps, MoveWhatIsPredictedBetweenEveryTwo) {
  // Divisible by all numbers of members, halves and pieces.
  constexpr std::int64_t kElements = 2 * 8 * 5 * 7 * 27 * 8;
  const auto moved = [&](const Steps& steps) {
    std::map<std::pair<int, int>, double> shares;
    for (const CollectiveStep& s : steps)
      if (s.kind == Kind::send)
        shares[{s.gpu, s.peer}] += static_cast<double>(s.end - s.first) / kElements;
    return shares;
  };
  for (const Collective what :
       {Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather}) {
    for (const ReductionAlgorithm algorithm : kAlgorithms) {
      if (what != Collective::all_reduce && algorithm > ReductionAlgorithm::hierarchical) continue;
      for (const auto& [gpus, node_of, where] : groups()) {
        std::map<std::pair<int, int>, double> predicted;
        const auto phases = phases_of({what, algorithm, 2}, gpus, node_of);
        for (const CollectivePhase& phase : phases)
          for (const CollectiveFlow& flow : phase.flows)
            predicted[{flow.from, flow.to}] += flow.share;
        const auto executed = moved(collective_steps(what, algorithm, gpus, node_of, kElements, 2));
        ASSERT_EQ(executed.size(), predicted.size());
        for (const auto& [edge, share] : executed)
          ASSERT_NEAR(share, predicted.at(edge), 1e-12)
              << kReductionNames[static_cast<int>(algorithm)] << " of " << gpus.size() << ", "
              << where << ": " << edge.first << " to " << edge.second;
      }
    }
  }
}

/// Returns when the last member has all, where an element takes so long on its way, whatever else
/// is on its way, and a send holds nobody.
double longest_way(const Steps& steps, double per_element) {
  std::map<int, double> now;
  std::map<std::pair<int, int>, std::deque<double>> arrivals;
  for (const CollectiveStep& s : steps) {
    if (s.kind == Kind::send) {
      arrivals[{s.gpu, s.peer}].push_back(now[s.gpu] +
                                          per_element * static_cast<double>(s.end - s.first));
    } else {
      auto& arrived = arrivals[{s.peer, s.gpu}];
      now[s.gpu] = std::max(now[s.gpu], arrived.front());
      arrived.pop_front();
    }
  }
  double last = 0;
  for (const auto& [gpu, end] : now) last = std::max(last, end);
  return last;
}

TEST(CollectiveSteps, KeepNobodyWaitingForWhatItNeedNotSendFirst) {
  const auto one_node = [](int) { return 0; };
  for (int n = 2; n <= 9; ++n) {
    std::vector<int> gpus;
    for (int i = 0; i < n; ++i) gpus.push_back(i);
    const std::int64_t elements = 5040;
    const auto way = [&](Collective what, ReductionAlgorithm algorithm) {
      return longest_way(collective_steps(what, algorithm, gpus, one_node, elements, n),
                         1.0 / static_cast<double>(elements));
    };
    const double chunk = 1.0 / n;
    EXPECT_NEAR(way(Collective::all_reduce, ReductionAlgorithm::ring), 2 * (n - 1) * chunk, 1e-9);
    EXPECT_NEAR(way(Collective::all_gather, ReductionAlgorithm::ring), (n - 1) * chunk, 1e-9);
    EXPECT_NEAR(way(Collective::all_reduce, ReductionAlgorithm::server), 2 * chunk, 1e-9);
  }
}

TEST(CollectiveSteps, SumInTheOrderThatIsStated) {
  std::mt19937 random(2);
  const auto summed = [&](ReductionAlgorithm algorithm, const NodeOf& node_of, int servers = 1) {
    State state = start({0, 1, 2, 3}, 4);
    EXPECT_TRUE(execute(
        collective_steps(Collective::all_reduce, algorithm, {0, 1, 2, 3}, node_of, 4, servers),
        state, random));
    return state.at(2);
  };
  const auto left = [](int a, int b, int c, int d) {
    const auto text = [](int gpu) { return std::to_string(gpu); };
    return sum(sum(sum(text(a), text(b)), text(c)), text(d));
  };
  using Texts = std::vector<std::string>;
  const auto one_node = [](int) { return 0; };
  EXPECT_EQ(summed(ReductionAlgorithm::ring, one_node),
            (Texts{left(1, 2, 3, 0), left(2, 3, 0, 1), left(3, 0, 1, 2), left(0, 1, 2, 3)}));
  EXPECT_EQ(summed(ReductionAlgorithm::all_to_all, one_node), Texts(4, left(0, 1, 2, 3)));
  EXPECT_EQ(summed(ReductionAlgorithm::server, one_node), Texts(4, left(0, 1, 2, 3)));
  EXPECT_EQ(summed(ReductionAlgorithm::server, one_node, 2)[3], left(1, 0, 2, 3));
  EXPECT_EQ(summed(ReductionAlgorithm::hierarchical, [](int gpu) { return gpu / 2; }),
            Texts(4, sum(sum("0", "1"), sum("2", "3"))));
}

TEST(CollectiveSteps, OfAReduceScatterLeaveTheChunkOfItsPlaceAtEachAndAnAllGatherBeginsThere) {
  std::mt19937 random(3);
  const std::vector<int> gpus{0, 1, 2, 3, 4};
  const auto one_node = [](int) { return 0; };
  State state = start(gpus, 10);
  ASSERT_TRUE(execute(
      collective_steps(Collective::reduce_scatter, ReductionAlgorithm::ring, gpus, one_node, 10),
      state, random));
  std::vector<std::string> sums;
  for (const int gpu : gpus) {
    for (const int element : {2 * gpu, 2 * gpu + 1}) {
      sums.push_back(state.at(gpu)[static_cast<std::size_t>(element)]);
      EXPECT_EQ(terms(sums.back()), std::multiset<int>(gpus.begin(), gpus.end()));
    }
  }
  ASSERT_TRUE(execute(
      collective_steps(Collective::all_gather, ReductionAlgorithm::ring, gpus, one_node, 10), state,
      random));
  for (const int gpu : gpus) EXPECT_EQ(state.at(gpu), sums);
}

TEST(CollectiveSteps, OfOneAreNone) {
  for (const ReductionAlgorithm algorithm : kAlgorithms)
    EXPECT_TRUE(collective_steps(
                    Collective::all_reduce, algorithm, {3}, [](int) { return 0; }, 5)
                    .empty());
}

}  // namespace
}  // namespace penstock::collective_steps_test

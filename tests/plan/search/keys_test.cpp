// SPDX-License-Identifier: Apache-2.0
// No key of a scenario vanishes in its plans: each is chosen, kept, said to be left out, or
// refused.
#include "plan/search/candidate.hpp"
#include "scenarios/keys.hpp"
#include "scenarios/overrides.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace penstock {
namespace {

const char* const kJob =
    "model: gpt-1.3b\ncluster: dgx-a100\nstack: none\nschedule: 1f1b\npipeline: {stages: 2}\n";

/// A value that the key may have, and that is none of the usual ones.
std::string value_for(const KeyRow& row) {
  using T = KeyRow::Type;
  switch (row.type) {
    case T::boolean: return "true";
    case T::choice:
    case T::choice_per_stage:
    case T::split:
    case T::gpus: return split_choices(row.choices).back();
    case T::quantity: return row.dimension == Dimension::bytes ? "8 MiB" : "2";
    case T::text: return "a name";
    case T::section: return "";
    default: return "2";
  }
}

std::vector<const KeyRow*> rows_of(std::string_view section) {
  std::vector<const KeyRow*> rows;
  for (const KeyRow& row : key_table())
    if (row.section == section) rows.push_back(&row);
  return rows;
}

Problem problem_with(const std::string& key, const std::string& value) {
  Value document = parse_document(kJob, "job.yaml");
  Diagnostics diagnostics;
  apply_overrides(document, std::vector<Override>{{key, value}}, diagnostics);
  diagnostics.throw_if_any();
  return Problem(std::move(document), "job.yaml", 8);
}

Choice small_choice(const Problem& problem) {
  PlanFamily family{.shape = {.depth = 2, .microbatches = 8}, .schedule = find_schedule("1f1b")};
  return problem.choice({family, {12, 12}});
}

TEST(PlannedKeys, EveryKeyOfTheTableHasATreatment) {
  for (const std::string_view section : {"scenario", "pipeline"}) {
    ASSERT_GT(rows_of(section).size(), 10U);
    for (const KeyRow* row : rows_of(section))
      EXPECT_TRUE(treatment_of(section, row->key))
          << section << "." << row->key
          << ": say in plan/search/candidate.cpp what plans make of it";
  }
  EXPECT_EQ(treatment_of("pipeline", "no_such_key"), std::nullopt);
}

TEST(PlannedKeys, OfThePipelineAreKeptOrSaid) {
  for (const KeyRow* row : rows_of("pipeline")) {
    if (row->type == KeyRow::Type::section) continue;  // see the next test
    const std::string key(row->key), value = value_for(*row);
    SCOPED_TRACE(fmt::format("{}: {}", key, value));
    const Problem problem = problem_with("pipeline." + key, value);
    const Scenario planned = problem.resolve(small_choice(problem));
    const Value* kept = value_at(planned.source.document(), {"pipeline", key});
    const std::vector<std::string> said{fmt::format("pipeline.{}: {}", key, value)};
    switch (treatment_of("pipeline", key).value()) {
      case Treatment::kept:
        ASSERT_NE(kept, nullptr);
        EXPECT_EQ(kept->text, value);
        break;
      case Treatment::of_given_job: EXPECT_EQ(problem.left_out(), said); break;
      case Treatment::chosen: EXPECT_EQ(problem.left_out(), std::vector<std::string>{}); break;
      case Treatment::refused: FAIL() << "it was not";
    }
  }
}

/// Sections that are kept whole: what they say is in every plan, or refused by name.
TEST(PlannedKeys, OfSectionsBelowAreKept) {
  for (const std::string_view above : {"scenario", "pipeline"})
    for (const KeyRow* section : rows_of(above)) {
      if (section->type != KeyRow::Type::section ||
          treatment_of(above, section->key) != Treatment::kept)
        continue;
      for (const KeyRow* row : rows_of(section->choices)) {
        std::vector<std::string> path{std::string(section->key), std::string(row->key)};
        if (above == "pipeline") path.insert(path.begin(), "pipeline");
        const std::string value = value_for(*row);
        SCOPED_TRACE(fmt::format("{}: {}", fmt::join(path, "."), value));
        try {
          const Problem problem = problem_with(fmt::format("{}", fmt::join(path, ".")), value);
          const Scenario planned = problem.resolve(small_choice(problem));
          const Value* kept = value_at(planned.source.document(), path);
          ASSERT_NE(kept, nullptr);
          EXPECT_EQ(kept->text, value);
        } catch (const InputError& error) {
          EXPECT_NE(std::string(error.what()).find(row->key), std::string::npos) << error.what();
        }
      }
    }
}

TEST(PlannedKeys, ThatASearchDoesNotKnowAreRefusedWhereTheyStand) {
  try {
    const Problem problem(std::string(kJob) + "perturbations: {jitter: {spread: 5%}}\nnew: 1\n",
                          "job.yaml", 8);
    FAIL() << "they vanish";
  } catch (const InputError& error) {
    ASSERT_EQ(error.diagnostics().size(), 2U);
    EXPECT_EQ(error.diagnostics()[0].where.line, 6);
    EXPECT_EQ(error.diagnostics()[0].message, kPlansAreUndisturbed);
    EXPECT_EQ(error.diagnostics()[1].where.line, 7);
    EXPECT_EQ(error.diagnostics()[1].where.column, 1);
    EXPECT_EQ(error.diagnostics()[1].message,
              "'new' is a key that a plan can neither choose nor keep; take it out");
  }
}

TEST(PlannedKeys, ByAnotherNameAreTheSame) {
  EXPECT_EQ(problem_with("pipeline.microbatch_group_size_per_vp_stage", "2").left_out(),
            std::vector<std::string>{"pipeline.group: 2"});
}

}  // namespace
}  // namespace penstock

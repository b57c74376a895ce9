// Tests which units and parameters each rank of a pipeline has.
#include "training/pipeline/placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "tests/training/pipeline/tables.h"
#include "training/models/gpt.h"
#include "training/pipeline/schedules.h"

namespace tutti::training::pipeline {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// The units are embed, h.0, h.1, h.2 and head.
Gpt gpt(bool tied) {
  return Gpt({.layers = 3, .heads = 2, .width = 8, .context = 4, .vocabulary = 16, .tied = tied});
}

std::set<std::string> names(Model& model, const std::vector<int>& parameters) {
  std::set<std::string> names;
  for (const int parameter : parameters) {
    names.insert(model.parameters().specs()[static_cast<size_t>(parameter)].name);
  }
  return names;
}

int index_of(Model& model, const std::string& name) {
  for (int i = 0; i < model.parameters().size(); ++i) {
    if (model.parameters().specs()[static_cast<size_t>(i)].name == name) return i;
  }
  return -1;
}

TEST(PlacementTest, OneChunkPerRank) {
  Gpt model = gpt(false);
  const Plan plan = make_plan(testing::one_f_one_b_table(3, 4));
  int parameters = 0;
  for (int rank = 0; rank < 3; ++rank) {
    const Placement placement = make_placement(plan, model, {0, 1, 3}, rank);
    EXPECT_THAT(placement.chunks, ElementsAre(UnitRange{0, 1}, UnitRange{1, 3}, UnitRange{3, 5}));
    EXPECT_THAT(placement.own_chunks, ElementsAre(rank));
    EXPECT_THAT(placement.holders, ElementsAre(rank));
    EXPECT_THAT(placement.copies, IsEmpty());
    EXPECT_THAT(placement.joined, IsEmpty());
    EXPECT_FALSE(placement.has_shared_across);
    EXPECT_EQ(placement.has_loss(), rank == 2);
    EXPECT_EQ(placement.has_unit(0), rank == 0);
    EXPECT_EQ(placement.has_unit(1), rank == 1);
    EXPECT_EQ(placement.has_unit(2), rank == 1);
    EXPECT_EQ(placement.has_unit(4), rank == 2);
    EXPECT_TRUE(std::ranges::is_sorted(placement.parameters));
    parameters += static_cast<int>(placement.parameters.size());
  }
  EXPECT_EQ(parameters, model.parameters().size()) << "each lies on one rank";
  EXPECT_EQ(names(model, make_placement(plan, model, {0, 1, 3}, 0).parameters),
            (std::set<std::string>{"wte.weight", "wpe.weight"}));
}

TEST(PlacementTest, ATiedEmbeddingIsJoinedAndCountsOnce) {
  Gpt model = gpt(true);
  const int embedding = index_of(model, "wte.weight");
  const Plan plan = make_plan(testing::one_f_one_b_table(3, 4));
  const Placement first = make_placement(plan, model, {0, 1, 3}, 0);
  const Placement middle = make_placement(plan, model, {0, 1, 3}, 1);
  const Placement last = make_placement(plan, model, {0, 1, 3}, 2);
  EXPECT_THAT(first.copies, IsEmpty());
  EXPECT_THAT(last.copies, ElementsAre(embedding));
  EXPECT_THAT(last.parameters, ::testing::Contains(embedding));
  ASSERT_EQ(first.joined.size(), 1u);
  EXPECT_EQ(first.joined[0].parameter, embedding);
  EXPECT_EQ(first.joined[0].peer, 2);
  ASSERT_EQ(last.joined.size(), 1u);
  EXPECT_EQ(last.joined[0].parameter, embedding);
  EXPECT_EQ(last.joined[0].peer, 0);
  EXPECT_THAT(middle.joined, IsEmpty());
  EXPECT_THAT(middle.copies, IsEmpty());
  for (const Placement& placement : {first, middle, last}) {
    EXPECT_TRUE(placement.has_shared_across) << "all ranks know";
  }
}

TEST(PlacementTest, SeveralChunksPerRank) {
  Gpt model = gpt(true);
  const Plan plan = make_plan(testing::looped_table(2));
  const Placement first = make_placement(plan, model, {0, 2, 3, 4}, 0);
  EXPECT_THAT(first.own_chunks, ElementsAre(0, 2));
  EXPECT_THAT(first.holders, ElementsAre(0));
  EXPECT_TRUE(first.has_unit(0) && first.has_unit(1) && first.has_unit(3));
  EXPECT_FALSE(first.has_unit(2) || first.has_unit(4));
  EXPECT_FALSE(first.has_loss());
  const Placement second = make_placement(plan, model, {0, 2, 3, 4}, 1);
  EXPECT_TRUE(second.has_loss());
  EXPECT_EQ(second.joined.size(), 1u);
}

TEST(PlacementTest, OnOneRankNothingIsJoined) {
  Gpt model = gpt(true);
  const Placement placement =
      make_placement(make_plan(testing::one_f_one_b_table(1, 2)), model, {0}, 0);
  EXPECT_EQ(std::ssize(placement.parameters), model.parameters().size());
  EXPECT_THAT(placement.joined, IsEmpty());
  EXPECT_THAT(placement.copies, IsEmpty());
  EXPECT_FALSE(placement.has_shared_across);
}

TEST(PlacementTest, ChimerasPairsHaveTheSameUnits) {
  Gpt model = gpt(true);
  const Plan plan = make_plan(chimera(4, 4));
  for (int rank = 0; rank < 4; ++rank) {
    const Placement placement = make_placement(plan, model, {0, 1, 2, 4}, rank);
    const int pair = std::min(rank, 3 - rank);
    EXPECT_THAT(placement.holders, ElementsAre(pair, 3 - pair));
    EXPECT_THAT(placement.own_chunks, ElementsAre(pair, 3 - pair));
    EXPECT_EQ(placement.has_loss(), pair == 0);
    EXPECT_THAT(placement.joined, IsEmpty()) << "both uses are on both ranks";
  }
}

std::string refusal(Model& model, const Plan& plan, const std::vector<int>& cut, int rank = 0) {
  try {
    make_placement(plan, model, cut, rank);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    return error.what();
  }
  return "none";
}

TEST(PlacementTest, InvalidCutsAreRefused) {
  Gpt model = gpt(false);
  const Plan plan = make_plan(testing::one_f_one_b_table(3, 4));
  EXPECT_EQ(refusal(model, plan, {0, 3, 4}), "none");
  EXPECT_THAT(refusal(model, plan, {0, 1}),
              AllOf(HasSubstr("a model of 5 units cannot be divided into 3 chunks"),
                    HasSubstr("start at units 0,1"), HasSubstr("remedy")));
  for (const std::vector<int>& cut : std::vector<std::vector<int>>{
           {}, {1, 2, 3}, {0, 2, 2}, {0, 3, 2}, {0, 1, 5}, {0, -1, 2}, {0, 1, 2, 3}}) {
    EXPECT_THAT(refusal(model, plan, cut), HasSubstr("cannot be divided into 3 chunks"));
  }
  const Plan deep = make_plan(testing::one_f_one_b_table(6, 4));
  EXPECT_THAT(refusal(model, deep, {0, 1, 2, 3, 4, 5}), HasSubstr("into 6 chunks"));
}

// A model of four units: the first three use one parameter, and the last has its own.
class SharedThrice : public Model {
 public:
  SharedThrice() {
    for (int i = 0; i < 4; ++i) add_unit<Part>(&shared_, i == 3);
  }
  double flops_per_sample() const override { return 1; }
  Json configuration() const override { return {{"kind", "shared"}}; }
  int64_t targets_per_sample() const override { return 1; }

 private:
  class Part : public Unit {
   public:
    Part(ParameterTable& table, const Parameter** shared, bool alone) {
      if (alone) {
        table.add("own", {2}, {});
      } else if (*shared == nullptr) {
        *shared = table.add("shared", {2}, {});
      } else {
        table.share(*shared);
      }
    }
    std::string name() const override { return "part"; }
    OutputShape output_shape() const override { return {}; }
    Tensor forward(Pass&, ConstTensor) override { return {}; }
    Tensor backward(Pass&, ConstTensor) override { return {}; }
  };

  const Parameter* shared_ = nullptr;
};

TEST(PlacementTest, AParameterOfThreeStagesIsRefusedByEachRank) {
  SharedThrice model;
  const Plan plan = make_plan(testing::one_f_one_b_table(4, 4));
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_THAT(refusal(model, plan, {0, 1, 2, 3}, rank),
                AllOf(HasSubstr("the parameter shared"), HasSubstr("more than two stages"),
                      HasSubstr("untie")));
  }
  const Plan two = make_plan(testing::one_f_one_b_table(2, 4));
  EXPECT_EQ(refusal(model, two, {0, 2}), "none") << "two uses on one rank, one on the other";
  EXPECT_EQ(refusal(model, two, {0, 3}), "none");
}

TEST(PlacementTest, PassesFollowTheTable) {
  Gpt model = gpt(false);
  const Plan plan = make_plan(testing::one_f_one_b_table(2, 5, /*split=*/true));
  const Placement placement = make_placement(plan, model, {0, 2}, 1);
  EXPECT_THAT(passes_by_unit(plan, placement, 1, 5), ElementsAre(0, 0, 5, 5, 5));
  const Plan two_ways = make_plan(testing::two_way_table());
  EXPECT_THAT(passes_by_unit(two_ways, make_placement(two_ways, model, {0, 2}, 0), 0, 5),
              ElementsAre(1, 1, 1, 1, 1));
}

TEST(PlacementTest, EstimatesCountMatricesOfProducts) {
  Gpt model = gpt(true);
  const std::vector<double> costs = estimated_costs(model);
  // Embeddings are look-ups and cost nothing. A block has 12 x width^2 weights, and the tied output
  // layer vocabulary x width.
  EXPECT_THAT(costs, ElementsAre(0, 768, 768, 768, 128));
}

}  // namespace
}  // namespace tutti::training::pipeline

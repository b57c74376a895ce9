// Tests meshes of ranks.
#include "training/parallel/mesh.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "tests/support/ranks.h"

namespace tutti::training {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using tutti::testing::run_ranks;
using tutti::testing::run_ranks_catching;

// Returns the world ranks of the members of a group, in the group's order, as received from the
// members.
std::vector<int32_t> met(Mesh& mesh, AxisSet axes) {
  Communicator& group = mesh.group(axes);
  std::vector<int32_t> ranks(static_cast<size_t>(group.size()));
  const int32_t own = mesh.world().rank();
  group.all_gather({&own, 1, DType::i32}, {ranks.data(), ranks.size(), DType::i32});
  EXPECT_EQ(ranks[static_cast<size_t>(group.rank())], own);
  return ranks;
}

std::vector<int32_t> met(Mesh& mesh, Axis axis) {
  EXPECT_EQ(mesh.along(axis).rank(), mesh.place(axis));
  EXPECT_EQ(mesh.along(axis).size(), mesh.size(axis));
  return met(mesh, AxisSet{axis});
}

TEST(MeshTest, TheFirstAxisChangesFastest) {
  run_ranks(12, [](const Job& job) {
    Mesh mesh(Communicator::init(job), {.tensor = 2, .data = 3, .pipeline = 2});
    const int rank = job.rank;
    EXPECT_EQ(mesh.place(Axis::tensor), rank % 2);
    EXPECT_EQ(mesh.place(Axis::data), rank / 2 % 3);
    EXPECT_EQ(mesh.place(Axis::pipeline), rank / 6);
    const int pair = rank / 2 * 2;
    EXPECT_THAT(met(mesh, Axis::tensor), ElementsAre(pair, pair + 1));
    const int row = rank / 6 * 6 + rank % 2;
    EXPECT_THAT(met(mesh, Axis::data), ElementsAre(row, row + 2, row + 4));
    EXPECT_THAT(met(mesh, Axis::pipeline), ElementsAre(rank % 6, rank % 6 + 6));
    for (int other = 0; other < 12; ++other) {
      EXPECT_EQ(mesh.place_of(other, Axis::tensor), other % 2);
      EXPECT_EQ(mesh.place_of(other, Axis::data), other / 2 % 3);
      EXPECT_EQ(mesh.place_of(other, Axis::pipeline), other / 6);
    }
  });
}

TEST(MeshTest, AllRanksAreDataParallelByDefault) {
  run_ranks(3, [](const Job& job) {
    Mesh mesh(Communicator::init(job));
    EXPECT_THAT(met(mesh, Axis::data), ElementsAre(0, 1, 2));
    EXPECT_THAT(met(mesh, Axis::pipeline), ElementsAre(job.rank));
    EXPECT_THAT(met(mesh, Axis::tensor), ElementsAre(job.rank));
  });
}

// Checks every set of axes of a mesh in which three axes have more than one place.
TEST(MeshTest, GroupsAreOverAnySetOfAxes) {
  constexpr int kRanks = 12;
  run_ranks(kRanks, [](const Job& job) {
    Mesh mesh(Communicator::init(job), {.context = 2, .data = 6, .expert = 3});
    for (unsigned bits = 0; bits < 1U << kAxes; ++bits) {
      AxisSet axes;
      for (const Axis axis : kAllAxes) {
        if ((bits >> static_cast<unsigned>(axis) & 1) != 0) axes = axes | AxisSet{axis};
      }
      std::vector<int32_t> expected;
      for (int other = 0; other < kRanks; ++other) {
        bool in = true;
        for (const Axis axis : kAllAxes) {
          in = in && (axes.has(axis) || mesh.place_of(other, axis) == mesh.place(axis));
        }
        if (in) expected.push_back(other);
      }
      EXPECT_EQ(met(mesh, axes), expected) << name(axes);
      EXPECT_EQ(mesh.place().ranks_along(axes), std::ssize(expected)) << name(axes);
      EXPECT_EQ(mesh.place().number_along(axes),
                std::ranges::find(expected, job.rank) - expected.begin())
          << name(axes);
    }
    Mesh copy = mesh;
    EXPECT_EQ(&copy.group({Axis::data, Axis::expert}), &mesh.group({Axis::expert, Axis::data}));
    // Adding an axis that has one place does not create another group.
    EXPECT_EQ(&mesh.group({Axis::data, Axis::tensor}), &mesh.along(Axis::data));
    EXPECT_TRUE(mesh.place().first_along({Axis::tensor, Axis::pipeline}));
    EXPECT_EQ(mesh.place().first_along({Axis::context, Axis::data}),
              mesh.place(Axis::context) == 0 && mesh.place(Axis::data) == 0);
  });
}

TEST(MeshTest, OneAxisMayBeOpen) {
  const auto sizes = [](const MeshShape& shape, int ranks) {
    return mesh_place(shape, ranks).sizes;
  };
  EXPECT_THAT(sizes({}, 6), ElementsAre(1, 1, 1, 1, 6, 1));
  EXPECT_THAT(sizes({.pipeline = 3}, 6), ElementsAre(1, 1, 1, 1, 2, 3));
  EXPECT_THAT(sizes({.data = 2, .pipeline = 0}, 6), ElementsAre(1, 1, 1, 1, 2, 3));
  EXPECT_THAT(sizes({.tensor = 0, .data = 2, .pipeline = 3}, 12), ElementsAre(2, 1, 1, 1, 2, 3));
  EXPECT_THAT(sizes({.context = 3, .expert = 2}, 12), ElementsAre(1, 3, 1, 2, 2, 1));
  EXPECT_THAT(sizes({.spatial = {2, 3}}, 12), ElementsAre(1, 1, 6, 1, 2, 1));
  EXPECT_THAT(sizes({}, 1), ElementsAre(1, 1, 1, 1, 1, 1));
}

// Experts are divided over data ranks if the number of data ranks allows it, otherwise also over
// context or tensor ranks.
TEST(MeshTest, ExpertsAreDividedOverSomeRanksOfAStage) {
  const auto expect = [](const MeshShape& shape, int ranks, AxisSet axes, int of_data) {
    const MeshPlace place = mesh_place(shape, ranks);
    EXPECT_EQ(place.experts, axes);
    EXPECT_EQ(place.size(Axis::expert), of_data);
    EXPECT_EQ(place.ranks_along(place.experts), shape.expert);
    EXPECT_EQ(place.ranks_along(AxisSet::all()), ranks);
  };
  const AxisSet data{Axis::expert};
  expect({}, 4, {}, 1);
  expect({.expert = 4}, 4, data, 4);
  expect({.tensor = 2, .expert = 2}, 8, data, 2);
  expect({.tensor = 2, .expert = 8}, 8, data | AxisSet{Axis::tensor}, 4);
  expect({.tensor = 2, .pipeline = 2, .expert = 2}, 4, data | AxisSet{Axis::tensor}, 1);
  expect({.context = 2, .expert = 2}, 2, data | AxisSet{Axis::context}, 1);
  expect({.tensor = 2, .context = 3, .expert = 3}, 6, data | AxisSet{Axis::context}, 1);
  expect({.tensor = 2, .context = 3, .expert = 12}, 12, data | AxisSet{Axis::context, Axis::tensor},
         2);
  // The sample ranks are numbered as without experts.
  const MeshPlace rank = mesh_place({.tensor = 2, .expert = 2}, 8).of_rank(5);
  EXPECT_EQ(rank.number_along(kSampleAxes), 2);
  EXPECT_EQ(rank.place(Axis::expert), 0);
  EXPECT_EQ(rank.place(Axis::data), 1);
}

std::string refusal(const MeshShape& shape, int ranks) {
  try {
    mesh_place(shape, ranks);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    return error.what();
  }
  return "none";
}

TEST(MeshTest, ShapesThatDoNotFitAreRefused) {
  EXPECT_THAT(refusal({.data = 2, .pipeline = 2}, 6),
              AllOf(HasSubstr("6 ranks do not form a mesh of 2 (data) x 2 (pipeline)"),
                    HasSubstr("remedy")));
  EXPECT_THAT(refusal({.pipeline = 4}, 6), HasSubstr("6 is not a multiple of 4"));
  EXPECT_THAT(refusal({.pipeline = 2}, 1), HasSubstr("1 rank does not form a mesh"));
  EXPECT_THAT(refusal({.data = 0, .pipeline = 0}, 6), HasSubstr("do not form a mesh"));
  EXPECT_THAT(refusal({.data = 3, .pipeline = -2}, 6), HasSubstr("do not form a mesh"));
  EXPECT_THAT(refusal({.tensor = -1}, 6), HasSubstr("do not form a mesh"));
  EXPECT_THAT(refusal({.tensor = 2, .data = 3, .expert = 4}, 6),
              AllOf(HasSubstr("4 expert-parallel ranks do not fit"), HasSubstr("[--ep]"),
                    HasSubstr("use one of 1, 2, 3, 6")));
  EXPECT_THAT(refusal({.expert = 0}, 6), HasSubstr("0 expert-parallel ranks do not fit"));
  // The product of these sizes overflows 32 bits.
  EXPECT_THAT(refusal({.tensor = 1 << 16, .data = 1 << 16, .pipeline = 6}, 6),
              HasSubstr("do not form a mesh"));
}

TEST(MeshTest, DetectsRanksWithOtherShapes) {
  const auto expect_mismatch = [](const MeshShape& others, const std::string& last_rank) {
    SCOPED_TRACE(last_rank);
    for (const auto& error : run_ranks_catching(4, [&](const Job& job) {
           Mesh(Communicator::init(job), job.rank == 3 ? others : MeshShape{.tensor = 2});
         })) {
      ASSERT_TRUE(error);
      EXPECT_EQ(error->code(), ErrorCode::mismatch);
      EXPECT_THAT(error->what(), AllOf(HasSubstr("rank 3"), HasSubstr(last_rank)));
    }
  };
  expect_mismatch({}, "has data 4 (rank 0: tensor 2 x data 2)");
  expect_mismatch({.context = 2}, "has context 2 x data 2 (");
  expect_mismatch({.tensor = 2, .data = 1, .pipeline = 2}, "has tensor 2 x pipeline 2 (");
  expect_mismatch({.spatial = {2, 2}}, "has spatial 4, 2 columns (");
  expect_mismatch({.pipeline = 3}, "4 is not a multiple of 3");
  run_ranks(4, [](const Job& job) {  // the free axis may be given
    Mesh(Communicator::init(job), {.data = job.rank == 3 ? 2 : 0, .pipeline = 2});
  });
}

TEST(MeshTest, EveryRankRefuses) {
  for (const auto& error : run_ranks_catching(
           3, [](const Job& job) { Mesh(Communicator::init(job), {.pipeline = 2}); })) {
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), ErrorCode::invalid_argument);
    EXPECT_THAT(error->what(), HasSubstr("3 ranks do not form a mesh"));
  }
}

}  // namespace
}  // namespace tutti::training

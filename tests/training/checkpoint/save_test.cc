// Tests which files a save leaves in the directory, and which saves are refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <set>

#include "base/error.h"
#include "tests/training/checkpoint/support.h"
#include "training/checkpoint/step_directory.h"

namespace tutti::training {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

std::set<std::string> entries(const std::string& directory) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(directory)) {
    names.insert(entry.path().filename());
  }
  return names;
}

TEST(Save, WritesOneFileARankAndTheManifest) {
  const Scratch scratch;
  save_sample_well(scratch.path("deep/run"), 3, 12);
  EXPECT_THAT(
      entries(scratch.path("deep/run")),
      UnorderedElementsAre("latest", "lock", ::testing::StartsWith("fence-"), "step-00000012"));
  EXPECT_THAT(
      entries(scratch.path("deep/run/step-00000012")),
      UnorderedElementsAre("checkpoint.json", "rank-0000-of-0003.safetensors",
                           "rank-0001-of-0003.safetensors", "rank-0002-of-0003.safetensors"));
  EXPECT_EQ(read_bytes(scratch.path("deep/run/latest")), "step-00000012\n");
}

TEST(Save, KeepsAsManyAsAreAskedFor) {
  const Scratch scratch;
  for (const uint64_t step : {1, 2, 3, 4}) save_sample_well(scratch.path(), 2, step);
  EXPECT_THAT(steps_in(scratch.path()), ElementsAre(3, 4));
  for (const std::string& error : save_sample({.directory = scratch.path(), .keep = 0}, 2, 5)) {
    EXPECT_EQ(error, "");
  }
  EXPECT_THAT(steps_in(scratch.path()), ElementsAre(3, 4, 5));
  for (const std::string& error : save_sample({.directory = scratch.path(), .keep = 1}, 2, 6)) {
    EXPECT_EQ(error, "");
  }
  EXPECT_THAT(steps_in(scratch.path()), ElementsAre(6));
}

TEST(Save, ReplacesAStepOfTheSameRun) {
  const Scratch scratch;
  for (const uint64_t step : {1, 2}) save_sample_well(scratch.path(), 1, step);
  save_sample_well(scratch.path(), 4, 2);
  EXPECT_THAT(entries(scratch.path()),
              UnorderedElementsAre("latest", "lock", ::testing::StartsWith("fence-"),
                                   "step-00000001", "step-00000002"));
  const Checkpoint latest = Checkpoint::open(scratch.path());
  EXPECT_EQ(latest.manifest().world(), 4);
  expect_sample(latest, 2);
}

TEST(Save, RemovesWhatDeadRunsLeftAndNothingElse) {
  const Scratch scratch;
  fs::create_directories(scratch.path(".step-00000009.tmp-0badcafe/deep"));
  fs::create_directories(scratch.path(".step-9.tmp-0badcafe"));
  fs::create_directories(scratch.path("notes.tmp-1"));
  save_sample_well(scratch.path(), 2, 1);
  EXPECT_THAT(entries(scratch.path()),
              UnorderedElementsAre("latest", "lock", ::testing::StartsWith("fence-"),
                                   "step-00000001", ".step-9.tmp-0badcafe", "notes.tmp-1"));
}

// Saves a tensor of ten elements from two ranks: the first has the elements before `end_of_first`,
// the second those from `start_of_second`. Returns each rank's error.
std::vector<std::string> save_ranges(const std::string& directory, int64_t end_of_first,
                                     int64_t start_of_second, std::vector<int64_t> second_shape) {
  const std::vector<float> values(16);
  RunDirectory run(directory, {.resume = true});
  return run_ranks(2, [&](const Group& group) {
    const bool first = group.rank == 0;
    const int64_t start = first ? 0 : start_of_second;
    const int64_t count = first ? end_of_first : 10 - start_of_second;
    const std::vector<TensorPiece> pieces = {
        {"model.x", first ? std::vector<int64_t>{10} : second_shape, start,
         tensor_at(values.data(), DType::f32, 1, count)}};
    save_checkpoint({.directory = &run, .step = 2}, pieces, group);
  });
}

TEST(Save, RefusesPiecesThatAreNotTheWholeOnce) {
  const Scratch scratch;
  save_sample_well(scratch.path(), 2, 1);
  const auto says = [](const char* what) {
    return Each(AllOf(HasSubstr("the checkpoint of step 2 was not saved"), HasSubstr(what)));
  };
  EXPECT_THAT(save_ranges(scratch.path(), 5, 6, {10}), says("lacks elements [5, 6)"));
  EXPECT_THAT(save_ranges(scratch.path(), 5, 4, {10}), says("has element 4 twice"));
  EXPECT_THAT(save_ranges(scratch.path(), 5, 5, {2, 5}), says("different shape or type"));
  EXPECT_THAT(save_ranges(scratch.path(), 5, 5, {9}),
              says("rank 1: invalid piece: 1 x 5 elements"));
  EXPECT_THAT(
      entries(scratch.path()),
      UnorderedElementsAre("latest", "lock", ::testing::StartsWith("fence-"), "step-00000001"));
  expect_sample(Checkpoint::open(scratch.path()), 1);
  EXPECT_THAT(save_ranges(scratch.path(), 5, 5, {10}), Each(""));
}

// Saves a 4 x 6 matrix from four ranks. `halves` cut the columns in two, and two ranks own each
// half. Returns each rank's error.
std::vector<std::string> save_columns(const std::string& directory,
                                      const std::vector<Slice>& halves) {
  RunDirectory run(directory, {.resume = true});
  return run_ranks(4, [&](const Group& group) {
    const Slice& half = halves[static_cast<size_t>(group.rank % 2)];
    const int64_t cut = 5;
    const int64_t first = group.rank < 2 ? 0 : cut;
    const int64_t count = group.rank < 2 ? cut : half.count() - cut;
    std::vector<float> values;
    for_each_run(half, first, count, [&](const Slice::Run& run, int64_t) {
      for (int64_t i = 0; i < run.count; ++i) values.push_back(static_cast<float>(run.whole + i));
    });
    const std::vector<TensorPiece> pieces = {
        {"model.x", {4, 6}, first, tensor_at(values.data(), DType::f32, 1, count), half}};
    save_checkpoint({.directory = &run, .step = 2}, pieces, group);
  });
}

TEST(Save, SlicesAreReadAsTheWhole) {
  const Scratch scratch;
  save_sample_well(scratch.path(), 2, 1);
  const std::vector<Slice> halves = {Slice({4, 6}, {{{0, 4}}, {{0, 2}, {4, 5}}}),
                                     Slice({4, 6}, {{{0, 4}}, {{2, 4}, {5, 6}}})};
  EXPECT_THAT(save_columns(scratch.path(), halves), Each(""));
  const Checkpoint checkpoint = Checkpoint::open(scratch.path());
  checkpoint.verify();
  for (int64_t first = 0; first <= 24; ++first) {
    for (int64_t count = 0; first + count <= 24; ++count) {
      std::vector<float> values(static_cast<size_t>(count) + 1, -1.0F);
      checkpoint.read("model.x", first, tensor_at(values.data(), DType::f32, 1, count));
      for (int64_t i = 0; i < count; ++i) {
        ASSERT_EQ(values[static_cast<size_t>(i)], static_cast<float>(first + i));
      }
      ASSERT_EQ(values.back(), -1.0F) << "written beyond the end";
    }
  }
  // Reads the same tensor with another slice: rows 1 and 3.
  const Slice rows({4, 6}, {{{1, 2}, {3, 4}}, {{0, 6}}});
  std::vector<float> values(7);
  read_slice(checkpoint, "model.x", rows, 3, tensor_at(values.data(), DType::f32, 1, 7));
  EXPECT_THAT(values, ElementsAre(9, 10, 11, 18, 19, 20, 21));
}

TEST(Save, RefusesSlicesThatAreNotTheWholeOnce) {
  const Scratch scratch;
  save_sample_well(scratch.path(), 2, 1);
  const Slice left({4, 6}, {{{0, 4}}, {{0, 3}}});
  EXPECT_THAT(save_columns(scratch.path(), {left, Slice({4, 6}, {{{0, 4}}, {{2, 5}}})}),
              Each(HasSubstr("elements both in 0:4, 0:3 and in 0:4, 2:5")));
  EXPECT_THAT(save_columns(scratch.path(), {left, Slice({4, 6}, {{{0, 4}}, {{3, 5}}})}),
              Each(HasSubstr("lacks 4 elements")));
  EXPECT_THAT(save_columns(scratch.path(), {left, left}), Each(HasSubstr("has element 0 twice")));
  EXPECT_THAT(save_columns(scratch.path(), {left, Slice({6, 4}, {{{0, 6}}, {{0, 2}}})}),
              Each(HasSubstr("invalid piece: ")));
  EXPECT_THAT(save_columns(scratch.path(), {left, Slice({4, 6}, {{{0, 4}}, {{3, 6}}})}), Each(""));
}

TEST(Save, RefusesAStateThatJsonCannotHold) {
  const Scratch scratch;
  RunDirectory directory(scratch.path(), {});
  const auto save = [&](const Json& state) {
    return error_of([&] {
      save_checkpoint({.directory = &directory, .step = 1, .state = state}, {}, group_of_one());
    });
  };
  EXPECT_THAT(save({{"a", {{"loss", std::numeric_limits<double>::quiet_NaN()}}}}),
              HasSubstr("NaN or infinity"));
  EXPECT_THAT(save({{"name", "\xff"}}), HasSubstr("UTF-8"));
  EXPECT_THAT(save(Json::array()), HasSubstr("the state of step 1"));
  EXPECT_THAT(entries(scratch.path()),
              UnorderedElementsAre("lock", ::testing::StartsWith("fence-")));
  const Json exact = {{"tenth", 0.1}, {"big", 1ull << 63}, {"tiny", 5e-324}};
  EXPECT_EQ(save(exact), "");
  EXPECT_EQ(Checkpoint::open(scratch.path()).manifest().state, exact);
}

}  // namespace
}  // namespace tutti::training

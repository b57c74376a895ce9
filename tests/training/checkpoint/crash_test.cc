// Tests that the old checkpoint survives if a process is killed at any moment of a save, or if
// disks fail.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <mutex>

#include "base/error.h"
#include "base/text.h"
#include "tests/training/checkpoint/support.h"
#include "training/checkpoint/step_directory.h"

namespace tutti::training {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

// Runs `work` in a child process, which exits with the result of `work`. Returns the child's wait
// status.
int status_of(const std::function<int()>& work) {
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(work());
  int status = -1;
  EXPECT_EQ(::waitpid(pid, &status, 0), pid);
  return status;
}

// Saves in a child process. It kills itself at the n-th point between two phases of the protocol,
// counted over all ranks; n is `moment`. Returns the child's wait status.
int save_and_die(const std::string& directory, int ranks, uint64_t step, int moment,
                 bool in_background) {
  return status_of([&] {
    std::atomic<int> left = moment;
    const auto at_phase = [&](std::string_view) {
      if (left-- == 0) ::kill(::getpid(), SIGKILL);
    };
    for (const std::string& error :
         save_sample({.directory = directory, .in_background = in_background, .at_phase = at_phase},
                     ranks, step)) {
      if (!error.empty()) return 1;
    }
    return 0;
  });
}

size_t temporaries(const std::string& directory) {
  size_t count = 0;
  for (const auto& entry : fs::directory_iterator(directory)) {
    count += is_temporary_name(entry.path().filename().string());
  }
  return count;
}

// Repeats the save and kills it at a later point each time. Returns the number of points.
int kill_at_every_moment(int ranks, uint64_t old_step, uint64_t new_step,
                         bool in_background = false) {
  int moment = 0;
  int old_ones = 0;
  for (bool killed = true; killed; ++moment) {
    SCOPED_TRACE(cat("killed at moment ", moment));
    const Scratch scratch;
    save_sample_well(scratch.path(), 3, old_step);
    const int status = save_and_die(scratch.path(), ranks, new_step, moment, in_background);
    killed = WIFSIGNALED(status);
    EXPECT_TRUE(killed ? WTERMSIG(status) == SIGKILL : WEXITSTATUS(status) == 0);

    const Checkpoint found = Checkpoint::open(scratch.path());
    found.verify();
    // The directory has the old checkpoint until the new one is published, and only the new one
    // afterwards.
    const bool old = found.manifest().world() == 3;
    EXPECT_TRUE(!old || old_ones == moment) << "the new one was there before";
    old_ones += old;
    expect_sample(found, old ? old_step : new_step);

    save_sample_well(scratch.path(), 1, new_step + 1);
    EXPECT_EQ(temporaries(scratch.path()), 0u);
    expect_sample(Checkpoint::open(scratch.path()), new_step + 1);
    if (::testing::Test::HasFailure()) return moment;
  }
  EXPECT_GT(old_ones, 5);
  EXPECT_GT(moment, old_ones);
  return moment;
}

TEST(Crash, OldOrNewCheckpointIsWholeAtAnyMoment) {
  EXPECT_GT(kill_at_every_moment(1, 1, 2), 20);
  EXPECT_GT(kill_at_every_moment(2, 1, 2), 25);
}

TEST(Crash, BackgroundSavesSurviveToo) {
  EXPECT_GT(kill_at_every_moment(1, 1, 2, true), 20);
  EXPECT_GT(kill_at_every_moment(2, 1, 2, true), 25);
}

TEST(Crash, ReplacedStepExistsAtAnyMoment) { EXPECT_GT(kill_at_every_moment(1, 2, 2), 20); }

TEST(Crash, ADiskThatIsFullOnOneRankFailsAllAndLeavesTheOldOne) {
  const Scratch scratch;
  save_sample_well(scratch.path(), 2, 1);
  const int status = status_of([&] {
    const rlimit limit = {4096, 4096};
    ::signal(SIGXFSZ, SIG_IGN);
    ::setrlimit(RLIMIT_FSIZE, &limit);
    const std::vector<float> values(1 << 16);
    RunDirectory directory(scratch.path(), {.resume = true});
    const std::vector<std::string> errors = run_ranks(3, [&](const Group& group) {
      const int64_t first[] = {0, 10, (1 << 16) - 10, 1 << 16};
      const int64_t begin = first[group.rank];
      const std::vector<TensorPiece> pieces = {
          {"model.x",
           {1 << 16},
           begin,
           tensor_at(values.data(), DType::f32, 1, first[group.rank + 1] - begin)}};
      save_checkpoint({.directory = &directory, .step = 2}, pieces, group);
    });
    const auto good =
        AllOf(HasSubstr("the checkpoint of step 2 was not saved: rank 1: cannot write"),
              HasSubstr("rank-0001-of-0003.safetensors"), HasSubstr("File too large"),
              HasSubstr("remedy: "));
    for (const std::string& error : errors) std::fprintf(stderr, "%s\n", error.c_str());
    return ::testing::Matches(Each(good))(errors) ? 0 : 1;
  });
  EXPECT_EQ(status, 0);
  EXPECT_EQ(temporaries(scratch.path()), 0u);
  expect_sample(Checkpoint::open(scratch.path()), 1);
}

TEST(Crash, AManifestThatDoesNotFitLeavesTheOldOne) {
  const Scratch scratch;
  save_sample_well(scratch.path(), 2, 1);
  const int status = status_of([&] {
    const rlimit limit = {2000, 2000};
    ::signal(SIGXFSZ, SIG_IGN);
    ::setrlimit(RLIMIT_FSIZE, &limit);
    RunDirectory directory(scratch.path(), {.resume = true});
    const std::string error = error_of([&] {
      save_checkpoint(
          {.directory = &directory, .step = 2, .state = {{"a", std::string(4000, 'a')}}}, {},
          group_of_one());
    });
    std::fprintf(stderr, "%s\n", error.c_str());
    return error.find("checkpoint.json: File too large") != error.npos ? 0 : 1;
  });
  EXPECT_EQ(status, 0);
  EXPECT_EQ(temporaries(scratch.path()), 0u);
  expect_sample(Checkpoint::open(scratch.path()), 1);
}

TEST(Crash, AFileThatOneRankCannotMakeFailsAll) {
  const Scratch scratch;
  save_sample_well(scratch.path(), 2, 1);
  const auto stand_in_the_way = [&] {
    for (const auto& entry : fs::directory_iterator(scratch.path())) {
      if (!is_temporary_name(entry.path().filename().string())) continue;
      fs::create_directory(entry.path() / "rank-0001-of-0002.safetensors");
    }
  };
  std::once_flag once;  // one rank calls it; the other waits for it
  const auto at_phase = [&](std::string_view phase) {
    if (phase == "folder made") std::call_once(once, stand_in_the_way);
  };
  EXPECT_THAT(save_sample({.directory = scratch.path(), .at_phase = at_phase}, 2, 2),
              Each(AllOf(HasSubstr("rank 1: cannot create"), HasSubstr("Is a directory"))));
  EXPECT_EQ(temporaries(scratch.path()), 0u);
  expect_sample(Checkpoint::open(scratch.path()), 1);
}

void fail_on_a_full_disk(bool in_background) {
  const Scratch scratch;
  save_sample_well(scratch.path(), 2, 1);
  const auto fill_the_disk = [&] {
    for (const auto& entry : fs::directory_iterator(scratch.path())) {
      if (!is_temporary_name(entry.path().filename().string())) continue;
      fs::create_symlink("/dev/full", entry.path() / "rank-0001-of-0002.safetensors");
    }
  };
  std::once_flag once;  // one rank calls it; the other waits for it
  const auto at_phase = [&](std::string_view phase) {
    if (phase == "folder made") std::call_once(once, fill_the_disk);
  };
  EXPECT_THAT(
      save_sample(
          {.directory = scratch.path(), .in_background = in_background, .at_phase = at_phase}, 2,
          2),
      Each(AllOf(HasSubstr("step 2 was not saved: rank 1: cannot write"),
                 HasSubstr("No space left on device"), HasSubstr("free some space"))));
  EXPECT_EQ(temporaries(scratch.path()), 0u);
  expect_sample(Checkpoint::open(scratch.path()), 1);
  // Once there is space, the run continues.
  save_sample_well(scratch.path(), 2, 2);
  expect_sample(Checkpoint::open(scratch.path()), 2);
}

TEST(Crash, ADiskWithoutSpaceFailsAllAndLeavesTheOldOne) { fail_on_a_full_disk(false); }
TEST(Crash, ADiskWithoutSpaceFailsBackgroundSavesToo) { fail_on_a_full_disk(true); }

TEST(Crash, ADirectoryThatCannotBeMadeFailsAll) {
  const Scratch scratch;
  write_bytes(scratch.path("file"), "mine");
  EXPECT_THAT(save_sample({.directory = scratch.path("file/run")}, 3, 1),
              Each(AllOf(HasSubstr("file/run"), HasSubstr("remedy: "))));
  EXPECT_THAT(save_sample({.directory = scratch.path("file")}, 2, 1), Each(HasSubstr("file")));
  EXPECT_EQ(read_bytes(scratch.path("file")), "mine");
}

TEST(Crash, ADirectoryThatMayNotBeWrittenFailsAllAndLeavesTheOldOne) {
  const Scratch scratch;
  save_sample_well(scratch.path("run"), 2, 1);
  ASSERT_EQ(::chmod(scratch.path("run").c_str(), 0555), 0);
  if (::access(scratch.path("run").c_str(), W_OK) == 0) {
    GTEST_SKIP() << "this user may write everywhere";
  }
  EXPECT_THAT(save_sample({.directory = scratch.path("run")}, 2, 2),
              Each(AllOf(HasSubstr("Permission denied"), HasSubstr("remedy: "))));
  expect_sample(Checkpoint::open(scratch.path("run")), 1);
  ::chmod(scratch.path("run").c_str(), 0755);
}

}  // namespace
}  // namespace tutti::training

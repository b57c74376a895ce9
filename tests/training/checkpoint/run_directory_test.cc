// Tests that a directory belongs to one run and one job: who may write, where a run resumes, and
// which steps are set aside.
#include "training/checkpoint/run_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <set>

#include "base/error.h"
#include "base/text.h"
#include "tests/training/checkpoint/support.h"
#include "training/checkpoint/checksum.h"
#include "training/checkpoint/step_directory.h"

namespace tutti::training {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr RunStart kNew{};
constexpr RunStart kResume{.resume = true};
constexpr RunStart kResumeOrNew{.resume = true, .or_new = true};
constexpr RunStart kOverwrite{.overwrite = true};

class Directory : public ::testing::Test {
 protected:
  std::string path() const { return scratch_.path("run"); }
  std::string path(const std::string& name) const { return path() + "/" + name; }

  // Runs a job that saves these steps and keeps `keep` of them.
  void save(const RunStart& start, const std::vector<uint64_t>& steps, int keep = 0) const {
    RunDirectory directory(path(), start);
    directory.begin();
    for (const uint64_t step : steps) {
      EXPECT_THAT(save_sample(directory, {.directory = path(), .keep = keep}, 2, step), Each(""));
    }
  }
  std::string refusal(const RunStart& start) const {
    return error_of([&] { RunDirectory(path(), start); });
  }
  std::string run_of(int64_t step) const {
    return Checkpoint::open(path(step_name(step))).manifest().run;
  }
  // Begins a run; returns the text that it prints.
  std::string begin(const RunStart& start) const {
    ::testing::internal::CaptureStderr();
    RunDirectory(path(), start).begin();
    return ::testing::internal::GetCapturedStderr();
  }
  void damage(int64_t step) const {
    fs::resize_file(path(step_name(step)) + "/rank-0001-of-0002.safetensors", 100);
  }

  const Scratch scratch_;
};

// --- ownership ---

TEST_F(Directory, ARunHasOneIdentityInAllOfItsStepsAndResumes) {
  save(kNew, {1, 2});
  EXPECT_EQ(run_of(1).size(), 32u);
  EXPECT_EQ(run_of(1).find_first_not_of("0123456789abcdef"), std::string::npos);
  EXPECT_EQ(run_of(2), run_of(1));
  save(kResume, {3});
  EXPECT_EQ(run_of(3), run_of(1));
}

// Launchers restart ranks with the same command, and rely on this.
TEST_F(Directory, DirectoriesWithoutAStepMayBeResumedAsANewRun) {
  EXPECT_THAT(refusal(kResume), HasSubstr("there is no directory"));
  EXPECT_FALSE(RunDirectory::check(path(), kResumeOrNew));
  save(kResumeOrNew, {});
  EXPECT_THAT(refusal(kResume), HasSubstr("no checkpoint found in"));
  save(kResumeOrNew, {1});
  EXPECT_EQ(RunDirectory::check(path(), kResumeOrNew)->checkpoint.manifest().step, 1);
  save(kResumeOrNew, {2});
  EXPECT_EQ(run_of(2), run_of(1));
  for (const int64_t step : {1, 2}) damage(step);
  EXPECT_NE(refusal(kResumeOrNew), "") << "what is damaged is not given up in silence";
}

TEST_F(Directory, AnotherRunsDirectoryIsRefusedWithBothNames) {
  save(kNew, {1, 40});
  const std::string said = refusal(kNew);
  EXPECT_THAT(said,
              AllOf(HasSubstr(cat(path(), " holds run ", run_of(40), " (its last step is 40)")),
                    HasSubstr("the new run "), HasSubstr("was not started"), HasSubstr("--resume"),
                    HasSubstr("another directory"), HasSubstr("--overwrite")));
  EXPECT_EQ(error_of([&] { RunDirectory::check(path(), kNew); }).substr(0, path().size() + 40),
            said.substr(0, path().size() + 40));
  EXPECT_THAT(steps_in(path()), ElementsAre(1, 40));
  EXPECT_EQ(latest_step(path()), 40);
}

TEST_F(Directory, ADamagedRunIsNoReasonToStartAnother) {
  save(kNew, {7});
  write_bytes(path("step-00000007/checkpoint.json"), "no");
  EXPECT_THAT(refusal(kNew), HasSubstr("a run whose steps cannot be read (its last step is 7)"));
}

TEST_F(Directory, OverwritesAfterTheNewRunsFirstStep) {
  save(kNew, {10, 20, 30});
  const std::string old = run_of(10);
  {
    RunDirectory directory(path(), kOverwrite);
    directory.begin();
    EXPECT_THAT(steps_in(path()), ElementsAre(10, 20, 30)) << "nothing is lost yet";
    EXPECT_THAT(save_sample(directory, {.directory = path()}, 2, 20), Each(""));
    EXPECT_THAT(steps_in(path()), ElementsAre(20));
    EXPECT_THAT(save_sample(directory, {.directory = path()}, 2, 25), Each(""));
  }
  EXPECT_THAT(steps_in(path()), ElementsAre(20, 25));
  EXPECT_NE(run_of(20), old);
  EXPECT_THAT(error_of([&] { RunDirectory(path(), {.resume = true, .overwrite = true}); }),
              HasSubstr("--resume excludes --overwrite"));
}

TEST_F(Directory, HasTheCompanionsOfTheRunWhoseStepsItHas) {
  const std::string kept = path(cat(kCompanionFolder, "/kept"));
  const auto begun = [&](RunDirectory& directory, bool with_companions) {
    directory.begin();
    if (with_companions) write_bytes(directory.make_companions() + "/kept", directory.run());
  };
  RunDirectory first(path(), kNew);
  begun(first, true);
  EXPECT_FALSE(fs::exists(kept));
  EXPECT_THAT(save_sample(first, {.directory = path()}, 2, 1), Each(""));
  EXPECT_EQ(read_bytes(kept), first.run());
}

TEST_F(Directory, LosesTheCompanionsOfARunThatIsOverwrittenWithItsSteps) {
  const std::string kept = path(cat(kCompanionFolder, "/kept"));
  save(kNew, {1});
  fs::create_directory(path(kCompanionFolder));
  write_bytes(kept, "old");
  save(kResume, {2});
  EXPECT_EQ(read_bytes(kept), "old");
  {
    RunDirectory directory(path(), kOverwrite);  // this run dies before its first step
    directory.begin();
    write_bytes(directory.make_companions() + "/kept", "new");
    EXPECT_EQ(read_bytes(kept), "old");
  }
  save(kOverwrite, {3});
  EXPECT_FALSE(fs::exists(path(kCompanionFolder)));
}

TEST_F(Directory, PrunesItsOwnRunOnly) {
  save(kNew, {10, 30});
  const std::string stranger = scratch_.path("stranger");
  fs::rename(path(), stranger);
  RunDirectory directory(path(), kNew);
  directory.begin();
  for (const uint64_t step : {1, 2}) {
    EXPECT_THAT(save_sample(directory, {.directory = path()}, 2, step), Each(""));
  }
  fs::copy(stranger + "/step-00000010", path("step-00000010"));  // while the job runs
  for (const uint64_t step : {3, 4, 11}) {
    EXPECT_THAT(save_sample(directory, {.directory = path()}, 2, step), Each(""));
  }
  EXPECT_THAT(steps_in(path()), ElementsAre(4, 10, 11));
  // A foreign step whose name the run needs is moved.
  fs::copy(stranger + "/step-00000030", path("step-00000030"));
  EXPECT_THAT(save_sample(directory, {.directory = path(), .keep = 1}, 2, 30), Each(""));
  EXPECT_THAT(steps_in(path()), ElementsAre(10, 30));
  EXPECT_EQ(run_of(30), directory.run());
  Checkpoint::open(path("set-aside-1/step-00000030")).verify();
}

// --- concurrent jobs ---

TEST_F(Directory, HasOneJobAtATime) {
  const RunDirectory first(path(), kNew);
  for (const RunStart& start : {kNew, kOverwrite}) {
    EXPECT_THAT(
        refusal(start),
        AllOf(HasSubstr(cat("another job uses ", path(), ": process ", ::getpid(), " on host ")),
              HasSubstr(cat("for run ", first.run()))));
  }
}

TEST_F(Directory, TheLockOfAKilledJobIsNoObstacle) {
  save(kNew, {1});
  const pid_t child = ::fork();
  if (child == 0) {
    const RunDirectory directory(path(), kResume);
    ::kill(::getpid(), SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_THAT(read_bytes(path("lock")), HasSubstr(cat(' ', child, ' '))) << "it could not clean up";
  EXPECT_EQ(refusal(kResume), "");
  EXPECT_EQ(read_bytes(path("lock")), "");
}

// --- where a run resumes ---

TEST_F(Directory, ResumesFromTheNewestWholeStepAndSetsDamagedOnesAside) {
  save(kNew, {10, 20, 30});
  damage(30);
  fs::remove(path("step-00000020/checkpoint.json"));
  const std::string said = begin(kResume);
  EXPECT_THAT(said, AllOf(HasSubstr("skipping step-00000030: "), HasSubstr("has 100 bytes"),
                          HasSubstr("skipping step-00000020: "),
                          HasSubstr("continues from step 10"), HasSubstr("set-aside-1")));
  EXPECT_THAT(steps_in(path()), ElementsAre(10));
  EXPECT_THAT(steps_in(path("set-aside-1")), ElementsAre(20, 30));
  EXPECT_EQ(latest_step(path()), 10);
  EXPECT_EQ(begin(kResume), "") << "it is said once";
}

TEST_F(Directory, AStepThatIsWholeCountsThoughLatestDoesNotNameIt) {
  save(kNew, {10, 20});
  // As if killed after it had named step 10 in `latest` and before it named the next step.
  write_bytes(path("latest"), "step-00000010\n");
  EXPECT_EQ(begin(kResume), "");
  EXPECT_EQ(latest_step(path()), 20);
  write_bytes(path("latest"), "nonsense");
  EXPECT_EQ(begin(kResume), "");
  EXPECT_EQ(latest_step(path()), 20);
  fs::remove(path("latest"));
  fs::create_directory_symlink("step-00000020", path("latest"));
  EXPECT_EQ(latest_step(path()), 20);
}

TEST_F(Directory, GoesBackToAStepAndLosesNoLaterOne) {
  save(kNew, {10, 20, 30, 40});
  EXPECT_THAT(begin({.resume = true, .step = 20}),
              AllOf(HasSubstr("continues from step 20; step-00000030, step-00000040"),
                    HasSubstr(path("set-aside-1"))));
  save(kResume, {30});
  EXPECT_THAT(steps_in(path()), ElementsAre(10, 20, 30));
  EXPECT_THAT(steps_in(path("set-aside-1")), ElementsAre(30, 40));
  Checkpoint::open(path("set-aside-1/step-00000040")).verify();
  // Sets steps aside a second time. The steps of the first time stay where they are.
  EXPECT_THAT(begin({.resume = true, .step = 20}), HasSubstr("set-aside-2"));
  EXPECT_THAT(steps_in(path("set-aside-1")), ElementsAre(30, 40));
  EXPECT_THAT(refusal({.resume = true, .step = 25}),
              AllOf(HasSubstr("no step 25 found"), HasSubstr("10, 20")));
  // The directory of the steps that were set aside can itself be opened as a directory of that run.
  EXPECT_EQ(choose_step(path("set-aside-1"), std::nullopt).checkpoint.manifest().step, 40);
}

TEST_F(Directory, AStepThatIsAskedForAndDamagedGivesWayToOneBeforeIt) {
  save(kNew, {10, 20, 30});
  damage(20);
  EXPECT_THAT(begin({.resume = true, .step = 20}),
              AllOf(HasSubstr("skipping step-00000020"), HasSubstr("continues from step 10"),
                    Not(HasSubstr("skipping step-00000030"))));
}

TEST_F(Directory, AStepsFolderIsNoRunsDirectory) {
  save(kNew, {10, 20});
  for (const std::string& folder :
       {path("step-00000010"), path("step-00000010/"), path("step-00000099")}) {
    for (const RunStart& start : {kNew, kResume, kOverwrite}) {
      EXPECT_THAT(error_of([&] { RunDirectory(folder, start); }),
                  AllOf(HasSubstr("is the folder of one step"),
                        HasSubstr(cat("--checkpoint ", path(), " --resume "))));
    }
  }
  fs::copy(path("step-00000010"), scratch_.path("renamed"));
  EXPECT_THAT(error_of([&] { RunDirectory(scratch_.path("renamed"), kResume); }),
              HasSubstr("is the folder of one step"));
  fs::rename(scratch_.path("renamed"), path("step-00000050"));
  EXPECT_THAT(begin(kResume), HasSubstr("was renamed: it holds step 10"));
}

TEST_F(Directory, TwoRunsResumeTheLatestOrAreReported) {
  save(kNew, {10, 20});
  const std::string first = run_of(10);
  fs::rename(path(), scratch_.path("first"));
  save(kNew, {15});
  fs::copy(scratch_.path("first/step-00000020"), path("step-00000020"));
  const std::string second = run_of(15);
  // `latest` names step 15.
  fs::remove(path("latest"));
  EXPECT_EQ(RunDirectory(path(), kResume).run(), first) << "no file: the last step";
  write_bytes(path("latest"), "nonsense");
  EXPECT_THAT(refusal(kResume),
              AllOf(HasSubstr(first), HasSubstr(second), HasSubstr("--resume STEP")));
  write_bytes(path("latest"), "step-00000015\n");
  EXPECT_EQ(RunDirectory(path(), kResume).run(), second);
  EXPECT_EQ(RunDirectory(path(), {.resume = true, .step = 20}).run(), first);
  EXPECT_THAT(begin(kResume), HasSubstr("step-00000020 are not used"));
  Checkpoint::open(path("set-aside-1/step-00000020")).verify();
}

TEST_F(Directory, NothingToResumeIsReported) {
  EXPECT_THAT(refusal(kResume), HasSubstr("there is no directory"));
  EXPECT_FALSE(fs::exists(path())) << "and none is made";
  fs::create_directories(path());
  EXPECT_THAT(refusal(kResume), HasSubstr("no checkpoint found in"));
  save(kNew, {1, 2});
  damage(1);
  damage(2);
  EXPECT_THAT(refusal(kResume), AllOf(HasSubstr("is complete; step 2: "), HasSubstr("; step 1: ")));
}

// --- the earlier format, without run identities ---

void forget_the_run(const std::string& folder) {
  const std::string file = folder + "/" + kManifestFile;
  const std::string text = read_bytes(file);
  Json root = Json::parse("{" + text.substr(text.find('\n')));
  root.erase("run");
  root.erase("fence");
  const std::string rest = root.dump(1).substr(1) + "\n";
  write_bytes(file,
              cat("{\"xxh3_64\": \"", checksum_of(std::as_bytes(std::span(rest))), "\",\n", rest));
}

TEST_F(Directory, AnEarlierFormatResumesAndGetsAnIdentity) {
  save(kNew, {10, 20, 30});
  for (const int64_t step : {10, 20, 30}) forget_the_run(path(step_name(step)));
  EXPECT_THAT(refusal(kNew), HasSubstr("without an identity"));
  save(kResume, {40}, 2);
  EXPECT_THAT(steps_in(path()), ElementsAre(30, 40)) << "they are the run's own";
  EXPECT_EQ(run_of(30), "");
  EXPECT_EQ(run_of(40).size(), 32u);
  damage(40);
  EXPECT_THAT(begin(kResume), HasSubstr("continues from step 30"));
}

// A second run has moved `latest` back to step 10. The later steps, which it did not remove, are
// kept.
TEST_F(Directory, AnEarlierFormatResumesFromLatest) {
  save(kNew, {10, 20, 30, 40});
  for (const int64_t step : {10, 20, 30, 40}) forget_the_run(path(step_name(step)));
  write_bytes(path("latest"), "step-00000010\n");
  EXPECT_THAT(begin(kResume), HasSubstr("continues from step 10"));
  EXPECT_THAT(steps_in(path("set-aside-1")), ElementsAre(20, 30, 40));
}

}  // namespace
}  // namespace tutti::training

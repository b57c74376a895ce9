// Tests two writers with different memberships in one directory. One of them continues to publish,
// and no published step is lost, whenever the other writer interferes or dies.
//
// "On another host" means a file system whose locks are local to the host: the second writer's lock
// file is a separate one.
#include "training/checkpoint/fence.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <map>
#include <memory>

#include "base/error.h"
#include "base/text.h"
#include "tests/training/checkpoint/support.h"
#include "training/checkpoint/run_directory.h"
#include "training/checkpoint/step_directory.h"

namespace tutti::training {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const Writer kAll{"start", 0, 0x1234};
const Writer kLeft{"start", 1, 0x12};
const Writer kRight{"start", 1, 0x34};
const Writer kLastOfRight{"start", 2, 0x4};

const WriterHistory kAsAll{.writers = {kAll}};
const WriterHistory kAsLeft{.writers = {kAll, kLeft}, .has_written = true};
const WriterHistory kAsRight{.writers = {kAll, kRight}, .has_written = true};
const WriterHistory kAsLastOfRight{.writers = {kAll, kRight, kLastOfRight}, .has_written = true};

constexpr const char* kRefusal = "belongs to another part of this job";

class Fences : public ::testing::Test {
 protected:
  std::string path() const { return scratch_.path("run"); }

  // Starts a writer in the directory, as if on another host.
  std::unique_ptr<RunDirectory> begin(const WriterHistory& history) const {
    fs::remove(path() + "/" + kLockFile);
    auto directory =
        std::make_unique<RunDirectory>(path(), RunStart{.resume = true, .or_new = true}, history);
    directory->begin();
    return directory;
  }
  std::string refusal(const WriterHistory& history) const {
    return error_of([&] { begin(history); });
  }
  // Saves a step from one rank; returns the rank's error, or "".
  std::string save(
      RunDirectory& directory, uint64_t step,
      const std::function<void(std::string_view)>& at_phase = [](auto) {}) const {
    return save_sample(directory, {.directory = path(), .keep = 0, .at_phase = at_phase}, 1, step)
        .front();
  }
  Writer writer_of(int64_t step) const {
    return Checkpoint::open(cat(path(), '/', step_name(step))).manifest().fence.writer;
  }

  const Scratch scratch_;
};

TEST_F(Fences, EachStepAndTheLockNameTheWriter) {
  const auto directory = begin(kAsAll);
  EXPECT_EQ(save(*directory, 10), "");
  EXPECT_EQ(writer_of(10), kAll);
  EXPECT_EQ(read_fence(path())->writer, kAll);
  EXPECT_THAT(read_bytes(path() + "/lock"), HasSubstr(" start 0 4660\n"));
}

TEST_F(Fences, SurvivorsTakeOverAndTheOldWriterIsRefused) {
  const auto all = begin(kAsAll);
  EXPECT_EQ(save(*all, 10), "");
  const auto left = begin(kAsLeft);
  EXPECT_EQ(left->resumed()->checkpoint.manifest().step, 10);
  EXPECT_EQ(save(*left, 20), "");
  EXPECT_THAT(save(*all, 20), AllOf(HasSubstr("the checkpoint of step 20 was not saved"),
                                    HasSubstr(kRefusal), HasSubstr("epoch 1"), HasSubstr("epoch 0"),
                                    HasSubstr("cause: "), HasSubstr("remedy: ")));
  EXPECT_EQ(save(*left, 30), "");
  EXPECT_EQ(writer_of(20), kLeft);
  EXPECT_THAT(refusal(kAsAll), HasSubstr(kRefusal)) << "an older membership";
}

// Both refused writers continue the same membership as `left`, but the second one has observed one
// more death.
TEST_F(Fences, OnePartOfAJobContinues) {
  begin(kAsAll);
  const auto left = begin(kAsLeft);
  EXPECT_EQ(save(*left, 10), "");
  EXPECT_THAT(refusal(kAsRight), HasSubstr(kRefusal));
  EXPECT_THAT(refusal(kAsLastOfRight), HasSubstr(kRefusal)) << "a higher epoch does not help it";
  EXPECT_THAT(steps_in(path()), ElementsAre(10));
  EXPECT_EQ(save(*left, 20), "");
}

TEST_F(Fences, OnePartTakesADirectoryThatNobodyHadBegun) {
  const auto left = begin({.writers = {kAll, kLeft}});
  EXPECT_THAT(refusal({.writers = {kAll, kRight}}), HasSubstr(kRefusal));
}

// A session that failed without the loss of a rank restarts with the same membership. The fence
// number of the directory stays the same.
TEST_F(Fences, TheSameMembersMayBeginAgain) {
  begin(kAsLeft);
  const uint64_t number = read_fence(path())->number;
  EXPECT_EQ(refusal(kAsLeft), "");
  EXPECT_EQ(read_fence(path())->number, number);
}

TEST_F(Fences, AStartAfterAnotherTakesOverForGood) {
  const auto first = begin(kAsAll);
  EXPECT_EQ(save(*first, 10), "");
  const auto second = begin({.writers = {{"another", 0, 0x1234}}});
  EXPECT_EQ(save(*second, 20), "");
  EXPECT_THAT(save(*first, 30), HasSubstr("belongs to another job"));
  EXPECT_THAT(refusal(kAsLeft), HasSubstr("belongs to another job"));
  EXPECT_EQ(save(*second, 30), "");
}

// Locks are shared by all hosts here. A writer that was cut off from the others still holds the
// lock, and does not prevent them from continuing.
TEST_F(Fences, TheLockOfAWriterThatIsPassedOverIsTaken) {
  const RunStart resume{.resume = true, .or_new = true};
  RunDirectory all(path(), resume, kAsAll);
  EXPECT_EQ(save(all, 10), "");
  RunDirectory left(path(), resume, kAsLeft);
  EXPECT_EQ(save(left, 20), "");
  EXPECT_THAT(error_of([&] { RunDirectory(path(), resume); }),
              AllOf(HasSubstr("another job uses"), HasSubstr(cat(::getpid()))));
  EXPECT_THAT(error_of([&] { RunDirectory(path(), resume, kAsRight); }),
              HasSubstr("another job uses"));
}

TEST_F(Fences, ARemovedFenceIsAnErrorAndTheNextOneIsHigher) {
  const auto first = begin(kAsAll);
  const auto second = begin(kAsLeft);
  EXPECT_EQ(save(*second, 10), "");
  const uint64_t number = second->fence().number;
  fs::remove(cat(path(), '/', kFencePrefix, "0000000", number));
  EXPECT_THAT(save(*second, 20), HasSubstr("the fence of"));
  EXPECT_GT(begin({.writers = {{"another", 0, 1}}})->fence().number, number);
}

TEST_F(Fences, AFenceThatIsDamagedIsAnError) {
  begin(kAsAll);
  write_bytes(path() + "/fence-00000007", "{");
  EXPECT_THAT(refusal(kAsLeft), AllOf(HasSubstr("fence-00000007"), HasSubstr("remedy: ")));
}

// --- at every moment ---

// For each step, the writer whose save() succeeded.
using Published = std::map<int64_t, Writer>;

void expect_all_there(const std::string& path, const Published& published) {
  for (const auto& [step, writer] : published) {
    const Checkpoint found = Checkpoint::open(cat(path, '/', step_name(step)));
    found.verify();
    EXPECT_EQ(found.manifest().fence.writer, writer) << "step " << step;
    expect_sample(found, static_cast<uint64_t>(step));
  }
}

class Moments : public Fences {
 protected:
  // The surviving ranks publish the steps `step` and `step` + 10.
  void proceed(RunDirectory& left, int64_t step, Published& published) const {
    for (const int64_t each : {step, step + 10}) {
      EXPECT_EQ(save(left, static_cast<uint64_t>(each)), "");
      published[each] = kLeft;
    }
  }
  // All ranks publish the steps `before`, then step 20. At each moment of the save of step 20, the
  // surviving ranks take over. They resume from the newest step or, with `again`, from a step
  // before 20.
  void take_over_at_every_moment(const std::vector<uint64_t>& before, bool again) const {
    int refused = 0, in_time = 0, moment = 0;
    for (bool reached = true; reached; ++moment) {
      SCOPED_TRACE(cat("moment ", moment));
      fs::remove_all(path());
      Published published;
      const auto all = begin(kAsAll);
      for (const uint64_t step : before) EXPECT_EQ(save(*all, step), "");
      published[10] = kAll;
      const auto others_go_on = [&] {
        const auto left = begin(kAsLeft);
        proceed(*left, again ? 20 : left->resumed()->checkpoint.manifest().step + 10, published);
      };
      reached = false;
      int now = 0;
      const std::string said = save(*all, 20, [&](std::string_view) {
        if (now++ != moment) return;
        reached = true;
        others_go_on();
      });
      said.empty() ? ++in_time : ++refused;
      if (said.empty()) published.try_emplace(20, kAll);
      if (!reached) others_go_on();
      expect_all_there(path(), published);
      if (HasFailure()) return;
    }
    EXPECT_GT(refused, 20);
    EXPECT_GE(in_time, 2);
  }
};

TEST_F(Moments, OthersTakeOverWhileAStepIsPublished) { take_over_at_every_moment({10}, false); }

TEST_F(Moments, OthersTakeOverWhileAStepIsPublishedAgain) {
  take_over_at_every_moment({10, 20}, true);
}

TEST_F(Moments, AWriterDiesWhileItPublishes) {
  int moment = 0;
  for (bool killed = true; killed; ++moment) {
    SCOPED_TRACE(cat("killed at moment ", moment));
    fs::remove_all(path());
    Published published;
    EXPECT_EQ(save(*begin(kAsAll), 10), "");
    published[10] = kAll;
    const pid_t child = ::fork();
    if (child == 0) {
      int now = 0;
      const auto left = begin(kAsLeft);
      const std::string said = save(*left, 20, [&](std::string_view) {
        if (now++ == moment) ::kill(::getpid(), SIGKILL);
      });
      ::_exit(said.empty() ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    killed = WIFSIGNALED(status);
    if (!killed) {
      EXPECT_EQ(WEXITSTATUS(status), 0);
      published[20] = kLeft;
    }
    EXPECT_THAT(refusal(kAsRight), HasSubstr(kRefusal)) << "the dead one had taken over";
    const Writer last{"start", 2, 0x1};
    const auto next = begin({.writers = {kAll, kLeft, last}, .has_written = true});
    const int64_t newest = next->resumed()->checkpoint.manifest().step;
    EXPECT_EQ(save(*next, static_cast<uint64_t>(newest + 10)), "");
    published[newest + 10] = last;
    expect_all_there(path(), published);
    if (HasFailure()) return;
  }
  EXPECT_GT(moment, 20);
}

}  // namespace
}  // namespace tutti::training

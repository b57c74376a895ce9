// Tests random histories of jobs in one directory: jobs are killed at any moment, restarted,
// rewound and mixed with other runs, and files are damaged. The newest complete step of a run is
// never lost, except by --overwrite.
//
// LINEAGE_ROUNDS is the number of random histories, LINEAGE_SEED their seed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <map>
#include <random>

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
using ::testing::HasSubstr;

int number_from(const char* variable, int fallback) {
  const char* text = std::getenv(variable);
  return text == nullptr ? fallback : std::atoi(text);
}

class Story {
 public:
  Story() : random_(static_cast<unsigned>(number_from("LINEAGE_SEED", 1))) {
    EXPECT_THAT(save_sample({.directory = strangers_, .keep = 0}, 2, 5), Each(""));
    for (const uint64_t step : {12, 50}) {
      EXPECT_THAT(save_sample({.directory = strangers_, .keep = 0}, 1, step), Each(""));
    }
  }

  void play_round() {
    mix_or_damage();
    const Newest before = newest();
    const bool used = fs::exists(run_) && !steps_in(run_).empty();
    const RunStart start = some_start();
    SCOPED_TRACE(describe(start));
    const int status = play(start);
    const Newest after = newest();
    const bool new_run = std::ranges::any_of(
        after, [&](const auto& entry) { return !before.contains(entry.first); });
    for (const auto& [run, step] : before) {
      const auto found = after.find(run);
      const bool kept = found != after.end() && found->second >= step;
      EXPECT_TRUE(kept || (start.overwrite && new_run)) << "step " << step << " of " << run;
    }
    if (!start.resume && !start.overwrite && used) {
      EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == kRefused);
      EXPECT_THAT(said(), AllOf(HasSubstr("holds "), HasSubstr("; the new run ")));
      EXPECT_EQ(after, before);
    }
    count(start, status);
  }

  // Expects each kind of event to have occurred in the history.
  void expect_of_all_kinds() const {
    EXPECT_GT(killed_, 0);
    EXPECT_GT(finished_, 0);
    EXPECT_GT(refused_, 0);
    EXPECT_GT(resumed_, 0);
    EXPECT_GT(overwritten_, 0);
    EXPECT_FALSE(fs::is_empty(run_));
    std::printf("%d jobs killed, %d finished, %d refused; %d resumed, %d overwrote\n", killed_,
                finished_, refused_, resumed_, overwritten_);
  }

 private:
  static constexpr int kRefused = 3;
  static constexpr int kBroken = 4;
  using Newest = std::map<std::string, int64_t>;  // run -> its newest step

  int any(int below) { return static_cast<int>(random_() % static_cast<unsigned>(below)); }

  static std::string describe(const RunStart& start) {
    return start.overwrite ? "overwrite"
           : !start.resume ? "new"
           : start.step    ? cat("resume ", *start.step)
                           : "resume";
  }

  std::vector<std::string> folders() const {
    std::vector<std::string> folders = {run_};
    if (!fs::exists(run_)) return {};
    for (const auto& entry : fs::directory_iterator(run_)) {
      if (entry.path().filename().string().starts_with("set-aside-"))
        folders.push_back(entry.path());
    }
    return folders;
  }

  // Returns the newest step of every run, in whatever folder it is.
  Newest newest() const {
    Newest found;
    for (const std::string& folder : folders()) {
      for (const int64_t step : steps_in(folder)) {
        try {
          const Checkpoint checkpoint = Checkpoint::open_alone(cat(folder, '/', step_name(step)));
          checkpoint.verify_alone();
          int64_t& newest = found[checkpoint.manifest().run];
          newest = std::max(newest, checkpoint.manifest().step);
        } catch (const Error&) {
          continue;
        }
      }
    }
    return found;
  }

  void mix_or_damage() {
    const std::vector<int64_t> steps = fs::exists(run_) ? steps_in(run_) : std::vector<int64_t>();
    if (steps.empty()) return;
    const std::string step =
        cat(run_, '/', step_name(steps[static_cast<size_t>(any(static_cast<int>(steps.size())))]));
    switch (any(8)) {
      case 0:
        return damage(step);
      case 1:
        fs::remove(run_ + "/latest");
        return;
      case 2:
        return write_bytes(run_ + "/latest", "step-00000007\n");
      case 3: {
        const char* names[] = {"step-00000005", "step-00000012", "step-00000050"};
        const std::string name = names[any(3)];
        if (!fs::exists(run_ + "/" + name)) {
          fs::copy(strangers_ + "/" + name, run_ + "/" + name, fs::copy_options::recursive);
        }
        return;
      }
      default:
        return;
    }
  }

  void damage(const std::string& step) {
    std::vector<std::string> files;
    for (const auto& entry : fs::directory_iterator(step)) files.push_back(entry.path());
    if (files.empty()) return;
    const std::string& file = files[static_cast<size_t>(any(static_cast<int>(files.size())))];
    std::string bytes = read_bytes(file);
    switch (any(3)) {
      case 0:
        fs::remove(file);
        return;
      case 1:
        return write_bytes(file, bytes.substr(0, bytes.size() / 2));
      default:
        bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 4);
        return write_bytes(file, bytes);
    }
  }

  RunStart some_start() {
    const std::vector<int64_t> steps = fs::exists(run_) ? steps_in(run_) : std::vector<int64_t>();
    const int kind = any(10);
    if (kind < 6) {
      RunStart start{.resume = true};
      if (kind == 0 && !steps.empty()) {
        start.step = steps[static_cast<size_t>(any(static_cast<int>(steps.size())))];
      }
      return start;
    }
    return {.overwrite = kind == 9};
  }

  // Starts a child process that saves some steps, and often kills it. Returns the child's wait
  // status.
  int play(const RunStart& start) {
    const int ranks = 1 + any(3);
    const int steps = 1 + any(4);
    const int keep = any(4);
    const int moment = any(3) == 0 ? 1 << 20 : any(25 * steps);
    const pid_t child = ::fork();
    if (child == 0) ::_exit(run_job(start, ranks, steps, keep, moment));
    int status = -1;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_FALSE(WIFEXITED(status) && WEXITSTATUS(status) == kBroken) << said();
    return status;
  }

  int run_job(const RunStart& start, int ranks, int steps, int keep, int moment) const {
    std::freopen(said_.c_str(), "w", stderr);
    try {
      RunDirectory directory(run_, start);
      directory.begin();
      uint64_t step = directory.resumed()
                          ? static_cast<uint64_t>(directory.resumed()->checkpoint.manifest().step)
                          : 0;
      std::atomic<int> left = moment;
      const auto at_phase = [&](std::string_view) {
        if (left-- == 0) ::kill(::getpid(), SIGKILL);
      };
      for (int i = 0; i < steps; ++i) {
        const std::string intruder = error_of([&] { RunDirectory(run_, {.overwrite = true}); });
        if (intruder.find("another job uses") == intruder.npos) return kBroken;
        step += 1 + step % 3;
        for (const std::string& error : save_sample(
                 directory, {.directory = run_, .keep = keep, .at_phase = at_phase}, ranks, step)) {
          if (error.empty()) continue;
          std::fprintf(stderr, "%s\n", error.c_str());
          return kBroken;
        }
      }
      return 0;
    } catch (const Error& error) {
      std::fprintf(stderr, "%s\n", error.what());
      std::fflush(stderr);
      return kRefused;
    }
  }

  std::string said() const { return read_bytes(said_); }

  void count(const RunStart& start, int status) {
    killed_ += WIFSIGNALED(status);
    finished_ += WIFEXITED(status) && WEXITSTATUS(status) == 0;
    const bool refused = WIFEXITED(status) && WEXITSTATUS(status) == kRefused;
    refused_ += refused;
    resumed_ += start.resume && !refused;
    overwritten_ += start.overwrite && !refused;
  }

  const Scratch scratch_;
  const std::string run_ = scratch_.path("run");
  const std::string strangers_ = scratch_.path("strangers");
  const std::string said_ = scratch_.path("said");
  std::minstd_rand random_;
  int killed_ = 0;
  int finished_ = 0;
  int refused_ = 0;
  int resumed_ = 0;
  int overwritten_ = 0;
};

TEST(RunLineage, TheNewestWholeStepOfARunIsNeverLost) {
  Story story;
  const int rounds = number_from("LINEAGE_ROUNDS", 40);
  for (int round = 0; round < rounds && !::testing::Test::HasFailure(); ++round) {
    SCOPED_TRACE(cat("round ", round));
    story.play_round();
  }
  if (rounds >= 40) story.expect_of_all_kinds();
}

}  // namespace
}  // namespace tutti::training

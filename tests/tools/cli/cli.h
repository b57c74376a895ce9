// Runs the program as a user does, and checks for leftovers.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/text.h"
#include "tests/support/process.h"

namespace tutti::tool {

using testing::Process;
using testing::Result;
using testing::Watched;

using Words = std::vector<std::string>;

// Time limit for a job's end after one of its ranks has died.
inline constexpr std::chrono::seconds kEndsWithin{5};

// Returns a TCP port of the loopback interface on which no process listens.
uint16_t free_port();

// Matches standard error that is empty except for warnings about delays, as on a busy machine.
MATCHER(IsQuiet, "says nothing") {
  constexpr const char* kSlow[] = {"warning: waiting for", "warning: still waiting for",
                                   "warning: still looking for", "did not finish the handshake"};
  for (const std::string& line : split(arg, '\n')) {
    const bool is_slow = std::ranges::any_of(
        kSlow, [&](const char* slow) { return line.find(slow) != std::string::npos; });
    if (!line.empty() && !is_slow) return false;
  }
  return true;
}

// Fails if a process, or a file of Tutti in /dev/shm, outlives the test.
class Cli : public ::testing::Test {
 protected:
  Cli();
  ~Cli() override;
  void TearDown() override;

  // Returns the absolute path of `tutti`.
  static std::string tutti();
  Process start(const Words& arguments, Process::Environment environment = {}) const;
  Process start_program(Words command, Process::Environment environment = {}) const;
  Result run(const Words& arguments, Process::Environment environment = {}) const;

  // Returns a path in this test's own directory.
  std::string path(const std::string& name) const { return directory_ / name; }
  static std::string read(const std::string& path);
  // Writes a file into that directory; returns its path.
  std::string write(const std::string& name, const std::string& text) const;
  // Writes about `bytes` of random words with a fixed seed; returns the file's path.
  std::string write_text(size_t bytes = 60000) const;

  // Returns the value of CLI_TEST, for processes that are not started by start().
  const std::string& mark() const { return mark_; }

  // Returns this test's processes: those started by start(), and their descendants.
  std::vector<pid_t> processes() const;
  pid_t process_of_rank(int rank) const;  // returns 0 if there is no such process

 private:
  std::filesystem::path directory_;
  std::string mark_;  // value of CLI_TEST in the environment of all processes of this test
  std::set<std::string> shm_before_;
};

}  // namespace tutti::tool

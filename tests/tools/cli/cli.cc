#include "tests/tools/cli/cli.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <random>

#include "base/error.h"
#include "base/fd.h"
#include "base/text.h"
#include "tests/support/leftovers.h"

namespace tutti::tool {

namespace fs = std::filesystem;

namespace {

constexpr const char* kMark = "CLI_TEST";

// Returns the variables of a process; empty if the process has ended or belongs to another user.
std::set<std::string> environment_of(pid_t pid) {
  std::ifstream file(cat("/proc/", pid, "/environ"), std::ios::binary);
  std::set<std::string> variables;
  for (std::string variable; std::getline(file, variable, '\0');) variables.insert(variable);
  return variables;
}

std::vector<pid_t> processes_with(const std::set<std::string>& variables) {
  std::vector<pid_t> found;
  for (const fs::directory_entry& entry : fs::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const pid_t pid = std::stoi(name);
    const std::set<std::string> theirs = environment_of(pid);
    if (std::ranges::includes(theirs, variables)) found.push_back(pid);
  }
  return found;
}

}  // namespace

// Returns a port below the kernel's range of ephemeral ports, which other programs use.
uint16_t free_port() {
  std::random_device chance;
  std::uniform_int_distribution<int> ports(15000, 32000);
  for (int tries = 0; tries < 1000; ++tries) {
    const Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(ports(chance)));
    if (::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) {
      return ntohs(address.sin_port);
    }
  }
  throw system_error("a free port", errno);
}

namespace {

// A file named after a running process ("tutti-clock-memory-4711") is in use by a concurrent test:
// tests that make namespaces run without a sandbox and share /dev/shm.
bool is_of_running_process(const std::string& file) {
  const std::string pid = file.substr(file.rfind('-') + 1);
  const bool is_number = !pid.empty() && pid.find_first_not_of("0123456789") == pid.npos;
  return is_number && fs::exists(cat("/proc/", pid));
}

}  // namespace

Cli::Cli() : shm_before_(testing::files_in_dev_shm()) {
  ::unsetenv("TUTTI_TEST_DATA");  // set for other tests; the program would warn about it
  std::string name = ::testing::TempDir() + "/cli.XXXXXX";
  if (::mkdtemp(name.data()) == nullptr) throw system_error(cat("mkdtemp ", name), errno);
  directory_ = name;
  mark_ = directory_.filename();
}

Cli::~Cli() { fs::remove_all(directory_); }

void Cli::TearDown() {
  // The launcher's guard may still be exiting.
  for (const pid_t pid : processes()) Watched(pid).wait_for_end();
  std::set<std::string> left = testing::files_in_dev_shm();
  for (const std::string& name : shm_before_) left.erase(name);
  std::erase_if(left, is_of_running_process);
  EXPECT_THAT(left, ::testing::IsEmpty()) << "left in /dev/shm";
}

std::string Cli::tutti() {
  const char* given = std::getenv("PROGRAM_UNDER_TEST");  // for runs outside Bazel
  return fs::absolute(given != nullptr ? given : "tools/tutti");
}

Process Cli::start_program(Words command, Process::Environment environment) const {
  environment[kMark] = mark_;
  return Process(std::move(command), std::move(environment));
}

Process Cli::start(const Words& arguments, Process::Environment environment) const {
  Words command = {tutti()};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return start_program(std::move(command), std::move(environment));
}

Result Cli::run(const Words& arguments, Process::Environment environment) const {
  return start(arguments, std::move(environment)).finish();
}

std::string Cli::read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string Cli::write(const std::string& name, const std::string& text) const {
  std::ofstream(path(name), std::ios::binary) << text;
  return path(name);
}

std::string Cli::write_text(size_t bytes) const {
  static constexpr std::array kWords = {"the",  "whole", "orchestra", "plays", "and",
                                        "rank", "by",    "sum",       "of",    "bytes"};
  std::minstd_rand random(1);
  std::string text;
  while (text.size() < bytes) text += cat(kWords[random() % kWords.size()], ' ');
  const std::string file = path("text");
  std::ofstream(file) << text;
  return file;
}

std::vector<pid_t> Cli::processes() const { return processes_with({cat(kMark, '=', mark_)}); }

pid_t Cli::process_of_rank(int rank) const {
  const std::vector<pid_t> found = processes_with({cat(kMark, '=', mark_), cat("RANK=", rank)});
  return found.empty() ? 0 : found.front();
}

}  // namespace tutti::tool

#include "tools/chaos/processes.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <optional>
#include <string_view>
#include <thread>

#include "base/deadline.h"
#include "base/error.h"
#include "base/fd.h"
#include "base/parse_number.h"
#include "base/printable.h"
#include "base/text.h"
#include "tools/chaos/in_namespace.h"
#include "tools/process_list.h"

namespace tutti::tool::chaos {

namespace {

// Returns the text of a file in /proc/PID; empty if it cannot be read, for example because the
// process has ended.
std::string text_of(pid_t pid, std::string_view file) {
  const Fd fd(::open(cat("/proc/", pid, "/", file).c_str(), O_RDONLY | O_CLOEXEC));
  std::string text;
  std::array<char, 4096> block;
  for (ssize_t got = 0; (got = ::read(fd.get(), block.data(), block.size())) > 0;) {
    text.append(block.data(), static_cast<size_t>(got));
  }
  return text;
}

struct Status {
  std::string state;  // R, S, D, T and others, as in proc(5)
  pid_t parent = 0;
};

// Returns the status of a process; nothing if it has ended.
std::optional<Status> status_of(pid_t pid) {
  const std::string stat = text_of(pid, "stat");  // PID (NAME) STATE PARENT ...
  const size_t name_end = stat.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  const std::vector<std::string> fields = split(stat.substr(name_end), ' ');
  if (fields.size() < 3 || fields[1] == "Z" || fields[1] == "X") return std::nullopt;
  return Status{fields[1], parse_number<int>(fields[2]).value_or(0)};
}

std::optional<int> rank_of(pid_t pid) {
  const auto variables = environment_of(pid);
  const auto rank = variables.find("RANK");
  return rank == variables.end() ? std::nullopt : parse_number<int>(rank->second);
}

std::multimap<pid_t, pid_t> children_by_parent() {
  std::multimap<pid_t, pid_t> children;
  for (const pid_t pid : all_processes()) {
    if (const std::optional<Status> status = status_of(pid)) children.emplace(status->parent, pid);
  }
  return children;
}

}  // namespace

void adopt_orphans() {
  if (::prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) throw system_error("become a subreaper", errno);
}

std::vector<pid_t> descendants() {
  const std::multimap<pid_t, pid_t> children = children_by_parent();
  std::vector<pid_t> found = {::getpid()};
  for (size_t i = 0; i < found.size(); ++i) {
    const auto [begin, end] = children.equal_range(found[i]);
    for (auto child = begin; child != end; ++child) found.push_back(child->second);
  }
  found.erase(found.begin());
  return found;
}

std::map<int, pid_t> rank_processes() {
  std::map<int, pid_t> found;
  for (const pid_t pid : descendants()) {
    if (const std::optional<int> rank = rank_of(pid)) found.emplace(*rank, pid);
  }
  return found;
}

bool is_in_namespace(pid_t pid, const std::string& name) {
  struct stat own = {};
  struct stat wanted = {};
  return ::stat(cat("/proc/", pid, "/ns/net").c_str(), &own) == 0 &&
         ::stat(namespace_file(name).c_str(), &wanted) == 0 && own.st_ino == wanted.st_ino &&
         own.st_dev == wanted.st_dev;
}

std::string in_words(pid_t pid) {
  std::string command = text_of(pid, "cmdline");
  std::ranges::replace(command, '\0', ' ');
  while (command.ends_with(' ')) command.pop_back();
  return cat(pid, " (", printable(command), ")");
}

bool is_mapped(const std::string& file) {
  return std::ranges::any_of(all_processes(), [&](pid_t pid) {
    return text_of(pid, "maps").find(file) != std::string::npos;
  });
}

bool kill_alive(pid_t pid) {
  if (::kill(pid, SIGSTOP) != 0) return false;
  const Deadline deadline = Deadline::after(std::chrono::seconds(5));
  std::optional<Status> status = status_of(pid);
  while (status && status->state != "T" && !deadline.passed()) {
    std::this_thread::sleep_for(std::chrono::microseconds(100));
    status = status_of(pid);
  }
  return status && ::kill(pid, SIGKILL) == 0;
}

void kill_descendants() {
  const Deadline deadline = Deadline::after(std::chrono::seconds(5));
  for (std::vector<pid_t> left = descendants(); !left.empty() && !deadline.passed();
       left = descendants()) {
    for (const pid_t pid : left) ::kill(pid, SIGKILL);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    while (::waitpid(-1, nullptr, WNOHANG) > 0) {
    }
  }
}

}  // namespace tutti::tool::chaos

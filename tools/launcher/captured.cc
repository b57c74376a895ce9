#include "tools/launcher/captured.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <utility>

#include "base/deadline.h"
#include "tools/launcher/remote_shell.h"

namespace tutti::tool {

namespace {

constexpr std::chrono::milliseconds kCapturedFarewell{5000};
constexpr size_t kMostShown = 1500;

// Reads both streams to their ends. Returns false if the deadline has passed.
bool read_both(Fd& out, Fd& err, Captured& captured, const Deadline& deadline) {
  while (out || err) {
    pollfd ready[] = {{out.get(), POLLIN, 0}, {err.get(), POLLIN, 0}};
    ::poll(ready, 2, static_cast<int>(deadline.remaining().count()));
    if (deadline.passed()) return false;
    for (Fd* fd : {&out, &err}) {
      if (ready[fd == &out ? 0 : 1].revents == 0) continue;
      char block[4096];
      const ssize_t got = ::read(fd->get(), block, sizeof block);
      std::string& text = fd == &out ? captured.out : captured.err;
      if (got > 0) text.append(block, static_cast<size_t>(got));
      if (got == 0 || (got < 0 && errno != EINTR)) fd->reset();
    }
  }
  return true;
}

}  // namespace

Captured run_captured(ChildSpec spec, std::chrono::milliseconds within) {
  Pipe out = make_pipe();
  Pipe err = make_pipe();
  spec.out = out.write.get();
  spec.err = err.write.get();
  spec.die_with_parent = true;
  const pid_t pid = start_child(spec);
  out.write.reset();
  err.write.reset();
  Captured captured;
  captured.in_time = read_both(out.read, err.read, captured, Deadline::after(within));
  // the guard and the agents of the killed process then end their children
  if (!captured.in_time) ::kill(pid, SIGKILL);
  captured.code = wait_for_child(pid, kCapturedFarewell);
  return captured;
}

std::string last_words(std::string text) {
  while (text.ends_with('\n')) text.pop_back();
  if (text.size() <= kMostShown) return text;
  text.erase(0, text.size() - kMostShown);
  return "..." + text.substr(std::min(text.find('\n'), text.size()));
}

}  // namespace tutti::tool

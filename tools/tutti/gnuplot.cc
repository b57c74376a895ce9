#include "tools/tutti/gnuplot.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/error.h"
#include "base/fd.h"
#include "base/path.h"
#include "base/text.h"
#include "tools/tutti/commands.h"

namespace tutti::tool {
namespace {

constexpr const char* kProgram = "gnuplot";

// Starts gnuplot with a file as its output. Its input is a socket, not a pipe, because writing to a
// closed socket can return an error instead of raising SIGPIPE.
pid_t start(const std::string& path, Fd& pipe) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    throw system_error("socketpair", errno);
  }
  pipe = Fd(ends[0]);
  const Fd theirs(ends[1]);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, theirs.get(), STDIN_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, path.c_str(), O_WRONLY | O_TRUNC, 0);
  std::string name = kProgram;
  char* arguments[] = {name.data(), nullptr};
  pid_t pid = -1;
  const int problem = ::posix_spawnp(&pid, kProgram, &actions, nullptr, arguments, environ);
  posix_spawn_file_actions_destroy(&actions);
  if (problem != 0) throw system_error(cat("starting ", kProgram), problem);
  return pid;
}

}  // namespace

std::string gnuplot_string(const std::string& text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("''") : std::string(1, c);
  return out + "'";
}

std::string gnuplot_title(const std::string& text) {
  constexpr size_t kColumns = 80;
  std::string out = "set title \"";
  size_t column = 0;
  for (const std::string& word : split(text, ' ')) {
    if (column > 0) {
      const bool fits = column + 1 + word.size() <= kColumns;
      out += fits ? " " : "\\n";
      column = fits ? column + 1 : 0;
    }
    for (const char c : word) {
      if (c == '"' || c == '\\' || c == '`') out += '\\';
      out += c;
    }
    column += word.size();
  }
  return out + "\" noenhanced\n";
}

Picture::Picture(std::string path, const std::string& option) : path_(std::move(path)) {
  if (path_.empty()) return;
  if (!path_.ends_with(".svg") && !path_.ends_with(".png")) {
    throw Error(ErrorCode::invalid_argument,
                cat(option, ' ', path_, " ends with neither .svg nor .png"),
                {.remedy = "use a file name that ends with .svg or .png"});
  }
  if (find_program(kProgram).empty()) {
    throw Error(ErrorCode::unsupported, cat(option, " requires gnuplot, which is not installed"),
                {.remedy = "apt-get install gnuplot-nox"});
  }
  open_for_appending(path_);  // keeps an earlier picture until there is another
}

void Picture::draw(const std::string& script) const {
  const std::string text =
      cat("set encoding utf8\nset terminal ", path_.ends_with(".svg") ? "svg dynamic" : "pngcairo",
          " size 960,640 background '#ffffff' font 'sans,14'\n", script);
  Fd pipe;
  const pid_t pid = start(path_, pipe);
  for (size_t done = 0; done < text.size();) {
    const ssize_t n = ::send(pipe.get(), text.data() + done, text.size() - done, MSG_NOSIGNAL);
    if (n < 0) break;  // the exit code shows the reason
    done += n;
  }
  pipe.reset();
  int status = 0;
  ::waitpid(pid, &status, 0);
  if (status != 0) {
    throw Error(ErrorCode::system, cat("gnuplot failed to draw ", path_),
                {.remedy = "see its messages above"});
  }
}

}  // namespace tutti::tool

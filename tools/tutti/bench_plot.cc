#include "tools/tutti/bench_plot.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <iterator>
#include <sstream>

#include "base/error.h"
#include "base/fd.h"
#include "base/path.h"
#include "base/text.h"
#include "tools/tutti/commands.h"

namespace tutti::tool {

namespace {

constexpr const char* kProgram = "gnuplot";
constexpr const char* kColors[] = {"#d62728", "#1f77b4", "#2ca02c", "#9467bd"};

std::string quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("''") : std::string(1, c);
  return out + "'";
}

// Values on an axis, and some room around them.
struct Range {
  double low = 0;
  double high = 0;

  void add(double value) {
    low = low == 0 ? value : std::min(low, value);
    high = std::max(high, value);
  }
  std::string text(double room) const { return cat('[', low / room, ':', high * room, ']'); }
};

// "'8 B' 8, '64 B' 64, ..."
std::string tics(const Range& bytes) {
  std::string text;
  for (double at = bytes.low; at <= bytes.high; at *= 8) {
    const auto value = static_cast<uint64_t>(at);
    text += cat(text.empty() ? "" : ", ", quoted(human_bytes(value)), ' ', value);
  }
  return text;
}

std::string style(const PlotLine& line, size_t number) {
  if (line.is_reference) return "dt 2 lc rgb '#606060'";
  return cat("lc rgb '", kColors[number % std::size(kColors)], '\'');
}

std::string script(const std::string& terminal, const std::string& title,
                   const std::vector<PlotLine>& lines) {
  std::ostringstream out;
  Range bytes;
  Range times;
  for (size_t i = 0; i < lines.size(); ++i) {
    out << "$line" << i << " << END\n";
    for (const auto& [x, y] : lines[i].points) {
      out << x << ' ' << y << '\n';
      bytes.add(static_cast<double>(x));
      times.add(y);
    }
    out << "END\n";
  }
  out << "set encoding utf8\n"
      << "set terminal " << terminal << " size 960,640 background '#ffffff' font 'sans,14'\n"
      << "set title " << quoted(title) << " noenhanced\n"
      << "set xlabel 'size'\nset ylabel 'median time of the slowest rank (µs)'\n"
      << "set logscale x 2\nset logscale y 10\nset format y '%g'\n"
      << "set xrange " << bytes.text(1.5) << "\nset yrange " << times.text(1.5) << '\n'
      << "set xtics (" << tics(bytes) << ")\nset grid lc rgb '#c0c0c0'\n"
      << "set key outside right center noenhanced\n";
  for (size_t i = 0; i < lines.size(); ++i) {
    out << (i == 0 ? "plot " : ", ") << "$line" << i
        << " using 1:2 with linespoints lw 2 pt 7 ps 0.5 " << style(lines[i], i) << " title "
        << quoted(lines[i].title);
  }
  out << '\n';
  return out.str();
}

// Starts gnuplot with its picture going to a file. A socket serves as the pipe to it, because
// writing to one that nobody reads is an error and not a signal.
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

BenchPlot::BenchPlot(std::string path) : path_(std::move(path)) {
  if (path_.empty()) return;
  if (!path_.ends_with(".svg") && !path_.ends_with(".png")) {
    throw Error(ErrorCode::invalid_argument, cat("--plot ", path_, " is neither .svg nor .png"),
                {.remedy = "name a file that ends with one of them"});
  }
  if (find_program(kProgram).empty()) {
    throw Error(ErrorCode::unsupported, "--plot needs gnuplot, which is not installed",
                {.remedy = "apt-get install gnuplot-nox"});
  }
  open_for_writing(path_);
}

void BenchPlot::draw(const std::string& title, const std::vector<PlotLine>& lines) const {
  const std::string text =
      script(path_.ends_with(".svg") ? "svg dynamic" : "pngcairo", title, lines);
  Fd pipe;
  const pid_t pid = start(path_, pipe);
  for (size_t done = 0; done < text.size();) {
    const ssize_t n = ::send(pipe.get(), text.data() + done, text.size() - done, MSG_NOSIGNAL);
    if (n < 0) break;  // its exit code says more
    done += n;
  }
  pipe.reset();
  int status = 0;
  ::waitpid(pid, &status, 0);
  if (status != 0) {
    throw Error(ErrorCode::system, cat("gnuplot could not draw ", path_),
                {.remedy = "see what it says above"});
  }
}

}  // namespace tutti::tool

// Shows the ranks' output.
//
// With prefixes, every line is shown as "[3] text". A line that several ranks print within a short
// window is shown once, as "[0-3] text". The lines of each rank stay in order. Without prefixes
// bytes are passed on as they arrive, so that progress lines that overwrite themselves with '\r'
// work.
#pragma once

#include <chrono>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "base/deadline.h"
#include "tools/launcher/agent.h"

namespace tutti::tool {

class Output {
 public:
  // Time for which a line waits for other ranks to print the same line.
  static constexpr std::chrono::milliseconds kWindow{100};
  // Number of a rank's last lines on standard error that are kept for tail().
  static constexpr size_t kTailLines = 20;

  Output(int ranks, bool prefix_lines, int out_fd = 1, int err_fd = 2)
      : ranks_(ranks), prefix_lines_(prefix_lines), out_fd_(out_fd), err_fd_(err_fd) {}

  void add(int rank, Stream stream, std::string_view bytes, Clock::time_point now = Clock::now());
  // Ends a stream: an unfinished last line counts as a line.
  void end(int rank, Stream stream, Clock::time_point now = Clock::now());

  // Shows the lines whose window has passed.
  void show_due(Clock::time_point now = Clock::now());
  // Returns the time until show_due() must be called again, at most `cap`.
  std::chrono::milliseconds until_due(std::chrono::milliseconds cap) const;
  // Shows all waiting lines, including unfinished ones.
  void finish();

  // Number of last lines that are assumed to be still visible on the screen; tail() does not repeat
  // them.
  static constexpr int64_t kOnScreen = 20;

  // Returns up to kTailLines last lines of the rank's standard error, with prefixes if lines have
  // them. Returns an empty text if the last one is still on the screen. Call finish() first.
  std::string tail(int rank) const;

  // Returns true if the reader of standard output has exited (`| head`).
  bool broken() const { return broken_; }
  // Returns the errno of a failed write of ranks' output to standard output, or 0.
  int lost() const { return lost_; }

 private:
  struct Line {
    Stream stream;
    std::string text;
    Clock::time_point since;

    bool same_as(const Line& other) const { return stream == other.stream && text == other.text; }
  };
  struct Shown {
    std::string text;
    int64_t position;  // number of lines of all ranks that had been shown, including this line
  };
  using Source = std::pair<int, Stream>;

  void add_line(int rank, Stream stream, std::string text, Clock::time_point now);
  std::optional<int> oldest() const;
  std::set<int> ranks_with_first(const Line& line) const;
  int choose(int oldest) const;
  void show_first_of(int rank);
  void remember(int rank, std::string_view text);
  void write_all(Stream stream, std::string_view bytes);

  int ranks_;
  bool prefix_lines_;
  int out_fd_;
  int err_fd_;
  bool broken_ = false;
  int lost_ = 0;
  int64_t shown_ = 0;
  std::map<Source, std::string> unfinished_;
  // key: rank; value: its waiting lines in order, at least one
  std::map<int, std::deque<Line>> waiting_;
  size_t waiting_lines_ = 0;
  // key: stream and text of waiting lines; value: for each rank, its number of such lines
  std::map<std::pair<Stream, std::string>, std::map<int, int>> waiting_texts_;
  std::map<int, std::deque<Shown>> tails_;
};

}  // namespace tutti::tool

#include "tools/launcher/output.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "base/text.h"

namespace tutti::tool {

namespace {

// Longer lines are split, which bounds the memory for a line that never ends.
constexpr size_t kLongestLine = size_t{64} << 10;
// Maximum number of waiting lines. If more lines wait, the oldest ones are shown at once.
constexpr size_t kMostWaiting = 1000;

std::string label(const std::set<int>& ranks) {
  return cat("[", rank_ranges({ranks.begin(), ranks.end()}), "] ");
}

// Returns the part of a line that a terminal would show: the part after the last carriage return.
std::string_view visible(std::string_view line) {
  if (line.ends_with('\r')) line.remove_suffix(1);
  const size_t at = line.rfind('\r');
  return at == std::string_view::npos ? line : line.substr(at + 1);
}

}  // namespace

void Output::add(int rank, Stream stream, std::string_view bytes, Clock::time_point now) {
  if (!prefix_lines_) {
    write_all(stream, bytes);
    shown_ += std::ranges::count(bytes, '\n');
    if (stream == Stream::out) return;  // lines of standard error are kept for tail()
  }
  std::string& pending = unfinished_[{rank, stream}];
  while (!bytes.empty()) {
    const size_t newline = bytes.find('\n');
    pending += bytes.substr(0, newline);
    bytes.remove_prefix(std::min(newline, bytes.size() - 1) + 1);
    if (newline == std::string_view::npos && pending.size() < kLongestLine) break;
    add_line(rank, stream, std::string(visible(pending)), now);
    pending.clear();
  }
  // Drops the overwritten part of a progress line; a final carriage return may belong to "\r\n".
  const size_t last_return =
      pending.size() > 1 ? pending.rfind('\r', pending.size() - 2) : std::string::npos;
  if (last_return != std::string::npos) pending.erase(0, last_return + 1);
}

void Output::end(int rank, Stream stream, Clock::time_point now) {
  const auto found = unfinished_.find({rank, stream});
  if (found == unfinished_.end()) return;
  if (!found->second.empty()) add_line(rank, stream, std::string(visible(found->second)), now);
  unfinished_.erase(found);
}

void Output::add_line(int rank, Stream stream, std::string text, Clock::time_point now) {
  if (!prefix_lines_) return remember(rank, text);
  ++waiting_texts_[{stream, text}][rank];
  ++waiting_lines_;
  waiting_[rank].push_back({stream, std::move(text), now});
  show_due(now);
}

// Returns the rank whose first waiting line has waited longest.
std::optional<int> Output::oldest() const {
  const auto found = std::ranges::min_element(
      waiting_, {}, [](const auto& entry) { return entry.second.front().since; });
  return found == waiting_.end() ? std::nullopt : std::optional(found->first);
}

std::set<int> Output::ranks_with_first(const Line& line) const {
  std::set<int> ranks;
  for (const auto& [rank, lines] : waiting_) {
    if (lines.front().same_as(line)) ranks.insert(rank);
  }
  return ranks;
}

// Returns the rank whose first waiting line is shown next: the oldest first line that does not also
// wait behind other lines at another rank. Showing those other lines first allows equal lines to be
// collapsed. If every first line waits elsewhere too, returns `oldest`.
int Output::choose(int oldest) const {
  int chosen = oldest;
  Clock::time_point since = Clock::time_point::max();
  for (const auto& [rank, lines] : waiting_) {
    const Line& line = lines.front();
    const size_t ranks_with_it = waiting_texts_.at({line.stream, line.text}).size();
    if (line.since < since && ranks_with_first(line).size() == ranks_with_it) {
      chosen = rank;
      since = line.since;
    }
  }
  return chosen;
}

void Output::show_due(Clock::time_point now) {
  while (const std::optional<int> rank = oldest()) {
    const Line& line = waiting_.at(*rank).front();
    const bool is_due = now - line.since >= kWindow || waiting_lines_ > kMostWaiting ||
                        static_cast<int>(ranks_with_first(line).size()) == ranks_;
    if (!is_due) return;
    show_first_of(choose(*rank));
  }
}

std::chrono::milliseconds Output::until_due(std::chrono::milliseconds cap) const {
  const std::optional<int> rank = oldest();
  if (!rank) return cap;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(waiting_.at(*rank).front().since +
                                                                 kWindow - Clock::now());
  return std::clamp(left, std::chrono::milliseconds(0), cap);
}

void Output::finish() {
  while (!unfinished_.empty()) {
    const Source source = unfinished_.begin()->first;
    end(source.first, source.second);
  }
  show_due(Clock::time_point::max());
}

void Output::show_first_of(int rank) {
  const Line line = waiting_.at(rank).front();
  const std::set<int> ranks = ranks_with_first(line);
  for (const int one : ranks) {
    waiting_.at(one).pop_front();
    if (waiting_.at(one).empty()) waiting_.erase(one);
    auto& counts = waiting_texts_.at({line.stream, line.text});
    if (--counts.at(one) == 0) counts.erase(one);
    if (counts.empty()) waiting_texts_.erase({line.stream, line.text});
  }
  waiting_lines_ -= ranks.size();
  write_all(line.stream, label(ranks) + line.text + '\n');
  ++shown_;
  if (line.stream != Stream::err) return;
  for (const int one : ranks) remember(one, line.text);
}

void Output::remember(int rank, std::string_view text) {
  std::deque<Shown>& tail = tails_[rank];
  tail.push_back({std::string(text), shown_});
  if (tail.size() > kTailLines) tail.pop_front();
}

std::string Output::tail(int rank) const {
  const auto found = tails_.find(rank);
  if (found == tails_.end()) return "";
  const std::deque<Shown>& lines = found->second;
  std::string text;
  if (shown_ - lines.back().position < kOnScreen) return text;
  for (const Shown& line : lines) text += (prefix_lines_ ? label({rank}) : "") + line.text + '\n';
  return text;
}

void Output::write_all(Stream stream, std::string_view bytes) {
  const int fd = stream == Stream::out ? out_fd_ : err_fd_;
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written >= 0) {
      bytes.remove_prefix(static_cast<size_t>(written));
      // Another process has made the terminal or pipe non-blocking.
    } else if (errno == EAGAIN) {
      pollfd writable{fd, POLLOUT, 0};
      ::poll(&writable, 1, -1);
    } else if (errno != EINTR) {
      if (stream == Stream::out && lost_ == 0) lost_ = errno;
      broken_ = broken_ || (stream == Stream::out && errno == EPIPE);
      return;
    }
  }
}

}  // namespace tutti::tool

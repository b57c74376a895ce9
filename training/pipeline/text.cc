#include "training/pipeline/text.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/text.h"

namespace tutti::training::pipeline {
namespace {

bool is_multiple(double time, double slot) {
  const double slots = time / slot;
  return std::abs(slots - std::round(slots)) < 1e-6;
}

// Returns the width of a table column in time: the largest of 1, 1/2, 1/3 and 1/4 of the shortest
// span such that all spans start and end at multiples of it. Returns 0 if no such width exists.
double slot_of(const Timeline& timeline) {
  double shortest = timeline.makespan;
  for (const Span& span : timeline.spans) shortest = std::min(shortest, span.end - span.start);
  if (shortest <= 0) return 0;
  for (const int parts : {1, 2, 3, 4}) {
    const double slot = shortest / parts;
    const bool fits = std::ranges::all_of(timeline.spans, [&](const Span& span) {
      return is_multiple(span.start, slot) && is_multiple(span.end, slot);
    });
    if (fits) return slot;
  }
  return 0;
}

std::string padded(std::string text, size_t width, char with) {
  if (text.size() < width) text.resize(width, with);
  return text;
}

class Table {
 public:
  Table(const Plan& plan, const Timeline& timeline)
      : plan_(plan), timeline_(timeline), slot_(slot_of(timeline)) {
    for (const Span& span : timeline.spans) width_ = std::max(width_, name(span).size() + 1);
  }

  std::string row(int rank) const {
    std::string line;
    long now = 0;
    for (const Span& span : timeline_.spans) {
      if (span.rank != rank) continue;
      if (slot_ == 0) {
        line += padded(name(span), width_, ' ');
        continue;
      }
      for (const long start = slots(span.start); now < start; ++now) line += idle();
      const auto length = static_cast<size_t>(slots(span.end) - now);
      now = slots(span.end);
      line += padded(name(span), width_ * length - 1, '-') + ' ';
    }
    if (slot_ > 0) {
      for (const long end = slots(timeline_.makespan); now < end; ++now) line += idle();
    }
    line.erase(line.find_last_not_of(' ') + 1);
    return line;
  }

 private:
  std::string name(const Span& span) const {
    return to_string(span.entry, plan_.schedule.chunks > plan_.schedule.ranks);
  }
  std::string idle() const { return padded(".", width_, ' '); }
  long slots(double time) const { return std::lround(time / slot_); }

  const Plan& plan_;
  const Timeline& timeline_;
  double slot_ = 0;
  size_t width_ = 2;  // width of a slot, in characters
};

}  // namespace

std::string to_text(const Plan& plan, const Timeline& timeline) {
  const Table table(plan, timeline);
  const size_t digits = cat(plan.schedule.ranks - 1).size();
  std::string text;
  for (int rank = 0; rank < plan.schedule.ranks; ++rank) {
    const std::string number = cat(rank);
    text +=
        cat("rank ", std::string(digits - number.size(), ' '), number, "  ", table.row(rank), '\n');
  }
  return text;
}

}  // namespace tutti::training::pipeline

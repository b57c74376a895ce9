#include "collectives/interchange/svg.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <map>
#include <sstream>
#include <tuple>
#include <utility>

#include "base/svg.h"
#include "base/text.h"

namespace tutti {

namespace {

constexpr double kLeft = 96;  // x of the first column
constexpr double kRight = 60;
constexpr double kMark = 7;  // radius of a mark
constexpr const char* kInk = "#222222";
constexpr const char* kPale = "#bbbbbb";

using svg::escaped;
using svg::fixed;

// Returns the index of the part of the data that a chunk holds. Chunks of one size class hold the
// same part, except in all_to_all.
int32_t part(const Plan& plan, Space space, int32_t chunk) {
  if (plan.collective == Collective::all_to_all) return chunk;
  return size_class(plan.collective, plan.program, plan.shape, space, chunk);
}
int32_t parts_in_all(const Plan& plan) {
  if (plan.collective == Collective::all_to_all) return std::max(1, plan.program.input_chunks);
  return size_classes(plan.collective, plan.program, plan.shape.ranks);
}

int64_t chunks_in(const RangeList& ranges) {
  int64_t count = 0;
  for (const ChunkRange& range : ranges) count += range.count;
  return count;
}

// Returns the colour of a part: evenly spaced hues, dark enough to read on white.
std::string colour(int32_t part, int32_t all) {
  return svg::hsl(static_cast<double>(part % all) / all, 0.81, 0.42);
}

class Drawing {
 public:
  Drawing(std::span<const Plan> plans, const Timing& timing) : plans_(plans), timing_(timing) {
    const auto ranks = static_cast<double>(plans.size());
    column_ = std::clamp(1500 / ranks, 84.0, 150.0);
    y_.assign(timing.rounds + 1, 0);
    for (int32_t round = 0; round < timing.rounds; ++round) {
      y_[round + 1] = y_[round] + std::clamp(54 + 14.0 * busiest(round), 68.0, 320.0);
    }
  }

  std::string draw(const std::string& title, const std::vector<std::string>& subtitle) {
    text(24, 36, 20, "start", kInk, title, true);
    double y = 60;
    for (const std::string& line : subtitle) {
      text(24, y, 13, "start", "#555555", line);
      y += 19;
    }
    draw_legend(y + 6);
    top_ = y + 94;
    for (const Plan& plan : plans_) draw_rank(plan);
    for (int32_t round = 0; round < timing_.rounds; ++round) draw_round(round);
    for (const TimedMessage& message : timing_.messages) draw_message(message);
    draw_local_steps();
    body_ << labels_.str() << marks_.str() << sums_.str();  // drawn last, above all lines
    const double width = std::max(930.0, x(static_cast<int32_t>(plans_.size()) - 1) + kRight);
    const double height = time_to_y(timing_.rounds) + 44;
    return svg::document(title, width, height, body_.str());
  }

 private:
  double x(int32_t rank) const { return kLeft + column_ * rank; }
  double time_to_y(int32_t time) const { return top_ + y_[time]; }

  // Returns the largest number of messages that a rank sends in a round.
  int32_t busiest(int32_t round) const {
    std::map<int32_t, int32_t> sent;
    int32_t most = 0;
    for (const TimedMessage& m : timing_.messages) {
      if (m.sent == round) most = std::max(most, ++sent[m.from]);
    }
    return most;
  }

  // ---- shapes

  void text(double x, double y, int size, const char* anchor, std::string_view colour,
            std::string_view words, bool bold = false) {
    svg::text(body_, x, y, size, anchor, colour, words, bold);
  }
  void line(double x1, double y1, double x2, double y2, std::string_view colour, double width,
            bool dashed = false) {
    svg::line(body_, x1, y1, x2, y2, colour, width, dashed);
  }

  void arrow(double x1, double y1, double x2, double y2, std::string_view colour, double width,
             bool dashed) {
    const double length = std::hypot(x2 - x1, y2 - y1);
    const double dx = (x2 - x1) / length;
    const double dy = (y2 - y1) / length;
    const double tip_x = x2 - kMark * dx;
    const double tip_y = y2 - kMark * dy;
    constexpr double kHead = 9;
    line(x1, y1, tip_x - kHead * dx, tip_y - kHead * dy, colour, width, dashed);
    const auto point = [&](double back, double aside) {
      return cat(fixed(tip_x - back * dx - aside * dy), ',', fixed(tip_y - back * dy + aside * dx),
                 ' ');
    };
    body_ << "<polygon points=\"" << point(0, 0) << point(kHead, 4) << point(kHead, -4)
          << "\" fill=\"" << colour << "\"/>\n";
  }

  // Draws the mark of a step: a square for a local step, otherwise a circle; filled and with a plus
  // if the step reduces, otherwise white.
  static void mark(std::ostream& out, double x, double y, std::string_view colour, bool reduces,
                   bool local) {
    const std::string_view fill = reduces ? colour : "white";
    if (local) {
      out << "<rect x=\"" << fixed(x - kMark) << "\" y=\"" << fixed(y - kMark) << "\" width=\""
          << fixed(2 * kMark) << "\" height=\"" << fixed(2 * kMark) << '"';
    } else {
      out << "<circle cx=\"" << fixed(x) << "\" cy=\"" << fixed(y) << "\" r=\"" << fixed(kMark)
          << '"';
    }
    out << " fill=\"" << fill << "\" stroke=\"" << colour << "\" stroke-width=\"1.5\"/>\n";
    if (!reduces) return;
    svg::line(out, x - 4, y, x + 4, y, "white", 1.8);
    svg::line(out, x, y - 4, x, y + 4, "white", 1.8);
  }

  // ---- the picture

  void draw_legend(double y) {
    double at = 30;
    const auto entry = [&](std::string_view words) {
      text(at + 12, y + 5, 12, "start", kInk, words);
      at += 36 + 6.6 * static_cast<double>(words.size());
    };
    const std::string_view ink = kInk;
    if (reduces(plans_[0].collective)) {
      mark(body_, at, y, ink, true, false);
      entry("received and reduced");
    }
    mark(body_, at, y, ink, false, false);
    entry("received");
    mark(body_, at, y, ink, false, true);
    entry("own step: copy, or reduce (+)");
    line(at - 8, y, at + 8, y, ink, 3.4);
    entry("bold: accumulators, not rounded");
    line(at - 8, y, at + 8, y, ink, 1.6, true);
    entry("dashed: no data");
    text(24, y + 26, 12, "start", kInk,
         plans_[0].collective == Collective::all_to_all
             ? "Arrows are labelled and coloured by the sender's chunks: i input, o output, s "
               "scratch."
             : "Arrows are labelled and coloured by the parts of the data, numbered from 0.");
    text(24, y + 44, 12, "start", kInk, "Pointing at an arrow shows its two steps.");
  }

  void draw_rank(const Plan& plan) {
    const double column = x(plan.shape.rank);
    const bool is_root = has_root(plan.collective) && plan.shape.rank == plan.shape.root;
    text(column, top_ - 16, 13, "middle", kInk,
         cat("rank ", plan.shape.rank, is_root ? " (root)" : ""), true);
    line(column, top_ - 6, column, time_to_y(timing_.rounds) + 14, kPale, 2);
  }

  void draw_round(int32_t round) {
    const double y = time_to_y(round);
    line(kLeft - 40, y, x(static_cast<int32_t>(plans_.size()) - 1) + 24, y, "#eeeeee", 1);
    text(24, (y + time_to_y(round + 1)) / 2 + 4, 12, "start", "#777777", cat("round ", round + 1));
  }

  void draw_message(const TimedMessage& message) {
    const Plan& sender = plans_[message.from];
    const Step& send = sender.program.steps[message.send_step];
    const Step& recv = plans_[message.to].program.steps[message.recv_step];
    const std::string paint = send.src.empty() ? "#666666" : colour_of(sender, send.src[0]);
    const double x1 = x(message.from);
    const double y1 = time_to_y(message.sent);
    const double x2 = x(message.to);
    const double y2 = time_to_y(message.sent + 1);
    body_ << "<g><title>"
          << escaped(cat("rank ", message.from, ": ", to_string(send), "; rank ", message.to, ": ",
                         to_string(recv)))
          << "</title>\n";
    arrow(x1, y1, x2, y2, paint, send.wire == Wire::accumulator ? 3.4 : 1.6, send.src.empty());
    body_ << "</g>\n";
    const bool reduces = recv.kind == StepKind::recv_reduce;
    mark(reduces ? sums_ : marks_, x2, time_to_y(message.taken), paint, reduces, false);
    if (send.src.empty()) return;
    label(x1, y1, x2, y2, paint, parts(sender, send.src));
  }

  // Places a label at a free position along the arrow, or omits it.
  void label(double x1, double y1, double x2, double y2, std::string_view paint,
             const std::string& words) {
    constexpr double kAlong[] = {0.40, 0.62, 0.31, 0.71, 0.22, 0.80, 0.50, 0.15, 0.87};
    const double half = 3.2 * static_cast<double>(words.size()) + 2;
    for (const double along : kAlong) {
      const double x = x1 + along * (x2 - x1);
      const double y = y1 + along * (y2 - y1);
      const bool is_free = std::ranges::none_of(taken_, [&](const Label& other) {
        return std::abs(other.x - x) < other.half + half && std::abs(other.y - y) < 13;
      });
      if (!is_free) continue;
      taken_.push_back({x, y, half});
      labels_ << "<rect x=\"" << fixed(x - half) << "\" y=\"" << fixed(y - 7) << "\" width=\""
              << fixed(2 * half)
              << "\" height=\"14\" rx=\"3\" fill=\"white\" fill-opacity=\"0.85\"/>\n";
      svg::text(labels_, x, y + 4, 11, "middle", paint, words, true);
      return;
    }
  }

  std::string colour_of(const Plan& plan, const ChunkRange& range) const {
    return colour(part(plan, range.space, range.first), parts_in_all(plan));
  }

  // Draws one mark for all local operations of a rank at one time.
  void draw_local_steps() {
    std::map<std::tuple<int32_t, int32_t, bool>, std::vector<std::string>> marks;
    for (const Plan& plan : plans_) {
      const int32_t rank = plan.shape.rank;
      for (size_t i = 0; i < plan.program.steps.size(); ++i) {
        const Step& step = plan.program.steps[i];
        if (!step.peers.empty()) continue;
        marks[{rank, timing_.ended[rank][i], step.kind == StepKind::reduce}].push_back(
            to_string(step));
      }
    }
    for (const auto& [key, steps] : marks) {
      const auto [rank, time, is_reduce] = key;
      body_ << "<g><title>";
      for (const std::string& step : steps) body_ << escaped(step) << '\n';
      body_ << "</title>\n";
      const double at = x(rank) + (is_reduce ? 19 : -19);
      mark(body_, at, time_to_y(time), "#444444", is_reduce, true);
      if (steps.size() > 1) {
        text(at, time_to_y(time) + 18, 10, "middle", "#444444", cat("x", steps.size()));
      }
      body_ << "</g>\n";
    }
  }

  std::span<const Plan> plans_;
  const Timing& timing_;
  double column_ = 0;  // width of a column
  double top_ = 0;
  std::vector<double> y_;  // by round: y of its start, relative to top_
  std::ostringstream body_;
  std::ostringstream labels_;
  std::ostringstream marks_;
  std::ostringstream sums_;  // marks of reductions, drawn on top
  struct Label {
    double x;
    double y;
    double half;  // half of the label's width
  };
  std::vector<Label> taken_;
};

}  // namespace

Figures figures(std::span<const Plan> plans, const Timing& timing) {
  Figures figures{.rounds = timing.rounds,
                  .messages = static_cast<int64_t>(timing.messages.size())};
  int64_t most = 0;
  for (const Plan& plan : plans) {
    int64_t sent = 0;
    for (const Step& step : plan.program.steps) {
      if (step.kind == StepKind::send) {
        sent += chunks_in(step.src) * static_cast<int64_t>(step.peers.size());
      }
    }
    most = std::max(most, sent);
  }
  const Program& program = plans[0].program;
  figures.volume =
      static_cast<double>(most) / std::max({1, program.input_chunks, program.output_chunks});
  return figures;
}

std::string parts(const Plan& plan, const RangeList& ranges) {
  constexpr size_t kMostLetters = 13;
  constexpr std::string_view kLetters = "ios";
  std::vector<std::pair<char, int32_t>> all;
  for (const ChunkRange& range : ranges) {
    for (int32_t c = range.first; c < range.first + range.count; ++c) {
      const bool lettered = plan.collective == Collective::all_to_all;
      all.emplace_back(lettered ? kLetters[static_cast<size_t>(range.space)] : '\0',
                       part(plan, range.space, c));
    }
  }
  std::string text;
  for (size_t i = 0; i < all.size();) {
    size_t end = i + 1;
    while (end < all.size() && all[end].first == all[i].first &&
           all[end].second == all[end - 1].second + 1) {
      ++end;
    }
    if (text.size() > kMostLetters) return cat(text, ".. (", all.size(), ')');
    text += cat(text.empty() ? "" : ",");
    if (all[i].first != '\0') text += all[i].first;
    text += cat(all[i].second);
    if (end - i > 1) text += cat('-', all[end - 1].second);
    i = end;
  }
  return text;
}

std::string to_svg(std::span<const Plan> plans, const Timing& timing, const std::string& title,
                   const std::vector<std::string>& subtitle) {
  return Drawing(plans, timing).draw(title, subtitle);
}

}  // namespace tutti

#include "training/pipeline/svg.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <sstream>
#include <string_view>

#include "base/svg.h"
#include "base/text.h"

namespace tutti::training::pipeline {
namespace {

constexpr double kLeft = 76;    // x of time 0, in pixels
constexpr double kRight = 104;  // pixels from the last end to the right edge
constexpr double kBox = 26;     // height of a box in pixels
constexpr double kRow = 34;     // height of box and gap in pixels
constexpr const char* kInk = "#222222";
constexpr const char* kGrey = "#777777";

struct BoxStyle {
  Kind kind;
  const char* words;
  double hue;
  double saturation;
};
constexpr std::array<BoxStyle, 4> kBoxStyles = {{
    {Kind::forward, "forward", 0.59, 0.62},
    {Kind::backward, "backward", 0.07, 0.62},
    {Kind::backward_input, "backward of inputs", 0.07, 0.62},
    {Kind::backward_weight, "backward of weights", 0.41, 0.55},
}};

const BoxStyle& style_of(Kind kind) {
  return *std::ranges::find(kBoxStyles, kind, &BoxStyle::kind);
}

// Shades that distinguish boxes of one kind: see to_svg().
class Shades {
 public:
  explicit Shades(const Plan& plan) : plan_(plan) {
    for (int m = 0; m < plan.schedule.micro_batches; ++m) {
      if (std::ranges::find(ways_, way(m)) == ways_.end()) ways_.push_back(way(m));
    }
    for (const RankPlan& rank : plan.ranks) most_chunks_ = std::max(most_chunks_, size(rank));
  }

  int count() const { return by_way() ? static_cast<int>(ways_.size()) : most_chunks_; }

  int of(int rank, const Entry& entry) const {
    if (by_way()) {
      return static_cast<int>(std::ranges::find(ways_, way(entry.micro_batch)) - ways_.begin());
    }
    const std::vector<int>& chunks = plan_.ranks[static_cast<size_t>(rank)].chunks;
    return static_cast<int>(std::ranges::find(chunks, entry.chunk) - chunks.begin());
  }

  std::string fill(Kind kind, int shade) const {
    return svg::hsl(style_of(kind).hue, style_of(kind).saturation, lightness(shade));
  }
  const char* ink(int shade) const { return lightness(shade) < 0.6 ? "#ffffff" : kInk; }

  // Returns the legend's text; empty if there is a single shade.
  std::string words() const {
    if (count() < 2) return {};
    if (!by_way()) return cat("dark to light: the ", count(), " chunks of a rank");
    std::string text = "dark to light: micro-batches that go from rank";
    for (const std::vector<int>& way : ways_) {
      text += cat(&way == &ways_.front() ? " " : ", ", way.front(), " to ", way.back());
    }
    return text;
  }

 private:
  static int size(const RankPlan& rank) { return static_cast<int>(rank.chunks.size()); }
  bool by_way() const { return ways_.size() > 1; }

  // Returns the ranks that a micro-batch passes, by chunk.
  std::vector<int> way(int micro_batch) const {
    std::vector<int> ranks;
    for (int c = 0; c < plan_.schedule.chunks; ++c) ranks.push_back(plan_.rank_of(micro_batch, c));
    return ranks;
  }

  double lightness(int shade) const {
    return count() < 2 ? 0.44 : 0.38 + 0.40 * shade / (count() - 1);
  }

  const Plan& plan_;
  std::vector<std::vector<int>> ways_;
  int most_chunks_ = 1;
};

// Returns the shortest text of a number, with up to 6 decimals.
std::string number(double value) { return cat(std::round(value * 1e6) / 1e6); }

class Drawing {
 public:
  Drawing(const Plan& plan, const Timeline& timeline)
      : plan_(plan), timeline_(timeline), shades_(plan) {
    double shortest = timeline.makespan;
    for (const Span& span : timeline.spans) {
      if (span.end > span.start) shortest = std::min(shortest, span.end - span.start);
    }
    // Makes boxes wide enough for numbers if possible; narrow pictures are stretched a little.
    if (timeline.makespan <= 0) return;
    scale_ = std::clamp(900 / timeline.makespan, 18 / shortest, 44 / shortest);
    scale_ = std::min(scale_, 8000 / timeline.makespan);
  }

  std::string draw(const std::string& title, const std::vector<std::string>& subtitle,
                   const PicturePart& below) {
    body_ << "<defs><pattern id=\"idle\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" "
             "patternTransform=\"rotate(45)\"><rect width=\"6\" height=\"6\" fill=\"#f4f4f4\"/>"
             "<rect width=\"1.5\" height=\"6\" fill=\"#cccccc\"/></pattern></defs>\n";
    svg::text(body_, 24, 36, 20, "start", kInk, title, true);
    double y = 60;
    for (const std::string& line : subtitle) {
      svg::text(body_, 24, y, 13, "start", "#555555", line);
      y += 19;
    }
    draw_legend(y + 6);
    top_ = y + (shades_.words().empty() ? 44 : 64);
    draw_axis();
    for (int rank = 0; rank < plan_.schedule.ranks; ++rank) draw_rank(rank);
    const double width = std::max(760.0, x(timeline_.makespan) + kRight);
    const double bottom = row(plan_.schedule.ranks) + 36;
    body_ << "<g transform=\"translate(0 " << svg::fixed(bottom) << ")\">" << below.body
          << "</g>\n";
    return svg::document(title, width, bottom + below.height, body_.str());
  }

 private:
  double x(double time) const { return kLeft + scale_ * time; }
  double row(int rank) const { return top_ + kRow * rank; }

  void box(std::string_view kind, double left, double y, double width, std::string_view fill) {
    body_ << "<rect class=\"" << kind << "\" x=\"" << svg::fixed(left) << "\" y=\"" << svg::fixed(y)
          << "\" width=\"" << svg::fixed(width) << "\" height=\"" << svg::fixed(kBox)
          << "\" fill=\"" << fill << "\" stroke=\"white\"/>";
  }

  // Draws a square of the legend; squares have no class.
  void swatch(double left, double y, std::string_view fill) {
    body_ << "<rect x=\"" << svg::fixed(left) << "\" y=\"" << svg::fixed(y)
          << "\" width=\"14\" height=\"14\" fill=\"" << fill << "\"/>\n";
  }

  // Draws a triangle below a row that points at x.
  void triangle(std::string_view attributes, double x, double y) {
    body_ << "<polygon" << attributes << " points=\"" << svg::fixed(x) << ',' << svg::fixed(y)
          << ' ' << svg::fixed(x - 4) << ',' << svg::fixed(y + 7) << ' ' << svg::fixed(x + 4) << ','
          << svg::fixed(y + 7) << "\" fill=\"" << kInk << "\">";
  }

  bool has(Kind kind) const {
    return std::ranges::any_of(timeline_.spans,
                               [&](const Span& span) { return span.entry.kind == kind; });
  }

  void draw_legend(double y) {
    double at = 24;
    const auto words = [&](std::string_view text) {
      svg::text(body_, at + 4, y + 12, 12, "start", kInk, text);
      at += 26 + 6.6 * static_cast<double>(text.size());
    };
    for (const BoxStyle& one : kBoxStyles) {
      if (!has(one.kind)) continue;
      for (int shade = 0; shade < shades_.count(); ++shade, at += 15) {
        swatch(at, y, shades_.fill(one.kind, shade));
      }
      words(one.words);
    }
    swatch(at, y, "url(#idle)");
    at += 15;
    words("idle");
    if (plan_.schedule.updates != Updates::flushed) {
      triangle("", at + 6, y + 4);
      body_ << "</polygon>\n";
      at += 12;
      words("weights change");
    }
    words("numbers: micro-batches");
    svg::text(body_, 24, y + 32, 12, "start", kInk, shades_.words());
  }

  // Draws ticks at multiples of 1, 2 or 5 times a power of ten, at least 60 pixels apart.
  void draw_axis() {
    if (timeline_.makespan <= 0) return;
    const double least = 60 / scale_;
    const double power = std::pow(10, std::floor(std::log10(least)));
    double step = 10 * power;
    for (const double factor : {5, 2, 1}) {
      if (factor * power >= least) step = factor * power;
    }
    const double bottom = row(plan_.schedule.ranks);
    for (int i = 0; i * step <= timeline_.makespan * (1 + 1e-9); ++i) {
      svg::line(body_, x(i * step), top_ - 6, x(i * step), bottom + 4, "#dddddd", 1);
      svg::text(body_, x(i * step), bottom + 18, 11, "middle", kGrey, number(i * step));
    }
    const double end = x(timeline_.makespan);
    svg::line(body_, end, top_ - 6, end, bottom + 4, kInk, 1, true);
  }

  void draw_rank(int rank) {
    const double y = row(rank);
    svg::text(body_, kLeft - 10, y + 18, 13, "end", kInk, cat("rank ", rank), true);
    double free = 0;  // end of the last entry
    double busy = 0;
    for (const Span& span : timeline_.spans) {
      if (span.rank != rank) continue;
      draw_idle(rank, free, span.start);
      draw_span(span);
      free = std::max(free, span.end);
      busy += span.end - span.start;
    }
    draw_idle(rank, free, timeline_.makespan);
    if (plan_.schedule.updates != Updates::flushed) draw_updates(rank);
    if (timeline_.makespan <= 0) return;
    const double idle = std::max(0.0, 100 * (1 - busy / timeline_.makespan));
    svg::text(body_, x(timeline_.makespan) + 10, y + 18, 12, "start", kGrey,
              cat(svg::fixed(idle), "% idle"));
  }

  void draw_idle(int rank, double start, double end) {
    if (end - start <= 1e-9 * timeline_.makespan) return;
    body_ << "<g><title>" << cat("rank ", rank, ": idle, ", number(start), " to ", number(end))
          << "</title>";
    box("idle", x(start), row(rank), scale_ * (end - start), "url(#idle)");
    body_ << "</g>\n";
  }

  void draw_span(const Span& span) {
    const Kind kind = span.entry.kind;
    const int shade = shades_.of(span.rank, span.entry);
    const double width = scale_ * (span.end - span.start);
    body_ << "<g><title>"
          << cat("rank ", span.rank, ": ", describe(span.entry), ", ", number(span.start), " to ",
                 number(span.end))
          << "</title>";
    box(name(kind), x(span.start), row(span.rank), width, shades_.fill(kind, shade));
    const std::string label = cat(span.entry.micro_batch);
    if (width >= 5 + 6.2 * static_cast<double>(label.size())) {
      svg::text(body_, x(span.start) + width / 2, row(span.rank) + 17, 11, "middle",
                shades_.ink(shade), label);
    }
    body_ << "</g>\n";
  }

  void draw_updates(int rank) {
    double time = 0;  // end of the last computed entry
    size_t computed = 0;
    std::vector<double> ends;
    for (const Span& span : timeline_.spans) {
      if (span.rank == rank) ends.push_back(span.end);
    }
    for (const Action& action : plan_.ranks[static_cast<size_t>(rank)].actions) {
      if (action.kind == Action::Kind::compute && computed < ends.size()) time = ends[computed++];
      if (action.kind != Action::Kind::update) continue;
      triangle(" class=\"update\"", x(time), row(rank) + kBox);
      body_ << "<title>"
            << cat("rank ", rank, ": weights of version ", action.version, " from ", number(time),
                   " on")
            << "</title></polygon>\n";
    }
  }

  const Plan& plan_;
  const Timeline& timeline_;
  const Shades shades_;
  double scale_ = 1;  // pixels per unit of time
  double top_ = 0;
  std::ostringstream body_;
};

}  // namespace

std::string to_svg(const Plan& plan, const Timeline& timeline, const std::string& title,
                   const std::vector<std::string>& subtitle, const PicturePart& below) {
  return Drawing(plan, timeline).draw(title, subtitle, below);
}

}  // namespace tutti::training::pipeline

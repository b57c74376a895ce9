#include "tools/tutti/bench/plot.h"

#include <algorithm>
#include <iterator>
#include <sstream>

#include "base/text.h"

namespace tutti::tool {

namespace {

constexpr const char* kColors[] = {"#d62728", "#1f77b4", "#2ca02c", "#9467bd"};

// Range of an axis, with a margin.
struct Range {
  double low = 0;
  double high = 0;

  void add(double value) {
    low = low == 0 ? value : std::min(low, value);
    high = std::max(high, value);
  }
  std::string text(double room) const { return cat('[', low / room, ':', high * room, ']'); }
};

// Returns tics for gnuplot: "'8 B' 8, '64 B' 64, ...".
std::string tics(const Range& bytes) {
  std::string text;
  for (double at = bytes.low; at <= bytes.high; at *= 8) {
    const auto value = static_cast<uint64_t>(at);
    text += cat(text.empty() ? "" : ", ", gnuplot_string(human_bytes(value)), ' ', value);
  }
  return text;
}

std::string style(const PlotLine& line, size_t number) {
  if (line.is_reference) return "dt 2 lc rgb '#606060'";
  return cat("lc rgb '", kColors[number % std::size(kColors)], '\'');
}

std::string script(const std::string& title, const std::vector<PlotLine>& lines) {
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
  out << gnuplot_title(title)
      << "set xlabel 'size'\nset ylabel 'median time of the slowest rank (µs)'\n"
      << "set logscale x 2\nset logscale y 10\nset format y '%g'\n"
      << "set xrange " << bytes.text(1.5) << "\nset yrange " << times.text(1.5) << '\n'
      << "set xtics (" << tics(bytes) << ")\nset grid lc rgb '#c0c0c0'\n"
      << "set key outside right center noenhanced\n";
  for (size_t i = 0; i < lines.size(); ++i) {
    out << (i == 0 ? "plot " : ", ") << "$line" << i
        << " using 1:2 with linespoints lw 2 pt 7 ps 0.5 " << style(lines[i], i) << " title "
        << gnuplot_string(lines[i].title);
  }
  out << '\n';
  return out.str();
}

}  // namespace

void BenchPlot::draw(const std::string& title, const std::vector<PlotLine>& lines) const {
  picture_.draw(script(title, lines));
}

}  // namespace tutti::tool

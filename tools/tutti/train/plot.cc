#include "tools/tutti/train/plot.h"

#include <cmath>
#include <iterator>
#include <sstream>

#include "base/text.h"

namespace tutti::tool {
namespace {

using Points = std::vector<std::pair<uint64_t, double>>;

constexpr const char* kCurveColors[] = {"#1f77b4", "#d62728", "#2ca02c", "#9467bd",
                                        "#ff7f0e", "#8c564b", "#e377c2", "#17becf"};

struct Line {
  const Points& points;
  const std::map<uint64_t, double>& elapsed;
  std::string style;
  std::string title;  // empty: no entry in the legend
};

std::string colored(const char* style, size_t color) {
  return cat(style, " lc rgb '", kCurveColors[color % std::size(kCurveColors)], '\'');
}

std::vector<Line> lines_of(std::span<const LossCurves> runs) {
  constexpr const char* kTraining = "lines lw 1";
  constexpr const char* kValidation = "linespoints lw 2 pt 7 ps 0.5";
  if (runs.size() == 1) {
    return {{runs[0].training, runs[0].elapsed, colored(kTraining, 0), "training"},
            {runs[0].validation, runs[0].elapsed, colored(kValidation, 1), "validation"}};
  }
  std::vector<Line> lines;
  for (size_t i = 0; i < runs.size(); ++i) {
    lines.push_back({runs[i].training, runs[i].elapsed, colored(kTraining, i), runs[i].name});
    lines.push_back({runs[i].validation, runs[i].elapsed, colored(kValidation, i), ""});
  }
  return lines;
}

// Writes the points of the line as a data block of gnuplot. Returns false if there are no points.
bool write_points(std::ostringstream& out, const std::string& block, const Line& line,
                  LossesOver over) {
  bool any = false;
  out << block << " << END\n";
  for (const auto& [step, loss] : line.points) {
    if (!std::isfinite(loss)) continue;
    if (over == LossesOver::time) {
      const auto elapsed = line.elapsed.find(step);
      if (elapsed == line.elapsed.end()) continue;
      out << elapsed->second << ' ' << loss << '\n';
    } else {
      out << step << ' ' << loss << '\n';
    }
    any = true;
  }
  out << "END\n";
  return any;
}

}  // namespace

void plot_losses(const Picture& picture, const std::string& title, std::span<const LossCurves> runs,
                 LossesOver over) {
  std::ostringstream out;
  std::string plots;
  for (const Line& line : lines_of(runs)) {
    const std::string block = cat("$block", plots.size());
    if (!write_points(out, block, line, over)) continue;
    plots += cat(plots.empty() ? "plot " : ", ", block, " using 1:2 with ", line.style,
                 line.title.empty() ? " notitle" : cat(" title ", gnuplot_string(line.title)));
  }
  if (plots.empty()) return;
  out << gnuplot_title(title) << "set xlabel '" << (over == LossesOver::time ? "seconds" : "step")
      << "'\nset ylabel 'loss (nats)'\n"
      << "set grid lc rgb '#c0c0c0'\nset key top right noenhanced\n"
      << plots << '\n';
  picture.draw(out.str());
}

}  // namespace tutti::tool

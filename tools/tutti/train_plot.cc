#include "tools/tutti/train_plot.h"

#include <cmath>
#include <sstream>

namespace tutti::tool {
namespace {

struct Line {
  const char* block;  // gnuplot's name of the data
  const char* title;
  const char* style;
  const std::vector<std::pair<uint64_t, double>>& points;
};

// False if the line has nothing to show.
bool write_points(std::ostringstream& out, const Line& line) {
  bool any = false;
  out << line.block << " << END\n";
  for (const auto& [step, loss] : line.points) {
    if (!std::isfinite(loss)) continue;
    out << step << ' ' << loss << '\n';
    any = true;
  }
  out << "END\n";
  return any;
}

}  // namespace

void plot_losses(const Picture& picture, const std::string& title, const LossCurves& curves) {
  const Line lines[] = {
      {"$training", "training", "lines lw 1 lc rgb '#1f77b4'", curves.training},
      {"$validation", "validation", "linespoints lw 2 pt 7 ps 0.5 lc rgb '#d62728'",
       curves.validation},
  };
  std::ostringstream out;
  std::string plots;
  for (const Line& line : lines) {
    if (!write_points(out, line)) continue;
    plots += plots.empty() ? "plot " : ", ";
    plots += std::string(line.block) + " using 1:2 with " + line.style + " title " +
             gnuplot_string(line.title);
  }
  if (plots.empty()) return;
  out << "set title " << gnuplot_string(title) << " noenhanced\n"
      << "set xlabel 'step'\nset ylabel 'loss (nats)'\n"
      << "set grid lc rgb '#c0c0c0'\nset key top right noenhanced\n"
      << plots << '\n';
  picture.draw(out.str());
}

}  // namespace tutti::tool

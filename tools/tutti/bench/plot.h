// Draws the plot of `tutti bench --plot` with gnuplot: time against bytes, one line per library.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tools/tutti/gnuplot.h"

namespace tutti::tool {

struct PlotLine {
  std::string title;
  bool is_reference = false;  // true: drawn dashed, because it is not a library
  std::vector<std::pair<uint64_t, double>> points;  // pairs of bytes and microseconds
};

class BenchPlot {
 public:
  // Creates the plot; with an empty path nothing is drawn. Throws the errors of Picture's
  // constructor.
  explicit BenchPlot(std::string path) : picture_(std::move(path), "--plot") {}

  bool wanted() const { return picture_.wanted(); }
  void draw(const std::string& title, const std::vector<PlotLine>& lines) const;

 private:
  Picture picture_;
};

}  // namespace tutti::tool

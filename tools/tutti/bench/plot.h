// `tutti bench --plot`: time against bytes, one line per library, drawn by gnuplot.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tools/tutti/gnuplot.h"

namespace tutti::tool {

struct PlotLine {
  std::string title;
  bool is_reference = false;                        // dashed, because it is no library
  std::vector<std::pair<uint64_t, double>> points;  // bytes, microseconds
};

class BenchPlot {
 public:
  // An empty path: no plot. Throws as Picture does.
  explicit BenchPlot(std::string path) : picture_(std::move(path), "--plot") {}

  bool wanted() const { return picture_.wanted(); }
  void draw(const std::string& title, const std::vector<PlotLine>& lines) const;

 private:
  Picture picture_;
};

}  // namespace tutti::tool

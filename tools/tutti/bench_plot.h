// `tutti bench --plot`: time over bytes, one line per library, drawn by gnuplot.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tutti::tool {

struct PlotLine {
  std::string title;
  bool is_reference = false;                        // dashed: no library
  std::vector<std::pair<uint64_t, double>> points;  // bytes, microseconds
};

class BenchPlot {
 public:
  // An empty path: no plot. Throws Error where the file's name does not end with .svg or .png,
  // where it cannot be written, and where gnuplot is not installed.
  explicit BenchPlot(std::string path);

  bool wanted() const { return !path_.empty(); }
  void draw(const std::string& title, const std::vector<PlotLine>& lines) const;

 private:
  std::string path_;
};

}  // namespace tutti::tool

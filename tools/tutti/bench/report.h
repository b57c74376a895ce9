// Writes the output of `tutti bench`: table, JSON, CSV and plot.
#pragma once

#include <cstdint>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "bench/measure.h"
#include "collectives/communicator.h"
#include "tools/tutti/bench/options.h"
#include "tools/tutti/bench/plot.h"

namespace tutti::tool {

// Results of one size with one algorithm.
struct BenchRow {
  uint64_t bytes = 0;
  uint64_t count = 0;
  uint64_t wire_bytes = 0;  // size in the wire format, in bytes
  std::string algorithm;
  double time_us = 0;  // median time
  double min_us = 0;
  double p90_us = 0;  // 90th percentile of the time
  double algbw = 0;   // algorithm bandwidth in GB/s
  double busbw = 0;
  uint64_t wrong = 0;
  double in_place_us = 0;  // with --in-place: the median time in place
  double in_place_busbw = 0;
  std::string digest;  // with --digest: the hash of the result
  // Medians and 90th percentiles of the times, indexed by peer; nothing if it lacks the collective.
  std::vector<std::optional<double>> peer_us;
  std::vector<std::optional<double>> peer_p90_us;
  // With --algorithm all: true for the fastest algorithm, and for the choice of `auto`.
  bool is_best = false;
  bool is_auto = false;

  // Returns the ratio of this row's time to the peer's time, if the peer has one.
  std::optional<double> ratio(size_t peer) const;
};

// Collects and writes the output. The constructor opens the files, so that a wrong path is reported
// before anything is timed. All methods throw Error(system) if a file cannot be written.
class BenchReport {
 public:
  // Opens the files. With a null `comm` the report only checks that the files can be written.
  BenchReport(const BenchOptions& options, const bench::Case& c, const Communicator* comm);

  void print_header() const;
  void add(const BenchRow& row);
  // Prints the summary and writes the files.
  void finish();

 private:
  void print(const BenchRow& row) const;
  void print_sharing() const;
  void print_average() const;
  void print_ratios() const;
  void print_ratios_to_best_mpi() const;
  // Returns true for rows that represent Tutti in comparisons with peers: the call has at least one
  // element or is a barrier and, with --algorithm all, the algorithm is the choice of `auto`.
  bool stands_for_tutti(const BenchRow& row) const;
  void print_choices() const;
  void write_json();
  void write_csv();
  void draw_plot() const;

  const BenchOptions& options_;
  const bench::Case& case_;
  const Communicator* comm_;
  std::ofstream json_;
  std::ofstream csv_;
  const BenchPlot plot_;
  std::vector<BenchRow> rows_;
};

}  // namespace tutti::tool

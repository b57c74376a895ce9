// What `tutti bench` shows and writes: the table, JSON, CSV and a plot.
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

// One size with one algorithm.
struct BenchRow {
  uint64_t bytes = 0;
  uint64_t count = 0;
  uint64_t wire_bytes = 0;  // what travels as them
  std::string algorithm;
  double time_us = 0;  // the median
  double min_us = 0;
  double p90_us = 0;  // the 90th percentile
  double algbw = 0;   // GB/s
  double busbw = 0;
  uint64_t wrong = 0;
  double in_place_us = 0;  // --in-place: the median
  double in_place_busbw = 0;
  std::string digest;  // --digest
  // Medians, in the order of the peers; nothing where a peer does not have the collective.
  std::vector<std::optional<double>> peer_us;
  std::vector<std::optional<double>> peer_p90_us;
  // --algorithm all:
  bool is_best = false;
  bool is_auto = false;

  // Of its time over the peer's.
  std::optional<double> ratio(size_t peer) const;
};

// Opens the files when it is made, so that a wrong path is said before anything is timed. All throw
// Error(system) where a file cannot be written.
class BenchReport {
 public:
  // Without `comm`: only looks whether the files can be written.
  BenchReport(const BenchOptions& options, const bench::Case& c, const Communicator* comm);

  void print_header() const;
  void add(const BenchRow& row);
  // The summary, and the files.
  void finish();

 private:
  void print(const BenchRow& row) const;
  void print_sharing() const;
  void print_average() const;
  void print_ratios() const;
  void print_ratios_to_best_mpi() const;
  // Rows that stand for Tutti: with the algorithm that was asked for, and where anything is done.
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

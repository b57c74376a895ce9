// The command line of `tutti bench`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/measure.h"

namespace tutti::tool {

struct BenchOptions {
  std::string collective;
  int ranks = 0;
  std::string min = "8";
  std::string max = "64M";
  int factor = 2;
  std::string dtype = "f32";
  std::string op = "sum";
  int root = 0;
  std::string algorithm = "auto";  // a name, "auto", "all" or "list"
  std::string transport;
  std::string buffers = "user";  // or "library", "registered"
  std::string device = "host";   // or "cuda"
  bool graph = false;
  bool in_place = false;  // also time in place
  bool digest = false;
  bool deterministic = false;
  std::string wire = "plain";
  std::vector<std::string> peers;
  int rounds = 0;          // 0: default
  int iterations = 0;      // 0: depends on the size
  int load = 0;            // busy processes beside the ranks
  double quota = 0;        // processors; 0: no limit
  bool is_beside = false;  // a rank; its launcher applies both
  std::string json;
  std::string csv;
  std::string plot;

  // Calls are delayed by what else runs: their 90th percentile is shown.
  bool is_shared() const { return load > 0 || quota > 0; }
  bool all() const { return algorithm == "all"; }
};

// Throws Error(invalid_argument) that lists the valid choices.
bench::Case parse_case(const BenchOptions& options);
void check_root(const bench::Case& c, int ranks);
std::vector<uint64_t> parse_sizes(const BenchOptions& options, const bench::Case& c);

// Prints the algorithms of a collective: name, grade, source, and supported numbers of ranks.
void list_algorithms(const BenchOptions& options);

}  // namespace tutti::tool

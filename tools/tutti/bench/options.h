// Options of the command line of `tutti bench`.
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
  std::string buffers = "user";  // "user", "library" or "registered"
  std::string device = "host";   // "host" or "cuda"
  bool graph = false;
  bool in_place = false;  // true: also time calls in place
  bool digest = false;
  bool deterministic = false;
  std::string wire = "plain";
  std::vector<std::string> peers;
  int rounds = 0;          // number of rounds; 0: the default
  int iterations = 0;      // number of timed calls per round; 0: depends on the size
  int load = 0;            // number of busy processes in addition to the ranks
  double quota = 0;        // limit of processor time, in processors; 0: no limit
  bool is_beside = false;  // true for a rank, whose launcher applies load and quota
  std::string json;
  std::string csv;
  std::string plot;

  // Returns true if other processes or a limit delay the calls. The 90th percentile of the times is
  // then shown.
  bool is_shared() const { return load > 0 || quota > 0; }
  bool all() const { return algorithm == "all"; }
};

// Returns the case that the options describe. Throws Error(invalid_argument) that lists the valid
// choices.
bench::Case parse_case(const BenchOptions& options);
void check_root(const bench::Case& c, int ranks);
std::vector<uint64_t> parse_sizes(const BenchOptions& options, const bench::Case& c);

// Prints the algorithms of a collective: name, grade, source, and supported numbers of ranks.
void list_algorithms(const BenchOptions& options);

}  // namespace tutti::tool

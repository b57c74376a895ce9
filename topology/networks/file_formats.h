// Readers of other programs' network files. Each throws Error(invalid_argument) with file, line and
// reason, and never returns a partial network.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/printable.h"
#include "base/text.h"
#include "topology/networks/network.h"

namespace tutti {

struct TextLine {
  int number = 0;  // counted from 1
  std::vector<std::string> words;
};

struct TextFile {
  std::string name;             // name for messages
  std::vector<TextLine> lines;  // non-empty lines; # starts a comment

  template <typename... Parts>
  [[noreturn]] void refuse(int line, const Parts&... what) const {
    throw Error(ErrorCode::invalid_argument,
                cat(name, ", line ", line, ": ", printable(cat(what...), 400)),
                {.remedy = "correct that line; the network was not read"});
  }
  int parse_whole(int line, std::string_view text, std::string_view what, int least,
                  int most) const;
  // Parses a number that is at least 0; refuses any other text.
  double parse_number(int line, std::string_view text, std::string_view what) const;
  // Calls parse(text). If it throws, the error names this line.
  double parse(int line, double (*parse)(std::string_view), const std::string& text) const;
};

std::string lower_case(std::string text);

TextFile split_into_lines(const std::string& text, const std::string& name);

// Reads ASTRA-sim's analytical network: topology, npus_count, bandwidth (GB/s) and latency (ns),
// each a bracketed list, the innermost dimension first.
std::unique_ptr<Network> read_astra(const TextFile& file);
// Reads htsim's fat trees: Nodes, Tiers, and for each tier radices, speed and latency.
std::unique_ptr<Network> read_htsim(const TextFile& file);
// Reads the topology.txt of ns-3 simulators: a line with HPCC's and ASTRA-sim's "nodes switches
// links" or SimAI's "nodes gpus_per_server nvswitches switches links type", then the switches, then
// the links.
std::unique_ptr<Network> read_ns3(const TextFile& file);
// Reads Slurm's topology.conf. The file states no bandwidths or latencies, so the values of
// LinkSpeed are used.
std::unique_ptr<Network> read_slurm(const TextFile& file);

}  // namespace tutti

// Fuzzes networks: the files of ASTRA-sim, htsim, ns-3 and Slurm, and one-line descriptions. In an
// accepted network, the paths from the first and last ranks to other ranks are computed, also
// around a failed link.
#include <algorithm>

#include "tests/fuzz/target.h"
#include "topology/networks/load_network.h"

namespace tutti {

namespace {

constexpr int kMostRanks = 16;

void walk(Network& network) {
  network.places(network.ranks());
  network.alike_group_size();
  const int last = network.ranks() - 1;
  std::vector<Arc> arcs;
  for (int failures = 0; failures < 2; ++failures) {
    for (int rank = 0; rank < std::min(network.ranks(), kMostRanks); ++rank) {
      for (const int from : {0, last - rank}) {
        arcs.clear();
        if (!network.route(from, rank, arcs)) continue;
        for (const Arc arc : arcs) fuzz::require(network.GBps(arc) > 0, "links carry something");
      }
    }
    if (arcs.empty()) return;
    network.name(arcs.front());
    network.fail(arcs.front() / 2);
  }
}

// Files have several lines; a description is a line without a newline.
std::unique_ptr<Network> read(const std::string& text) {
  if (text.find('\n') != std::string::npos) return read_network(text, "the.file");
  return std::make_unique<Network>(parse_structure(text, std::nullopt));
}

}  // namespace

}  // namespace tutti

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tutti;
  const std::string text(fuzz::text_of(data, size));
  const bool is_file = text.find('\n') != std::string::npos;
  fuzz::take(is_file ? "the.file" : "", [&] {
    const std::unique_ptr<Network> network = read(text);
    walk(*network);
  });
  return 0;
}

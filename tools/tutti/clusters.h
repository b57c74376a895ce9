// Predicts collectives on GPU clusters, for `tutti explain`, `tutti simulate` and `tutti tune
// --fit`.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "collectives/cluster/predict.h"

namespace tutti::tool {

inline constexpr char kClusterHelp[] =
    "GPU clusters on which NCCL's algorithms are predicted: a name (dgx-a100, dgx-h100, dgx-h200,\n"
    "dgx-b200, gb200-nvl72, p4d, p5, p5en, p6-b200, nd-a100-v4, nd-h100-v5, a3-mega, a3-ultra, "
    "mi300x),\n"
    "with the number of hosts as in p5:32 or by -n; a file from `tutti tune --fit`; or a "
    "description\n"
    "  8xH100 x 128, NVLink 450, IB 8x50       GPUs per host, hosts; GB/s per GPU link, cards\n"
    "  8xL40S x 4, PCIe 32, RoCE 2x25          per host and GB/s of each, in one direction\n"
    "Links within a host: NVLink, xGMI, PCIe; between hosts: IB, RoCE, EFA, TCPXO, Slingshot, "
    "Ethernet,\n"
    "NVLink. SHARP: the switches between hosts reduce.\n";

inline constexpr char kIntervalMeaning[] =
    "nine of ten measurements should be between low and high";

// Loads a cluster. Accepts the texts of load_cluster(), and also topology files (NCCL's, RCCL's,
// hwloc's) and networks of `tutti simulate`. Of a file or network, it uses the GPUs, links and
// cards of the first host, and the number of hosts. Prints the resulting cluster description on
// standard error. `gpu`: GPU model, for files that do not name it. Throws Error(invalid_argument)
// for invalid texts.
Cluster load_cluster_or_topology(const std::string& text, std::optional<int> ranks,
                                 const std::string& gpu);

struct ClusterQuestion {
  tutti::Cluster cluster;
  std::string text;  // the cluster as given on the command line
  Collective collective = Collective::all_reduce;
  std::vector<double> bytes;
  std::string json;  // output file; empty: none
};

// Runs `tutti simulate`: prints a line for each size, and returns the exit code.
int simulate_on_cluster(const ClusterQuestion& question);
// Runs `tutti explain`: prints each algorithm and protocol for one size, and returns the exit code.
int explain_on_cluster(const ClusterQuestion& question);

// Options of `tutti tune --fit`.
struct FitOptions {
  std::string table;
  std::string cluster;     // initial cluster; empty: taken from the table
  std::string collective;  // empty: taken from the table
  std::string json;        // output file; empty: a file beside the table
};
int fit_cluster(const FitOptions& options);

}  // namespace tutti::tool

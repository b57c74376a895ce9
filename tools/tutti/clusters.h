// Collectives on clusters of GPUs, as `tutti explain`, `tutti simulate` and `tutti tune --fit` show
// them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "collectives/cluster/predict.h"

namespace tutti::tool {

inline constexpr char kClusterHelp[] =
    "Clusters of GPUs, on which NCCL's algorithms are predicted: a name (dgx-a100, dgx-h100,\n"
    "dgx-h200, dgx-b200, gb200-nvl72, p4d, p5, p5en, p6-b200, nd-a100-v4, nd-h100-v5, a3-mega,\n"
    "a3-ultra, mi300x), with hosts as p5:32 or by -n; a file of `tutti tune --fit`; or a line\n"
    "  8xH100 x 128, NVLink 450, IB 8x50       GPUs of a host, hosts; GB/s of a GPU's link, cards\n"
    "  8xL40S x 4, PCIe 32, RoCE 2x25          of a host and GB/s of each, in one direction\n"
    "Links inside: NVLink, xGMI, PCIe; between: IB, RoCE, EFA, TCPXO, Slingshot, Ethernet, "
    "NVLink;\n"
    "SHARP: switches between hosts add up.\n";

inline constexpr char kIntervalMeaning[] =
    "of ten measurements, nine should lie between low and high";

// Loads what load_cluster() does, and besides topology files (NCCL's, RCCL's, hwloc's) and networks
// that `tutti simulate` plays: the cluster has the GPUs, links and cards of their first host, and
// as many hosts. Tells on standard error the line that a topology is taken as. `gpu`: the GPUs'
// name, where the file does not tell which they are. Throws Error(invalid_argument).
Cluster load_cluster_or_topology(const std::string& text, std::optional<int> ranks,
                                 const std::string& gpu);

struct ClusterQuestion {
  tutti::Cluster cluster;
  std::string text;  // as it was given
  Collective collective = Collective::all_reduce;
  std::vector<double> bytes;
  std::string json;  // a file; empty: none
};

// `tutti simulate`: a line for each size.
int simulate_on_cluster(const ClusterQuestion& question);
// `tutti explain`: each algorithm and protocol, for one size.
int explain_on_cluster(const ClusterQuestion& question);

// `tutti tune --fit`.
struct FitOptions {
  std::string table;
  std::string cluster;     // that the fit begins with; empty: what the table tells
  std::string collective;  // empty: as the table says
  std::string json;        // empty: beside the table
};
int fit_cluster(const FitOptions& options);

}  // namespace tutti::tool

// A cluster of GPUs as input of the closed-form prediction: the number of hosts and of GPUs per
// host, the links inside a host, the links between hosts, and a few numbers for each kind of link.
//
//   host 0                         host 1
//   [GPU]=[GPU]= ... =[GPU]        [GPU]=[GPU]= ...     = inside: a link of each GPU into a switch
//     |     |           |            |     |
//   --+-----+---- ... --+------------+-----+--------    | between: cards, of all GPUs of a host
//
// A cluster is given by a name ("p5:32"), a line ("8xH100 x 32, NVLink 450, EFA 32x12.5") or a file
// that `tutti tune --fit` wrote. predict.h has the formulas.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/cost/prediction_errors.h"

namespace tutti {

// NCCL's protocols: ll sends 8 bytes with a flag each, ll128 sends 120 bytes with one flag (not
// used if hosts have PCI Express inside), simple sends whole slices with a fence each.
enum class MessageProtocol : uint8_t { ll, ll128, simple };
inline constexpr std::array kMessageProtocols = {MessageProtocol::ll, MessageProtocol::ll128,
                                                 MessageProtocol::simple};
std::string_view name(MessageProtocol protocol);

struct ClusterLink {
  // Bandwidth that collectives reach, in 1e9 bytes/s per direction. Inside a host, it is the
  // bandwidth of one GPU's link; between hosts, it is the bandwidth of all cards of a host
  // together.
  double GBps = 0;
  // Microseconds per step of a ring or a tree, by protocol. 0: the protocol is not available.
  std::array<double, kMessageProtocols.size()> step_us = {};
  double ll_GBps = 0;     // upper limit of ll's bandwidth
  double message_us = 0;  // microseconds per peer, in an all_to_all
  double all_to_all = 1;  // fraction of GBps that an all_to_all reaches
};

struct Cluster {
  std::string name;
  std::string gpu;  // "H100"; empty if unknown
  int hosts = 1;
  int gpus = 8;  // number of GPUs per host
  double launch_us = 0;
  ClusterLink inside;
  ClusterLink between;
  // NVLink SHARP (NVLS): bandwidth of a GPU's link when the switch computes sums (0: there is no
  // such switch), and the additional fixed time of a call whose sums the switch computes.
  double sums_GBps = 0;
  double sums_us = 0;
  bool sums_between = false;  // true: switches between hosts also compute sums (SHARP)
  PredictionErrors errors;
  std::string source;

  int ranks() const { return hosts * gpus; }
};

// Returns the names of the known clusters.
std::vector<std::string> cluster_names();
// Returns true for a cluster's name or a near miss of one, for a line that begins with "8xH100" or
// "H100", and for a file of cluster parameters. All other texts describe networks (load_network.h).
bool is_cluster(const std::string& text);
// Loads a cluster. `ranks` selects that many GPUs: some GPUs of one host, or whole hosts. Unless a
// name or a line states the number of hosts, the cluster has as many hosts as `ranks` needs. Throws
// Error(invalid_argument).
Cluster load_cluster(const std::string& text, std::optional<int> ranks = std::nullopt);

// Returns the description of a network (load_network.h) for the simulation of programs: GPU i of
// each host is attached to switch i between hosts, and each host has an internal switch.
std::string network_of(const Cluster& cluster);

// Convert the parameters to and from a JSON file. parse_cluster_json() throws
// Error(invalid_argument).
std::string to_json(const Cluster& cluster);
Cluster parse_cluster_json(const std::string& text);

}  // namespace tutti

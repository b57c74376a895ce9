// Clusters of GPUs, as what collectives cost on them is predicted from: hosts of so many GPUs, a
// class of links inside a host, one between hosts, and for each a handful of numbers.
//
//   host 0                         host 1
//   [GPU]=[GPU]= ... =[GPU]        [GPU]=[GPU]= ...     = inside: a link of each GPU into a switch
//     |     |           |            |     |
//   --+-----+---- ... --+------------+-----+--------    | between: cards, of all GPUs of a host
//
// A cluster is a name ("p5:32"), a line ("8xH100 x 32, NVLink 450, EFA 32x12.5") or a file, which
// `tutti tune --fit` writes. What the numbers are put into is in predict.h.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/cost/prediction_errors.h"

namespace tutti {

// How GPUs pass a message on (NCCL's): 8 bytes with a flag each; on NVLink 120 bytes with one; or
// whole slices, each with a fence.
enum class MessageProtocol : uint8_t { ll, ll128, simple };
inline constexpr std::array kMessageProtocols = {MessageProtocol::ll, MessageProtocol::ll128,
                                                 MessageProtocol::simple};
std::string_view name(MessageProtocol protocol);

struct ClusterLink {
  // 1e9 bytes a second, of one direction, as collectives reach it: inside of a GPU, between of a
  // host.
  double GBps = 0;
  // Microseconds of one step of a ring or a tree, by protocol. 0: there is no such protocol.
  std::array<double, kMessageProtocols.size()> step_us = {};
  double ll_GBps = 0;     // what the first protocol reaches at most
  double message_us = 0;  // of an all_to_all, for each other rank
  double all_to_all = 1;  // the part of GBps that an all_to_all reaches
};

struct Cluster {
  std::string name;
  std::string gpu;  // "H100"; empty where nobody said it
  int hosts = 1;
  int gpus = 8;  // of a host
  double launch_us = 0;
  ClusterLink inside;
  ClusterLink between;
  // A switch inside the host may add up (NVLS): the GPU's link carries so much of that, and a call
  // takes so long beside its bytes. 0: there is no such switch.
  double sums_GBps = 0;
  double sums_us = 0;
  bool sums_between = false;  // switches between hosts add up, too (SHARP)
  PredictionErrors errors;
  std::string source;

  int ranks() const { return hosts * gpus; }
};

// The names of clusters that are known.
std::vector<std::string> cluster_names();
// True for the name of a cluster, or nearly one, a line that begins with "8xH100" or "H100", and
// a file of such numbers. Everything else is a network's description
// (load_network.h).
bool is_cluster(const std::string& text);
// `ranks`: so many GPUs of it, where they are given: some of one host, or whole hosts. A name
// without a number of hosts has as many as that takes. Throws Error(invalid_argument).
Cluster load_cluster(const std::string& text, std::optional<int> ranks = std::nullopt);

// As a network on which programs are played (load_network.h): GPU i of each host on the i-th of as
// many switches, and a switch in each host.
std::string network_of(const Cluster& cluster);

// The parameters' file. parse_cluster_json() throws Error(invalid_argument).
std::string to_json(const Cluster& cluster);
Cluster parse_cluster_json(const std::string& text);

}  // namespace tutti

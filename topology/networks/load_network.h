// Networks by a short description, or from the files of other programs.
//
//   switch:8                                      one switch, 8 ranks
//   switch:8,bandwidth=400GB/s;ring:4,bandwidth=50GB/s,latency=1us
//                                                 hosts of 8 in a ring, each GPU with its own card
//   torus:4x4x4   mesh:4x4   ring:8   full:8
//   fat-tree:k=16                                 switches with 16 ports, 1024 hosts
//   fat-tree:hosts=12500,per-leaf=32,gpus=8       leaves and spines; up=N: uplinks of a leaf
//   rail:hosts=32,gpus=8                          GPU i of every host on the i-th switch
//   dragonfly:groups=9,routers=4,hosts=2,global=2
//
// Every kind takes bandwidth= (GB/s, or with a unit: 50GB/s, 400Gbps) and latency= (us, or with a
// unit) of a link. Kinds with gpus= also take nvlink= and nvlink-latency= for the switch inside a
// host. fat-tree takes nics= for hosts with fewer cards than GPUs. Defaults: 50 GB/s and 0.5 us
// between hosts, 450 GB/s and 0.25 us inside. A route over a switch crosses two links.
//
// "package:2 core:4 pu:1" is a host in hwloc's synthetic notation.
//
// Files: graphs (graph_sources.h: NCCL's and hwloc's XML, JSON, lines of nodes and links),
// ASTRA-sim's analytical .yml, htsim's .topo, the topology.txt of ns-3 (HPCC, ASTRA-sim, SimAI),
// and Slurm's topology.conf (which states no bandwidths: the defaults are used).
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "topology/networks/network.h"

namespace tutti {

// Parses a description. `ranks`: the size for descriptions that do not state one, such as "ring".
// Throws Error(invalid_argument) that quotes the invalid part.
Structure parse_structure(const std::string& description, std::optional<int> ranks);

// Parses a file's text, whose format is detected from the content; `name` and the line appear in
// messages. Throws Error(invalid_argument) rather than return a partial network.
std::unique_ptr<Network> read_network(const std::string& text, const std::string& name);

// Loads a file, or parses a description with or without "synthetic:" before it. "synthetic" alone
// means "switch". `ranks`: as for parse_structure().
std::unique_ptr<Network> load_network(const std::string& source, std::optional<int> ranks);

}  // namespace tutti

// Predicts the time of NCCL's algorithms on a cluster in closed form, for any number of GPUs.
//
//   time = launch + steps x time of a step + bytes over a link / its bandwidth
//
// The prediction is the minimum over the available algorithms and protocols, because NCCL chooses
// by the minimum of such a model (src/graph/tuning.cc). This model has the same form, with the
// cluster's numbers. For n GPUs on N hosts of g GPUs, and S bytes as nccl-tests counts them:
//
//   ring        n - 1 steps, twice as many for all_reduce (each 1.4 times as long with simple,
//               because they reduce); N of n steps are between hosts. Each link carries
//               S (n-1)/n, for all_reduce 2 S (n-1)/n, for broadcast and reduce S. All cards of a
//               host together carry as many bytes as one link
//   tree        all_reduce on several hosts: 2 (g-1 + log2 N) steps; 1/0.9 times a ring's bytes
//   switch      all_reduce with a summing switch in the host (NVLS): S (g+1)/g on a GPU's link, and
//               at the same time a tree between hosts, 2 S (N-1)/N on a host's cards (S with SHARP)
//   direct      all_to_all: S/n to each peer in turn; gather and scatter: all to or from one GPU
//
// The interval contains nine of ten measurements if the errors are as large as the errors that were
// found when the parameters were fitted or published (Cluster::errors).
#pragma once

#include <string_view>
#include <vector>

#include "collectives/cluster/cluster.h"
#include "collectives/program/program.h"

namespace tutti {

struct ClusterCandidate {
  std::string_view algorithm;
  MessageProtocol protocol = MessageProtocol::simple;
  double steps_us = 0;  // time of the launch and all steps
  double bytes_us = 0;
  double time_us() const { return steps_us + bytes_us; }
};

struct ClusterPrediction {
  double time_us = 0;
  Interval interval_us;
  std::vector<ClusterCandidate> candidates;  // fastest first
};

// Predicts a call on all GPUs of the cluster. Throws Error(unsupported) for a collective that NCCL
// does not provide.
ClusterPrediction predict(const Cluster& cluster, Collective collective, double bytes);

}  // namespace tutti

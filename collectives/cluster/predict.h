// Predicts the time of NCCL's algorithms on a cluster in closed form, for any number of GPUs.
//
//   time = launch + steps x time of a step + bytes over a link / its bandwidth
//
// for each algorithm and protocol that there is; the least of them is the prediction, as NCCL takes
// what its own such model finds least (src/graph/tuning.cc, whose form this has; the numbers are
// those of the cluster). For n GPUs on N hosts of g, S bytes as nccl-tests count them:
//
//   ring        n - 1 steps, all_reduce twice as many (of whole slices 1.4 times as long, as they
//               reduce); N of n are between hosts. On each link
//               S (n-1)/n, all_reduce twice that; on all cards of a host together as much
//   tree        all_reduce on several hosts: 2 (g-1 + log2 N) steps; bytes as a ring's, times 1/0.9
//   switch      all_reduce where a switch in the host adds up (NVLS): S (g+1)/g on a GPU's link; at
//               the same time a tree between hosts, 2 S (N-1)/N on a host's cards (S with SHARP)
//   direct      all_to_all: S/n to each other GPU, in turn; gather and scatter: all to or from one
//
// An interval holds nine measurements of ten, if errors are as large as those that the parameters
// were judged by (Cluster::errors).
#pragma once

#include <string_view>
#include <vector>

#include "collectives/cluster/cluster.h"
#include "collectives/program/program.h"

namespace tutti {

struct ClusterCandidate {
  std::string_view algorithm;
  MessageProtocol protocol = MessageProtocol::simple;
  double steps_us = 0;  // the launch and all steps
  double bytes_us = 0;
  double time_us() const { return steps_us + bytes_us; }
};

struct ClusterPrediction {
  double time_us = 0;
  Interval interval_us;
  std::vector<ClusterCandidate> candidates;  // the quickest first
};

// All GPUs of the cluster take part. Throws Error(unsupported) for a collective that NCCL does not
// have.
ClusterPrediction predict(const Cluster& cluster, Collective collective, double bytes);

}  // namespace tutti

// A training job without its layout: model, batch, precision, cluster and software.
#pragma once

#include <cstdint>

#include "collectives/cluster/cluster.h"
#include "collectives/program/program.h"
#include "training/planner/efficiencies.h"
#include "training/planner/layout.h"
#include "training/planner/model_shape.h"
#include "training/planner/processor.h"

namespace tutti::training::planner {

struct Job {
  ModelShape model;
  int64_t sequence = 0;
  int64_t global_batch = 0;  // number of sequences in a step
  Precision precision = Precision::half;
  Processor processor;
  Cluster cluster;  // all processors of the job
  Software software = Software::megatron;
  bool has_flash_attention = true;  // flash attention stores no scores (Dao et al., 2022)
};

// A group of `ranks` ranks, each `stride` ranks from the next. Ranks are numbered along tensor
// first, then context, data and stage, host by host. Groups of one kind communicate at the same
// time, so each uses the same fraction of a host's network cards as of the host's processors.
//
//   host 0  [d0 t0][d0 t1][d1 t0][d1 t1]     tensor groups: 2 ranks, stride 1
//   host 1  [d2 t0][d2 t1][d3 t0][d3 t1]     data groups: 4 ranks, stride 2, half of a host's cards
struct Group {
  int ranks = 1;
  int stride = 1;
};
Group tensor_group(const Layout& layout);
Group context_group(const Layout& layout);
Group data_group(const Layout& layout);         // ranks that sum gradients: data x context
Group expert_group(const Layout& layout);       // ranks over which experts are distributed
Group expert_data_group(const Layout& layout);  // ranks that have the same experts

// Returns the seconds of a group's collective without the launch of its kernels; `bytes` are
// counted as in `tutti bench`. Returns 0 for a group of one rank.
double collective_seconds(const Cluster& cluster, const Group& group, Collective collective,
                          double bytes);
// Returns the seconds of a message between two ranks whose indices differ by `away`.
double message_seconds(const Cluster& cluster, int away, double bytes);

inline constexpr double kHalfBytes = 2;  // bytes of a 16-bit value
inline double count(int64_t values) { return static_cast<double>(values); }
// Returns the number of micro-batches of a step on one rank.
double micro_batches_of(const Job& job, const Layout& layout);
// Returns the peak FLOP/s of a processor in the job's precision.
double peak_of(const Job& job);
// Returns the number of tokens of a micro-batch on one rank.
double tokens_of(const Job& job, const Layout& layout);

// Returns the number of outputs of the output layer: the vocabulary, padded so that it can be
// divided over the tensor-parallel ranks.
int64_t padded_vocabulary(const Job& job, const Layout& layout);

}  // namespace tutti::training::planner

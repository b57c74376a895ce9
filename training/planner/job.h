// A training job without its layout: model, batch, precision, cluster and program.
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
  int64_t global_batch = 0;  // sequences
  Precision precision = Precision::half;
  Processor processor;
  Cluster cluster;  // all processors of the job
  Software software = Software::megatron;
  bool has_flash_attention = true;  // which keeps no scores (Dao et al., 2022)
};

// A group of `ranks` ranks, each `stride` ranks from the next. Tensor ranks are numbered first,
// then context, data and stage, host by host. Groups of one kind communicate at the same time: each
// has the part of a host's network cards that equals its part of the host's processors.
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

// Seconds of a group's collective without its launch; bytes as `tutti bench` counts them. A group
// of one rank takes none.
double collective_seconds(const Cluster& cluster, const Group& group, Collective collective,
                          double bytes);
// Seconds of a message to the rank that is `away` ranks further.
double message_seconds(const Cluster& cluster, int away, double bytes);

inline constexpr double kHalfBytes = 2;  // bytes of a 16-bit value
inline double count(int64_t values) { return static_cast<double>(values); }
// Micro-batches of a step on one rank.
double micro_batches_of(const Job& job, const Layout& layout);
// Peak FLOP/s of a processor in the job's precision.
double peak_of(const Job& job);
// Tokens of a micro-batch on one rank.
double tokens_of(const Job& job, const Layout& layout);

// Size of the output layer: the vocabulary, padded so that tensor ranks divide it.
int64_t padded_vocabulary(const Job& job, const Layout& layout);

}  // namespace tutti::training::planner

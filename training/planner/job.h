// A model's training on a cluster, all but its layout: what the planner is asked.
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
  Cluster cluster;  // of all processors
  Software software = Software::megatron;
  bool has_flash_attention = true;  // which keeps no scores (Dao et al., 2022)
};

// Ranks are numbered tensor first, then context, data and stage, from host to host.
//
//   host 0  [d0 t0][d0 t1][d1 t0][d1 t1]     a group of so many ranks, each so many ranks from the
//   host 1  [d2 t0][d2 t1][d3 t0][d3 t1]     next, has some of a host's processors, and that part
//                                            of the host's cards: others use the rest meanwhile
struct Group {
  int ranks = 1;
  int stride = 1;
};
Group tensor_group(const Layout& layout);
Group context_group(const Layout& layout);
Group data_group(const Layout& layout);         // all that share gradients: data x context
Group expert_group(const Layout& layout);       // among whom experts are dealt out
Group expert_data_group(const Layout& layout);  // ranks that have the same experts

// Seconds of a collective of a group, its launch left out; bytes as `tutti bench` counts them. A
// group of one rank takes none.
double collective_seconds(const Cluster& cluster, const Group& group, Collective collective,
                          double bytes);
// Of a message to a rank so many ranks away.
double message_seconds(const Cluster& cluster, int away, double bytes);

inline constexpr double kHalfBytes = 2;  // of a value of 16 bits
inline double count(int64_t values) { return static_cast<double>(values); }
// Of a micro-batch, on a rank.
double tokens_of(const Job& job, const Layout& layout);

// Words that the output layer has, with those that only make it divide.
int64_t padded_vocabulary(const Job& job, const Layout& layout);

}  // namespace tutti::training::planner

// Which layers go on which ranks: a pipeline's stages, each on one or several ranks.
//
//   layers   0 1 2 3 | 4 5 | 6        stage 0: layers 0-3, replicated on ranks 0, 1 and 2
//   ranks    0, 1, 2 |  3  | 4                 stage 1: layers 4-5 on rank 3 ...
//
// The replicas of a stage take micro-batches in turn and sum their gradients (data parallelism).
//
// Source: Narayanan et al.: PipeDream: generalized pipeline parallelism for DNN training, SOSP
// 2019, section 3.1. Predicted is the steady state alone, in which computation and messages overlap
// and all but the slowest part stands still at times: no filling and draining, no optimizer.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tutti::training::pipeline {

// What one layer (a model's unit) takes for one micro-batch on one rank.
struct Layer {
  std::string name;
  double forward = 0;            // seconds
  double backward = 0;           // seconds
  int64_t activation_bytes = 0;  // of its output; as many of the output's gradient come back
  int64_t parameter_bytes = 0;   // of its gradients, likewise
};

struct Link {
  double bandwidth = 0;  // bytes per second; may be infinite
  double latency = 0;    // seconds
};

// Ranks are numbered node by node. Links of a kind that the cluster has not got are not looked at.
struct Cluster {
  int nodes = 1;
  int ranks_per_node = 1;
  Link inside;   // between ranks of a node
  Link between;  // between nodes
  // Bytes of parameters that a rank has room for; 0: any number. Room for their gradients, the
  // optimizer's state, stashed versions and activations is the caller's to leave.
  int64_t parameter_memory = 0;

  int ranks() const { return nodes * ranks_per_node; }
};

struct Stage {
  int first = 0;  // its layers: [first, end)
  int end = 0;
  std::vector<int> ranks;  // ascending; as many as it has replicas
  // Seconds per micro-batch, of which the replicas have several under way at once.
  double time = 0;      // of the stage, its gradients' sums included
  double boundary = 0;  // of what goes to the next stage and comes back; the last stage: 0
};

struct Partition {
  std::vector<Stage> stages;
  double time = 0;  // seconds from one micro-batch to the next: of the slowest stage or boundary

  double throughput() const {
    return 1 / time;
  }                   // micro-batches per second; infinite if all is free
  int ranks() const;  // that have something to do
  // How many must be under way so that no stage waits: ceil(ranks / replicas of the first stage),
  // the paper's NOAM.
  int micro_batches_in_flight() const;
};

// The fastest partition; ranks stay idle where more would not be faster, and among equals there are
// few stages rather than many.
//
// The paper's dynamic programme. A^k(i -> j, m) is the time per micro-batch of the best pipeline of
// layers i to j on m workers of level k. A worker of level 1 is a rank, of level 2 a node, that
// runs the best pipeline of level 1; B_k and L_k are the links' bandwidth and latency:
//
//   A^0(i -> j)       sum of the layers' times
//   T^k(i -> j, m)    a stage replicated on m workers:
//                     1/m max(A^{k-1}(i -> j, all), 2 (m - 1) (L_k + bytes of parameters / B_k))
//   A^k(i -> j, m)    = min(T^k(i -> j, m),
//                           min over s, m' of max(A^k(i -> s, m - m'),
//                                                 2 (L_k + bytes of activations of s / B_k),
//                                                 T^k(s + 1 -> j, m')))
//
// What that leaves out: a stage lies on whole nodes, all with the same inner stages, or inside one
// node. Summing the gradients is priced as if the replicas' bytes went through one link, and once
// per round of m micro-batches: a ring takes 1/m of that, and so does accumulation of gradients
// over m rounds. A boundary is one link, however many ranks lie on either side. (Latency is not in
// the paper: links are held to carry one message at a time.)
//
// O(layers^3 ranks_per_node^2 + layers^2 nodes^2). Throws Error(invalid_argument) for times, sizes
// and clusters that make no sense, and where the parameters do not fit.
Partition partition(std::span<const Layer> layers, const Cluster& cluster);

// The same with a rank per stage: a pipeline and nothing else.
Partition unreplicated_pipeline(std::span<const Layer> layers, const Cluster& cluster);

// The fastest pipeline whose stages have equally many replicas R, under the same model of costs:
// what a mesh of data ranks x stages runs. Stage s has ranks [s R, (s + 1) R). On several
// nodes R divides the ranks of a node, or is a multiple of them.
Partition even_partition(std::span<const Layer> layers, const Cluster& cluster);

// One stage on all ranks, under the same model of costs.
Partition data_parallel(std::span<const Layer> layers, const Cluster& cluster);

// Cuts units into `chunks` runs, each of at least one unit, so that the slowest chunk is as fast as
// can be; of these cuts the most even one (least sum of squares), and of those the one whose later
// chunks are larger. Returns the first unit of each chunk. Throws Error(invalid_argument) where
// there are fewer units than chunks, and for costs below 0.
//
//   {1, 1, 1, 3, 1}, 3 chunks -> {0, 3, 4}     (1 1 1 | 3 | 1)
std::vector<int> balanced_cut(std::span<const double> unit_costs, int chunks);

}  // namespace tutti::training::pipeline

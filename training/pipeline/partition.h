// Assigns layers to ranks: divides the layers into the stages of a pipeline, each of which is on
// one or several ranks.
//
//   layers   0 1 2 3 | 4 5 | 6        stage 0: layers 0-3, replicated on ranks 0, 1 and 2
//   ranks    0, 1, 2 |  3  | 4                 stage 1: layers 4-5 on rank 3 ...
//
// The replicas of a stage take micro-batches in turn and sum their gradients (data parallelism).
//
// Source: Narayanan et al.: PipeDream: generalized pipeline parallelism for DNN training, SOSP
// 2019, section 3.1. The prediction covers only the steady state, in which computation and messages
// overlap and all but the slowest part are idle at times. It ignores filling and draining, and the
// optimizer.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tutti::training::pipeline {

// Cost of one layer (a unit of the model) for one micro-batch on one rank.
struct Layer {
  std::string name;
  double forward = 0;            // seconds
  double backward = 0;           // seconds
  int64_t activation_bytes = 0;  // bytes of its output; the output's gradient has as many
  int64_t parameter_bytes = 0;   // bytes of its parameters; their gradients have as many
};

struct Link {
  double bandwidth = 0;  // bytes per second; may be infinite
  double latency = 0;    // seconds
};

// Hosts (nodes), the ranks on each, and the links. `inside` has no effect with one rank per node,
// `between` has no effect with one node.
struct Cluster {
  int nodes = 1;
  int ranks_per_node = 1;
  Link inside;   // link between ranks of a node
  Link between;  // link between nodes
  // Bytes of memory per rank for parameters; 0: unlimited. The caller must subtract memory for
  // gradients, optimizer state, stashed versions and activations.
  int64_t parameter_memory = 0;

  int ranks() const { return nodes * ranks_per_node; }
};

struct Stage {
  int first = 0;  // the stage has layers [first, end)
  int end = 0;
  std::vector<int> ranks;  // ascending; each has a replica of the stage
  // Both times are in seconds per micro-batch. The replicas process different micro-batches at the
  // same time, so a single micro-batch takes longer than these times.
  double time = 0;  // time of the stage, including sums of gradients
  // time of sending activations to the next stage and gradients back; 0 for the last stage
  double boundary = 0;
};

struct Partition {
  std::vector<Stage> stages;
  double time = 0;  // seconds between micro-batches: the time of the slowest stage or boundary

  // Returns micro-batches per second; infinite if all costs are 0.
  double throughput() const { return 1 / time; }
  // Returns the number of ranks that the partition uses.
  int ranks() const;
  // Returns how many micro-batches must be in flight so that no stage waits: ceil(ranks / replicas
  // of the first stage), the paper's NOAM.
  int micro_batches_in_flight() const;
};

// Returns the fastest partition. Leaves ranks unused if they would not make the partition faster,
// and prefers few stages among equally fast partitions.
//
// The paper's dynamic program: A^k(i -> j, m) is the time per micro-batch of the best pipeline of
// layers i to j on m workers of level k. A worker of level 1 is a rank; a worker of level 2 is a
// node, which runs the best pipeline of level 1. B_k and L_k are the links' bandwidth and latency:
//
//   A^0(i -> j)       sum of the layers' times
//   T^k(i -> j, m)    a stage replicated on m workers:
//                     1/m max(A^{k-1}(i -> j, all), 2 (m - 1) (L_k + bytes of parameters / B_k))
//   A^k(i -> j, m)    = min(T^k(i -> j, m),
//                           min over s, m' of max(A^k(i -> s, m - m'),
//                                                 2 (L_k + bytes of activations of s / B_k),
//                                                 T^k(s + 1 -> j, m')))
//
// Limits: a stage either occupies whole nodes, all with the same inner stages, or is inside one
// node. The cost of gradient sums assumes that gradients are summed after every m micro-batches,
// and that the bytes of all replicas pass through one link. A ring takes 1/m of that time; so does
// a sum after every m^2 micro-batches. A boundary is one link, however many ranks are on either
// side. (The paper has no latency. Here a link carries one message at a time, each with the link's
// latency.)
//
// O(layers^3 ranks_per_node^2 + layers^2 nodes^2). Throws Error(invalid_argument) for invalid
// times, sizes and clusters, and if the parameters do not fit.
Partition partition(std::span<const Layer> layers, const Cluster& cluster);

// Returns the fastest partition with one rank per stage: a pipeline only.
Partition unreplicated_pipeline(std::span<const Layer> layers, const Cluster& cluster);

// Returns the fastest pipeline, by the cost model of partition(), whose stages all have the same
// number R of replicas, so that a mesh of R data-parallel ranks x stages can run it. Stage s has
// ranks [s R, (s + 1) R). With several nodes, R is a divisor or a multiple of the number of ranks
// per node.
Partition even_partition(std::span<const Layer> layers, const Cluster& cluster);

// Returns the partition with one stage on all ranks, with times by the cost model of partition().
Partition data_parallel(std::span<const Layer> layers, const Cluster& cluster);

// Divides units into `chunks` consecutive chunks of at least one unit, such that the slowest
// chunk's time is minimal. Among equal divisions prefers the most even one (least sum of squares),
// then the division whose later chunks are larger. Returns the first unit of each chunk. Throws
// Error(invalid_argument) if there are fewer units than chunks, and for costs below 0.
//
//   {1, 1, 1, 3, 1}, 3 chunks -> {0, 3, 4}     (1 1 1 | 3 | 1)
std::vector<int> balanced_cut(std::span<const double> unit_costs, int chunks);

}  // namespace tutti::training::pipeline

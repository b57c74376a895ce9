// The location of each parameter in memory and its owner. Data parallelism, every ZeRO stage,
// optimizers and checkpoints all read this one description. It is a value that a pure function
// creates.
//
// Parameters are packed into buckets, in the order in which backward finishes them (the last layer
// first). Every bucket is divided evenly among `ranks` owners, so that reduce-scatter and
// all-gather work on the bucket in place:
//
//   bucket 0                    bucket 1                                  ...
//   |ln_f.bias|ln_f.weight|pad| |h.1.mlp.c_proj.bias|h.1.mlp.c_proj.weight|pad|
//   |--- rank 0 ---|-- rank 1 --| |-------- rank 0 ---------|------- rank 1 --|
//
// Parameters and shards start at multiples of kAlignment elements; the gaps between them are zero.
//
// Parameters whose gradients are summed over the same ranks form a group. Each group has its own
// buckets and its own number of owners.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "training/core/parameters.h"

namespace tutti::training {

// Alignment in elements: a cache line of 16-bit values. A shard never ends inside an aligned block
// of this size.
inline constexpr int64_t kAlignment = 32;
constexpr int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// Groups of parameters by the axes over which their gradients are summed (Placement::summed_over).
// The gradients of the first group are summed over the batch axes.
struct GroupTable {
  std::vector<AxisSet> axes = {kBatchAxes};  // by group: axes over which its gradients are summed
  std::vector<int> group_of;                 // by parameter: index of its group
};
// Returns the groups of these parameters. If tensor-parallel ranks have unequal parts of a model,
// the replicated parameters form a group of their own, because buckets of replicated and sharded
// parameters would differ in length between ranks, and the order of a sum may depend on an
// element's offset.
GroupTable parameter_groups(const std::vector<ParameterSpec>& specs,
                            const std::vector<int>& parameters);

struct LayoutOptions {
  std::vector<int> ranks = {1};       // by group: number of owners of each bucket
  int64_t bucket_elements = 1 << 20;  // a bucket is closed when it has this many elements
  // The first bucket of a group is closed when it has this many elements. The number is smaller, so
  // that communication starts early.
  int64_t first_bucket_elements = 1 << 16;
  // true: each of the model's units gets one bucket, whatever its size
  bool bucket_per_unit = false;
  // Parameters and shards start at multiples of this many elements; a multiple of kAlignment.
  int64_t alignment = kAlignment;
  // The parameters in the layout (the parameters of a pipeline stage), ascending. The slots of
  // other parameters have no elements. nullopt: all parameters of the model.
  std::optional<std::vector<int>> parameters;
  std::vector<int> groups;  // by parameter: its group; empty: all are in the first group
  std::vector<int> alone;   // parameters that get a bucket of their own
};

struct Slot {
  int parameter = -1;  // index in the table; -1: not in this layout
  int bucket = 0;
  int64_t offset = 0;  // elements from the bucket's start
  int64_t count = 0;
};

struct Bucket {
  int64_t offset = 0;           // elements from the start of a flat array of all buckets
  int64_t size = 0;             // with gaps; a multiple of ranks * alignment
  std::vector<int> parameters;  // in the order of their offsets
  int group = 0;
  int ranks = 1;             // number of owners
  int64_t owned_offset = 0;  // offset of the bucket's shard in the owner's arrays of shards

  int64_t shard_size() const { return size / ranks; }
};

// Part of one parameter that one rank owns.
struct Piece {
  int parameter = 0;
  int64_t first = 0;  // index of the first element in this rank's slice of the parameter
  int64_t count = 0;
  int bucket = 0;
  int64_t bucket_offset = 0;  // offset of the first element from the start of the bucket
  int64_t owned_offset = 0;   // offset of the first element in the owner's arrays
};

struct Layout {
  int64_t size = 0;         // elements of all buckets, gaps included
  int64_t owned_size = 0;   // elements of each array of an owner
  std::vector<Slot> slots;  // by parameter
  std::vector<Bucket> buckets;

  // Returns the pieces that a rank owns, in the order of the buckets. owners[g] is the rank's index
  // among the owners of group g.
  std::vector<Piece> pieces(const std::vector<int>& owners) const;
};

// Computes the layout of the parameters `specs`. Throws Error(invalid_argument) for invalid
// options.
Layout make_layout(const std::vector<ParameterSpec>& specs, const LayoutOptions& options);

}  // namespace tutti::training

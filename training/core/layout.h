// Location of each parameter: the one description that data parallelism, every ZeRO stage,
// optimizers and checkpoints read. It is a value that a pure function creates.
//
// Parameters are packed into buckets, in the order in which backward finishes them (the last layer
// first). Every bucket is divided evenly among `ranks` owners, so that reduce-scatter and
// all-gather work on it in place:
//
//   bucket 0                    bucket 1                                  ...
//   |ln_f.bias|ln_f.weight|pad| |h.1.mlp.c_proj.bias|h.1.mlp.c_proj.weight|pad|
//   |--- rank 0 ---|-- rank 1 --| |-------- rank 0 ---------|------- rank 1 --|
//
// Parameters and shards start at multiples of kAlignment elements; the gaps between are zero.
//
// Parameters form groups by the ranks over which their gradients are summed. Each group has its own
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

// In elements: a cache line of 16-bit values. The end of a shard never cuts an aligned block of
// this size.
inline constexpr int64_t kAlignment = 32;
constexpr int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// Groups of parameters by the axes over which their gradients are summed (Placement::summed_over).
// The first group is that of the batch's axes.
struct GroupTable {
  std::vector<AxisSet> axes = {kBatchAxes};  // of each group
  std::vector<int> group_of;                 // by parameter
};
// Returns the groups of these parameters. Where tensor ranks have unequal parts of a model, the
// replicated parameters form a group of their own: mixed buckets would differ in length between
// ranks, and the order of a sum may depend on an element's offset.
GroupTable parameter_groups(const std::vector<ParameterSpec>& specs,
                            const std::vector<int>& parameters);

struct LayoutOptions {
  std::vector<int> ranks = {1};             // by group: number of owners of each bucket
  int64_t bucket_elements = 1 << 20;        // a bucket is closed when it has this many
  int64_t first_bucket_elements = 1 << 16;  // of the first bucket: its communication starts early
  bool bucket_per_unit = false;             // instead: one bucket for each of the model's units
  // Parameters and shards start at multiples of this many elements; a multiple of kAlignment.
  int64_t alignment = kAlignment;
  // Ascending; a pipeline stage's. The slots of others have no elements. None: all parameters.
  std::optional<std::vector<int>> parameters;
  std::vector<int> groups;  // by parameter; empty: all are in the first group
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
  int ranks = 1;             // owners
  int64_t owned_offset = 0;  // of its shard, in the owner's arrays of shards

  int64_t shard_size() const { return size / ranks; }
};

// Part of one parameter that one rank owns.
struct Piece {
  int parameter = 0;
  int64_t first = 0;  // first element, in this rank's slice of the parameter
  int64_t count = 0;
  int bucket = 0;
  int64_t bucket_offset = 0;  // of its first element, from the start of the bucket
  int64_t owned_offset = 0;   // of its first element, in the owner's arrays
};

struct Layout {
  int64_t size = 0;         // elements of all buckets, gaps included
  int64_t owned_size = 0;   // of an owner's arrays
  std::vector<Slot> slots;  // by parameter
  std::vector<Bucket> buckets;

  // The pieces that a rank owns, in the order of the buckets. owners[g] is the rank's number among
  // the owners of group g.
  std::vector<Piece> pieces(const std::vector<int>& owners) const;
};

// Throws Error(invalid_argument) for invalid options.
Layout make_layout(const std::vector<ParameterSpec>& specs, const LayoutOptions& options);

}  // namespace tutti::training

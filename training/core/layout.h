// Where each parameter lies: the one description that data parallelism, every ZeRO stage,
// optimizers and checkpoints read. A pure function makes it; it is a value.
//
// Parameters lie in buckets, in the order in which backward finishes them (the last layer first).
// A bucket is cut evenly among `ranks` owners, so that reduce-scatter and all-gather work on it in
// place:
//
//   bucket 0                    bucket 1                                  ...
//   |ln_f.bias|ln_f.weight|pad| |h.1.mlp.c_proj.bias|h.1.mlp.c_proj.weight|pad|
//   |--- rank 0 ---|-- rank 1 --| |-------- rank 0 ---------|------- rank 1 --|
//
// Parameters and shards start at multiples of kAlignment elements; the gaps between are zero.
//
// Parameters whose gradients are summed over other ranks than others' are in another group: they
// have buckets of their own, cut among the owners that their group has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "training/core/parameters.h"

namespace tutti::training {

// Elements: a cache line of 16-bit values. No aligned block of so many elements of a parameter is
// ever cut by the end of a shard.
inline constexpr int64_t kAlignment = 32;
constexpr int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// Parameters by the axes over whose ranks their gradients are summed (Placement::summed_over). The
// first group is that of the batch's axes.
struct GroupTable {
  std::vector<AxisSet> axes = {kBatchAxes};  // of each group
  std::vector<int> group_of;                 // by parameter
};
// For these parameters. Where a model cannot be cut evenly, those that ranks have copies of are a
// group apart: buckets with others would be of other lengths on each, and the order of a sum may
// follow from where an element lies.
GroupTable parameter_groups(const std::vector<ParameterSpec>& specs,
                            const std::vector<int>& parameters);

struct LayoutOptions {
  std::vector<int> ranks = {1};             // by group: owners of each of its buckets
  int64_t bucket_elements = 1 << 20;        // a bucket is closed when it has so many
  int64_t first_bucket_elements = 1 << 16;  // the first one: its communication starts early
  bool bucket_per_unit = false;             // instead: one bucket for each of the model's units
  // Parameters and shards start at multiples of so many elements; a multiple of kAlignment.
  int64_t alignment = kAlignment;
  // Only these (a pipeline stage's), ascending; the others' slots have no elements. None: all.
  std::optional<std::vector<int>> parameters;
  std::vector<int> groups;  // by parameter, its group; empty: all are in the first
  std::vector<int> alone;   // parameters that each have a bucket of their own
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
  std::vector<int> parameters;  // in the order in which they lie
  int group = 0;
  int ranks = 1;             // owners
  int64_t owned_offset = 0;  // in the owner's arrays, which hold its shards, bucket by bucket

  int64_t shard_size() const { return size / ranks; }
};

// Part of one parameter that one rank owns.
struct Piece {
  int parameter = 0;
  int64_t first = 0;  // element of this rank's slice of the parameter
  int64_t count = 0;
  int bucket = 0;
  int64_t bucket_offset = 0;  // of its first element, from the bucket's start
  int64_t owned_offset = 0;   // of its first element, in the owner's arrays
};

struct Layout {
  int64_t size = 0;         // elements of all buckets, gaps included
  int64_t owned_size = 0;   // of an owner's arrays
  std::vector<Slot> slots;  // by parameter
  std::vector<Bucket> buckets;

  // What a rank has, in the order of the buckets. It is this owner of each group's buckets.
  std::vector<Piece> pieces(const std::vector<int>& owners) const;
};

// Throws Error(invalid_argument) for options that make no sense.
Layout make_layout(const std::vector<ParameterSpec>& specs, const LayoutOptions& options);

}  // namespace tutti::training

// Divides a schedule's entry into parts, so that messages can start while the entry computes.
#pragma once

#include <cstdint>
#include <vector>

namespace tutti::training {

// Returns the bytes of a chunk's buckets, in the order of their reduction. Throws
// Error(unsupported) for more than `most` buckets.
std::vector<double> cut_into_buckets(double gradient_bytes, double bucket_bytes, int64_t most);

// The end of a part of an entry, at which messages can start.
struct Mark {
  double at = 1;  // position of the end, as a fraction of the entry's time
  bool completes_bucket = false;
  bool sums = false;  // true if tensor-parallel ranks sum activations there
};

// Returns the marks of an entry in ascending order, the last one at 1. The time between two
// complete buckets is proportional to the bytes of the later one. Sums take place at equal
// intervals.
std::vector<Mark> marks_of(const std::vector<double>& buckets, int sums);

}  // namespace tutti::training

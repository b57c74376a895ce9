// Where an entry of a schedule is cut, so that messages begin while it computes.
#pragma once

#include <cstdint>
#include <vector>

namespace tutti::training {

// Bytes of a chunk's buckets, in the order in which they are summed. Throws Error(unsupported) for
// more than `most`.
std::vector<double> cut_into_buckets(double gradient_bytes, double bucket_bytes, int64_t most);

// The end of a part of an entry.
struct Mark {
  double at = 1;  // of the entry's time
  bool completes_bucket = false;
  bool sums = false;  // the tensor ranks sum activations
};

// Ascending, the last one at 1: buckets are made evenly over the entry, `sums` lie evenly in it.
std::vector<Mark> marks_of(const std::vector<double>& buckets, int sums);

}  // namespace tutti::training

// A call that also converts its elements: they travel in another wire format (CallOptions::wire),
// or a receive combines them with its buffer (Request::combines).
//
//   input  f32 --encode--> elements --- the call, of these elements ---> elements --decode--> f32
//
// The call in the middle (the inner call) is an ordinary call with elements of another type, so it
// works with every collective, algorithm and transport; slices consist of whole elements. A rank
// that forwards a result forwards the result's encoded form, so all ranks decode the same bits.
// Each rank's block of a buffer begins with a new element.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/dtype.h"
#include "base/wire_format.h"
#include "collectives/request.h"

namespace tutti::internal {

// Throws the errors of EncodedCall's constructor, for callers that construct the call later.
void check_wire(const Request& request, WireFormat format);

class EncodedCall {
 public:
  // Prepares the inner call. `request` is complete(), on `rank` of `size`; its buffers are not
  // accessed here. If `format` is not plain, throws Error(invalid_argument) unless the buffers are
  // f32, and Error(unsupported) for user-defined operators.
  EncodedCall(const Request& request, WireFormat format, int rank, int size);

  // Returns the inner request, on encoded buffers. It is valid during the lifetime of this object.
  const Request& request() const { return encoded_; }
  DType dtype() const { return dtype_; }  // dtype of the caller's buffers
  uint64_t values_received() const;
  // Convert the buffers: encode() before the call starts, decode() after it completes. Neither
  // throws.
  void encode() const;
  void decode() const;

 private:
  // A range of values, and the element that begins with its first value.
  struct Run {
    uint64_t first = 0;
    uint64_t count = 0;
    uint64_t element = 0;
  };
  static std::vector<Run> runs_of(uint64_t count, const Blocks& blocks, int even_blocks,
                                  WireFormat format);
  static uint64_t elements_of(const std::vector<Run>& runs, WireFormat format);

  // Returns true if the wire format differs from the buffers' format.
  bool travels() const { return element_ != dtype_; }
  void decode_into(float* output) const;
  void combine(const void* received) const;

  DType dtype_;
  DType element_;
  std::vector<Run> sent_;
  std::vector<Run> received_;
  const void* input_;
  void* output_;
  bool has_result_;
  bool combines_;
  Reduction combined_;        // operator of a receive that combines
  float* decoded_ = nullptr;  // space in memory_ for the values decoded by a receive that combines
  std::unique_ptr<std::byte[]> memory_;
  Request encoded_;
};

}  // namespace tutti::internal

// A call that does more to its elements than to move them: they travel in another format
// (CallOptions::wire), or a receive combines them with what it has (Request::combines).
//
//   input  f32 --encode--> elements --- the call, of these elements ---> elements --decode--> f32
//
// What travels is an ordinary call of another type, so every collective, algorithm and transport
// has it, and cuts it at whole blocks. A rank that passes a result on passes on what it has itself:
// all ranks decode the same bits. Each block of a buffer that has one per rank begins with an
// element of its own.
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

// What EncodedCall throws; for who takes calls on, and makes them later.
void check_wire(const Request& request, WireFormat format);

class EncodedCall {
 public:
  // `request` is complete(), on `rank` of `size`; its buffers are not touched here. Throws, for
  // formats that are not plain, Error(invalid_argument) where they are not f32, and
  // Error(unsupported) for operators of the caller's.
  EncodedCall(const Request& request, WireFormat format, int rank, int size);

  // On buffers of what travels; valid as long as this is.
  const Request& request() const { return encoded_; }
  DType dtype() const { return dtype_; }  // of the caller's buffers
  uint64_t values_received() const;
  // Before the call starts, and after it is complete. Neither throws.
  void encode() const;
  void decode() const;

 private:
  // Consecutive values, and the element that they begin.
  struct Run {
    uint64_t first = 0;
    uint64_t count = 0;
    uint64_t element = 0;
  };
  static std::vector<Run> runs_of(uint64_t count, const Blocks& blocks, int even_blocks,
                                  WireFormat format);
  static uint64_t elements_of(const std::vector<Run>& runs, WireFormat format);

  bool travels() const { return element_ != dtype_; }  // in another format
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
  Reduction combined_;        // of a receive that combines
  float* decoded_ = nullptr;  // in memory_, for one whose elements travel in another format
  std::unique_ptr<std::byte[]> memory_;
  Request encoded_;
};

}  // namespace tutti::internal

// Sends gradients in 16 bits: half the bytes of f32.
//
// Each rank rounds its gradients to the wire's type. They are summed in that type (each addition is
// computed in float and rounded to the type, base/reduce.h). The result is converted back.
// Gradients are divided by the global number of targets beforehand, so the sum needs no averaging.
//
// bf16 has the range of f32 and 8 bits of precision. f16 has 11 bits and a largest value of 65504:
// a larger gradient or sum becomes infinite, and so does the gradients' norm. Values below 3e-8,
// half the smallest f16, become zero.
#pragma once

#include <cstdint>
#include <vector>

#include "training/parallel/data_parallel.h"

namespace tutti::training {

class HalfCompression : public CommunicationHook {
 public:
  // Creates the hook. `wire`: bf16 or f16; throws Error(invalid_argument) for other types.
  explicit HalfCompression(DType wire);

  void start(Communicator& communicator, int bucket, Tensor gradients) override;
  void finish(int bucket, Tensor gradients) override;
  bool test(int bucket) override;
  int64_t payload_bytes(int bucket, Tensor gradients) const override;
  int64_t bytes() const override { return bytes_; }

 private:
  struct BucketState {
    Memory<std::byte> memory;  // the bucket in the wire's type
    Work sum;
  };

  BucketState& state(int bucket) { return buckets_.at(static_cast<size_t>(bucket)); }
  Tensor on_wire(int bucket, Tensor gradients);

  DType wire_;
  std::vector<BucketState> buckets_;
  int64_t bytes_ = 0;
};

}  // namespace tutti::training

#include "training/parallel/hooks/half_compression.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "training/kernels/elementwise.h"

namespace tutti::training {

HalfCompression::HalfCompression(DType wire) : wire_(wire) {
  if (wire != DType::bf16 && wire != DType::f16) {
    throw Error(ErrorCode::invalid_argument, cat("gradients cannot be compressed to ", name(wire)),
                {.remedy = "use bf16 or f16"});
  }
}

Tensor HalfCompression::on_wire(int bucket, Tensor gradients) {
  return tensor_at(state(bucket).memory.get(), wire_, 1, gradients.size());
}

void HalfCompression::start(Communicator& communicator, int bucket, Tensor gradients) {
  buckets_.resize(std::max(buckets_.size(), static_cast<size_t>(bucket) + 1));
  BucketState& at = state(bucket);
  const auto bytes = static_cast<size_t>(payload_bytes(bucket, gradients));
  if (at.memory == nullptr) {
    at.memory = communicator.allocate<std::byte>(bytes);
    bytes_ += static_cast<int64_t>(bytes);
  }
  const Tensor sent = on_wire(bucket, gradients);
  convert(gradients, sent);
  const Buffer buffer = as_buffer(sent);
  at.sum = communicator.all_reduce_async(as_const(buffer), buffer);
}

void HalfCompression::finish(int bucket, Tensor gradients) {
  state(bucket).sum.wait();
  convert(on_wire(bucket, gradients), gradients);
}

bool HalfCompression::test(int bucket) { return state(bucket).sum.test(); }

int64_t HalfCompression::payload_bytes(int bucket, Tensor gradients) const {
  return gradients.size() * static_cast<int64_t>(size_of(wire_));
}

}  // namespace tutti::training

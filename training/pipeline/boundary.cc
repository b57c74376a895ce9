#include "training/pipeline/boundary.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/error.h"

namespace tutti::training::pipeline {

Boundary::Boundary(Communicator stages, Communicator tensor_ranks, const ActivationLayout& layout)
    : stages_(std::move(stages)),
      tensor_ranks_(std::move(tensor_ranks)),
      replicated_(layout == kReplicated) {
  if (replicated_ || layout == kTensorRows) return;
  throw Error(ErrorCode::internal, "tensors that lie like this are not sent between stages");
}

// Equal parts, of which the last ones may be shorter, or empty; what each has by itself is sent as
// a whole.
Boundary::Part Boundary::part(int64_t elements, int rank) const {
  if (!replicated_) return {0, elements};
  const int64_t each = (elements + tensor_ranks_.size() - 1) / tensor_ranks_.size();
  const int64_t first = std::min(elements, rank * each);
  return {first, std::min(each, elements - first)};
}

Boundary::Transfer Boundary::send(ConstTensor tensor, int stage) {
  require_shapes(tensor.contiguous(), "boundary");
  const Part own = part(tensor.size(), tensor_ranks_.rank());
  const size_t element = size_of(tensor.dtype);
  Transfer transfer;
  transfer.link_ = stages_.send_async({tensor.data + static_cast<size_t>(own.first) * element,
                                       static_cast<uint64_t>(own.count), tensor.dtype},
                                      stage);
  bytes_sent_ += own.count * static_cast<int64_t>(element);
  return transfer;
}

Boundary::Transfer Boundary::receive(Tensor tensor, int stage) {
  require_shapes(tensor.contiguous(), "boundary");
  const Part own = part(tensor.size(), tensor_ranks_.rank());
  Transfer transfer;
  transfer.link_ =
      stages_.recv_async({tensor.data + static_cast<size_t>(own.first) * size_of(tensor.dtype),
                          static_cast<uint64_t>(own.count), tensor.dtype},
                         stage);
  transfer.boundary_ = this;
  transfer.received_ = tensor;
  return transfer;
}

void Boundary::Transfer::wait() {
  link_.wait();
  if (boundary_ != nullptr) boundary_->gather(received_);
}

void Boundary::gather(Tensor tensor) {
  if (!replicated_ || tensor_ranks_.size() == 1) return;
  std::vector<uint64_t> counts;
  for (int rank = 0; rank < tensor_ranks_.size(); ++rank) {
    counts.push_back(static_cast<uint64_t>(part(tensor.size(), rank).count));
  }
  const Part own = part(tensor.size(), tensor_ranks_.rank());
  const Buffer whole{tensor.data, static_cast<uint64_t>(tensor.size()), tensor.dtype};
  tensor_ranks_.all_gatherv({tensor.data + static_cast<size_t>(own.first) * size_of(tensor.dtype),
                             static_cast<uint64_t>(own.count), tensor.dtype},
                            whole, Blocks::of(counts));
}

}  // namespace tutti::training::pipeline

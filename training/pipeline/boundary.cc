#include "training/pipeline/boundary.h"

#include <utility>
#include <vector>

#include "base/error.h"

namespace tutti::training::pipeline {

Boundary::Boundary(Communicator stages, Communicator tensor_ranks, const ActivationLayout& layout)
    : stages_(std::move(stages)),
      tensor_ranks_(std::move(tensor_ranks)),
      replicated_(layout == kReplicated) {
  if (replicated_ || layout == kTensorRows) return;
  throw Error(ErrorCode::internal, "tensors of this layout cannot be sent between stages");
}

Share Boundary::part(int64_t elements, int rank) const {
  return replicated_ ? even_share(elements, rank, tensor_ranks_.size()) : Share{0, elements};
}

Boundary::Transfer Boundary::send(ConstTensor tensor, int stage) {
  require_shapes(tensor.contiguous(), "boundary");
  const Share own = part(tensor.size(), tensor_ranks_.rank());
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
  const Share own = part(tensor.size(), tensor_ranks_.rank());
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

void Boundary::Transfer::wait_for_abort() {
  try {
    link_.wait();
  } catch (const Error&) {  // the reason of the abort
  }
}

void Boundary::gather(Tensor tensor) {
  if (!replicated_ || tensor_ranks_.size() == 1) return;
  std::vector<uint64_t> counts;
  for (int rank = 0; rank < tensor_ranks_.size(); ++rank) {
    counts.push_back(static_cast<uint64_t>(part(tensor.size(), rank).count));
  }
  const Share own = part(tensor.size(), tensor_ranks_.rank());
  const Buffer whole = as_buffer(tensor);
  tensor_ranks_.all_gatherv({tensor.data + static_cast<size_t>(own.first) * size_of(tensor.dtype),
                             static_cast<uint64_t>(own.count), tensor.dtype},
                            whole, Blocks::of(counts));
}

}  // namespace tutti::training::pipeline

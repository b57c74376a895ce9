#include "training/pipeline/boundary.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace tutti::training::pipeline {

Boundary::Boundary(Communicator stages, Communicator replicas)
    : stages_(std::move(stages)), replicas_(std::move(replicas)) {}

// Equal parts; the last ones may be shorter, or empty.
Boundary::Part Boundary::part(int64_t elements, int replica) const {
  const int64_t each = (elements + replicas_.size() - 1) / replicas_.size();
  const int64_t first = std::min(elements, replica * each);
  return {first, std::min(each, elements - first)};
}

Boundary::Transfer Boundary::send(ConstTensor tensor, int stage) {
  require_shapes(tensor.contiguous(), "boundary");
  const Part own = part(tensor.size(), replicas_.rank());
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
  const Part own = part(tensor.size(), replicas_.rank());
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
  if (replicas_.size() == 1) return;
  std::vector<uint64_t> counts;
  for (int replica = 0; replica < replicas_.size(); ++replica) {
    counts.push_back(static_cast<uint64_t>(part(tensor.size(), replica).count));
  }
  const Part own = part(tensor.size(), replicas_.rank());
  const Buffer whole{tensor.data, static_cast<uint64_t>(tensor.size()), tensor.dtype};
  replicas_.all_gatherv({tensor.data + static_cast<size_t>(own.first) * size_of(tensor.dtype),
                         static_cast<uint64_t>(own.count), tensor.dtype},
                        whole, Blocks::of(counts));
}

}  // namespace tutti::training::pipeline

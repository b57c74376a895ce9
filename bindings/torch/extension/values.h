// Maps torch's tensors and operators to Tutti's.
#pragma once

#include <torch/types.h>

#include <string>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <vector>

#include "tutti.h"

namespace tutti::torch_backend {

// Throws an error that names a remedy if the tensor is not supported. `call` appears in messages:
// "all_reduce".
void check_tensor(const at::Tensor& tensor, const char* call);
// Returns the only tensor of a list. Calls on a single device receive lists of one tensor.
const at::Tensor& only(const std::vector<at::Tensor>& tensors, const char* call);

// Returns a contiguous tensor's elements as a buffer. Complex elements count as two, and
// unsupported dtypes as bytes.
tutti_buffer_t elements_of(const at::Tensor& tensor);
// Returns how many elements of the buffer elements_of(tensor) one element of the tensor becomes.
int64_t elements_in_each(const at::Tensor& tensor);

// Sets a request's operator, factor and dtypes; rejects unsupported combinations.
void set_reduction(const c10d::ReduceOp& op, const at::Tensor& tensor, const char* call,
                   tutti_request_t& request);

}  // namespace tutti::torch_backend

// What torch's tensors and operators are in Tutti's terms.
#pragma once

#include <torch/types.h>

#include <string>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <vector>

#include "tutti.h"

namespace tutti::torch_backend {

// Refuses what the library cannot take, naming the remedy. `call` is for the text: "all_reduce".
void check_tensor(const at::Tensor& tensor, const char* call);
// The one tensor of a list, as calls of one device get it.
const at::Tensor& only(const std::vector<at::Tensor>& tensors, const char* call);

// A contiguous tensor's elements as they are moved: complex ones are two each, and what Tutti has
// no type for goes as bytes.
tutti_buffer_t elements_of(const at::Tensor& tensor);
// Elements of elements_of() in one of the tensor's.
int64_t elements_in_each(const at::Tensor& tensor);

// Puts operator, factor and the types of what is combined into a request; refuses what cannot be.
void set_reduction(const c10d::ReduceOp& op, const at::Tensor& tensor, const char* call,
                   tutti_request_t& request);

}  // namespace tutti::torch_backend

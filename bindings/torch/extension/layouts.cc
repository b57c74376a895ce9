// Converts tasks on tensors to blocks of memory, which the library operates on.
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "backend.h"
#include "values.h"

namespace tutti::torch_backend {

Task task_of(const char* name, c10d::OpType type, tutti_collective_t collective) {
  Task task;
  task.name = name;
  task.type = type;
  task.request.collective = collective;
  return task;
}

void set_memory(const at::Tensor& input, const at::Tensor& output, Tensors result, Task& task) {
  task.request.input = elements_of(input);
  task.request.output = elements_of(output);
  task.tensors = {input, output};
  task.inputs = {input};
  task.outputs = std::move(result);
}

std::vector<uint64_t> counts_of(const Tensors& tensors) {
  std::vector<uint64_t> counts;
  for (const at::Tensor& tensor : tensors) {
    counts.push_back(static_cast<uint64_t>(tensor.numel() * elements_in_each(tensor)));
  }
  return counts;
}

bool all_equal(const std::vector<uint64_t>& counts) {
  return std::adjacent_find(counts.begin(), counts.end(), std::not_equal_to<>()) == counts.end();
}

at::Tensor input_of(const at::Tensor& tensor) {
  const at::NoGradGuard no_gradients;
  return tensor.resolve_conj().resolve_neg().contiguous();
}

at::Tensor output_of(const at::Tensor& tensor, Task& task) {
  if (tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg()) return tensor;
  const at::NoGradGuard no_gradients;
  const at::Tensor packed = at::empty_like(tensor, at::MemoryFormat::Contiguous);
  task.unpack = [tensor, packed, before = std::move(task.unpack)] {
    if (before) before();
    tensor.detach().copy_(packed);
  };
  return packed;
}

at::Tensor joined(const Tensors& tensors, const char* call) {
  const at::NoGradGuard no_gradients;
  Tensors flat;
  for (const at::Tensor& tensor : tensors) {
    check_tensor(tensor, call);
    TORCH_CHECK(tensor.scalar_type() == tensors.front().scalar_type(), "tutti: ", call,
                ": tensors of types ", tensors.front().scalar_type(), " and ", tensor.scalar_type(),
                " in one list");
    flat.push_back(tensor.reshape({-1}));
  }
  return flat.size() == 1 ? input_of(flat.front()) : at::cat(flat);
}

at::Tensor to_be_cut(const Tensors& tensors, Task& task) {
  int64_t elements = 0;
  for (const at::Tensor& tensor : tensors) elements += tensor.numel();
  const at::Tensor whole = at::empty({elements}, tensors.front().options().requires_grad(false));
  task.unpack = [tensors, whole] {
    int64_t at = 0;
    for (const at::Tensor& tensor : tensors) {
      tensor.detach().copy_(whole.narrow(0, at, tensor.numel()).view(tensor.sizes()));
      at += tensor.numel();
    }
  };
  return whole;
}

void check_alike(const Tensors& tensors, const at::Tensor& like, const char* call) {
  for (const at::Tensor& tensor : tensors) {
    check_tensor(tensor, call);
    TORCH_CHECK_VALUE(tensor.scalar_type() == like.scalar_type(), "tutti: ", call,
                      ": invalid tensor type: tensors of types ", like.scalar_type(), " and ",
                      tensor.scalar_type(), " in one call");
    TORCH_CHECK_VALUE(tensor.numel() == like.numel(), "tutti: ", call,
                      ": invalid tensor size: tensors of ", like.numel(), " and ", tensor.numel(),
                      " elements in one call");
  }
}

void check_count(const Tensors& tensors, int size, const char* call) {
  TORCH_CHECK_VALUE(tensors.size() == static_cast<size_t>(size), "tutti: ", call, ": a list of ",
                    tensors.size(), " tensors, but the process group has ", size, " ranks");
}

void check_root(int64_t root, int size, const char* call) {
  TORCH_CHECK_VALUE(root >= 0 && root < size, "tutti: ", call, ": invalid root rank ", root, " of ",
                    size);
}

}  // namespace tutti::torch_backend

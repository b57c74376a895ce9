// Implements the Backend's data movements: broadcast, all_gather, gather, scatter, all_to_all.
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <numeric>
#include <utility>

#include "backend.h"
#include "values.h"

namespace tutti::torch_backend {

using c10d::OpType;

namespace {

// Returns the number of elements to or from each rank, given `splits` of the rows; equal blocks if
// `splits` is empty.
std::vector<uint64_t> counts_of(const at::Tensor& tensor, const std::vector<int64_t>& splits,
                                int size, const char* which) {
  const int64_t rows = tensor.dim() == 0 ? 1 : tensor.size(0);
  if (splits.empty()) {
    TORCH_CHECK_VALUE(rows % size == 0, "tutti: all_to_all: the ", which, " tensor's dim 0 (", rows,
                      ") does not divide equally across group size ", size, "; give split sizes");
    const auto each = static_cast<uint64_t>(tensor.numel() / size * elements_in_each(tensor));
    return std::vector<uint64_t>(static_cast<size_t>(size), each);
  }
  TORCH_CHECK_VALUE(splits.size() == static_cast<size_t>(size),
                    "tutti: all_to_all: ", splits.size(), " ", which, " split sizes for ", size,
                    " ranks");
  TORCH_CHECK_VALUE(std::accumulate(splits.begin(), splits.end(), int64_t{0}) == rows,
                    "tutti: all_to_all: Split sizes don't match total dim 0 size of the ", which,
                    " tensor (", rows, ")");
  const int64_t row = rows == 0 ? 0 : tensor.numel() / rows;
  std::vector<uint64_t> counts;
  for (const int64_t split : splits) {
    TORCH_CHECK_VALUE(split >= 0, "tutti: all_to_all: negative split size ", split);
    counts.push_back(static_cast<uint64_t>(split * row * elements_in_each(tensor)));
  }
  return counts;
}

}  // namespace

Future Backend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  const at::Tensor& tensor = only(tensors, "broadcast");
  check_root(options.rootRank, size_, "broadcast");
  Task task = task_of("broadcast", OpType::BROADCAST, TUTTI_BROADCAST);
  task.request.root = static_cast<int32_t>(options.rootRank);
  const bool root = rank_ == options.rootRank;
  const at::Tensor memory = root ? input_of(tensor) : output_of(tensor, task);
  task.request.input = elements_of(memory);
  task.request.output = task.request.input;
  task.tensors = {memory};
  task.inputs = {tensor};
  task.outputs = {tensor};
  return make(std::move(task), options.timeout, options.asyncOp);
}

Task Backend::all_gather_of(const at::Tensor& output, const at::Tensor& input) const {
  check_tensor(output, "all_gather");
  check_tensor(input, "all_gather");
  TORCH_CHECK_VALUE(input.scalar_type() == output.scalar_type(),
                    "tutti: all_gather: output tensor must have the same type as input tensor: ",
                    output.scalar_type(), ", ", input.scalar_type());
  TORCH_CHECK_VALUE(output.numel() == input.numel() * size_,
                    "tutti: all_gather: output tensor size must be equal to world_size times "
                    "input tensor size, but has ",
                    output.numel(), " elements for an input of ", input.numel(), " on ", size_,
                    " ranks");
  Task task = task_of("all_gather", OpType::_ALLGATHER_BASE, TUTTI_ALL_GATHER);
  set_memory(input_of(input), output_of(output, task), {output}, task);
  return task;
}

Task Backend::all_gather_of(const Tensors& outputs, const at::Tensor& input) const {
  check_count(outputs, size_, "all_gather");
  check_tensor(input, "all_gather");
  Task task = task_of("all_gather", OpType::ALLGATHER, TUTTI_ALL_GATHER);
  for (const at::Tensor& output : outputs) {
    check_tensor(output, "all_gather");
    TORCH_CHECK_VALUE(output.scalar_type() == input.scalar_type(),
                      "tutti: all_gather: invalid tensor type: tensors of types ",
                      input.scalar_type(), " and ", output.scalar_type(), " in one call");
  }
  const at::Tensor& own = outputs[static_cast<size_t>(rank_)];
  TORCH_CHECK_VALUE(own.numel() == input.numel(),
                    "tutti: all_gather: invalid tensor size: this rank's output has ", own.numel(),
                    " elements, its input ", input.numel());
  set_memory(input_of(input), to_be_cut(outputs, task), outputs, task);
  // The sizes may differ between ranks.
  std::vector<uint64_t> counts = counts_of(outputs);
  if (!all_equal(counts)) task.output_counts = std::move(counts);
  return task;
}

Future Backend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                const c10d::AllgatherOptions& options) {
  return make(all_gather_of(output, input), options.timeout, options.asyncOp);
}

Future Backend::allgather(TensorLists& outputs, Tensors& inputs,
                          const c10d::AllgatherOptions& options) {
  const at::Tensor& input = only(inputs, "all_gather");
  TORCH_CHECK_VALUE(outputs.size() == 1, "tutti: all_gather takes one list of outputs");
  return make(all_gather_of(outputs.front(), input), options.timeout, options.asyncOp);
}

// Gathers several inputs. `outputs` has one list per rank, each with one tensor per input.
Future Backend::allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                                    const c10d::AllgatherOptions& options) {
  TORCH_CHECK_VALUE(outputs.size() == static_cast<size_t>(size_),
                    "tutti: all_gather_coalesced: ", outputs.size(), " lists of outputs, but the ",
                    "process group has ", size_, " ranks");
  std::vector<Task> tasks;
  for (size_t i = 0; i < inputs.size(); ++i) {
    Tensors of_ranks;
    for (const Tensors& list : outputs) {
      TORCH_CHECK_VALUE(list.size() == inputs.size(), "tutti: all_gather_coalesced: ", list.size(),
                        " outputs for ", inputs.size(), " inputs");
      of_ranks.push_back(list[i]);
    }
    tasks.push_back(all_gather_of(of_ranks, inputs[i]));
  }
  return begin(OpType::ALLGATHER_COALESCED, tasks, options.timeout);
}

Future Backend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                const c10d::AllgatherOptions& options) {
  TORCH_CHECK_VALUE(outputs.size() == inputs.size(), "tutti: all_gather: ", inputs.size(),
                    " inputs for ", outputs.size(), " outputs");
  std::vector<Task> tasks;
  for (size_t i = 0; i < outputs.size(); ++i) {
    tasks.push_back(all_gather_of(outputs[i], inputs[i]));
  }
  return begin(OpType::COALESCED, tasks, options.timeout);
}

Future Backend::gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& options) {
  const at::Tensor& input = only(inputs, "gather");
  check_root(options.rootRank, size_, "gather");
  Task task = task_of("gather", OpType::GATHER, TUTTI_GATHER);
  task.request.root = static_cast<int32_t>(options.rootRank);
  const at::Tensor source = input_of(input);
  task.request.input = elements_of(source);
  task.request.output = task.request.input;
  task.request.output.data = nullptr;
  task.tensors = {source};
  task.inputs = {input};
  if (rank_ == options.rootRank) {
    TORCH_CHECK_VALUE(outputs.size() == 1, "tutti: gather takes one list of outputs at the root");
    check_count(outputs.front(), size_, "gather");
    check_alike(outputs.front(), input, "gather");
    const at::Tensor target = to_be_cut(outputs.front(), task);
    task.request.output = elements_of(target);
    task.tensors.push_back(target);
    task.outputs = outputs.front();
  } else {
    TORCH_CHECK_VALUE(outputs.empty() || outputs.front().empty(),
                      "tutti: gather takes outputs at the root only");
  }
  return make(std::move(task), options.timeout, options.asyncOp);
}

Future Backend::scatter(Tensors& outputs, TensorLists& inputs,
                        const c10d::ScatterOptions& options) {
  const at::Tensor& output = only(outputs, "scatter");
  check_root(options.rootRank, size_, "scatter");
  Task task = task_of("scatter", OpType::SCATTER, TUTTI_SCATTER);
  task.request.root = static_cast<int32_t>(options.rootRank);
  const at::Tensor target = output_of(output, task);
  task.request.output = elements_of(target);
  task.request.input = task.request.output;
  task.request.input.data = nullptr;
  task.tensors = {target};
  if (rank_ == options.rootRank) {
    TORCH_CHECK_VALUE(inputs.size() == 1, "tutti: scatter takes one list of inputs at the root");
    check_count(inputs.front(), size_, "scatter");
    check_alike(inputs.front(), output, "scatter");
    const at::Tensor source = joined(inputs.front(), "scatter");
    task.request.input = elements_of(source);
    task.tensors.push_back(source);
    task.inputs = inputs.front();

  } else {
    TORCH_CHECK_VALUE(inputs.empty() || inputs.front().empty(),
                      "tutti: scatter takes inputs at the root only");
  }
  task.outputs = {output};
  return make(std::move(task), options.timeout, options.asyncOp);
}

Future Backend::alltoall_base(at::Tensor& output, at::Tensor& input,
                              std::vector<int64_t>& output_splits,
                              std::vector<int64_t>& input_splits,
                              const c10d::AllToAllOptions& options) {
  check_tensor(output, "all_to_all");
  check_tensor(input, "all_to_all");
  TORCH_CHECK_VALUE(input.scalar_type() == output.scalar_type(),
                    "tutti: all_to_all: input of type ", input.scalar_type(), ", output of type ",
                    output.scalar_type());
  Task task = task_of("all_to_all", OpType::ALLTOALL_BASE, TUTTI_ALL_TO_ALL);
  // Counts are always passed, because other ranks may have passed split sizes although this one did
  // not.
  task.input_counts = counts_of(input, input_splits, size_, "input");
  task.output_counts = counts_of(output, output_splits, size_, "output");

  set_memory(input_of(input), output_of(output, task), {output}, task);
  return make(std::move(task), options.timeout, options.asyncOp);
}

Future Backend::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) {
  check_count(outputs, size_, "all_to_all");
  check_count(inputs, size_, "all_to_all");
  Task task = task_of("all_to_all", OpType::ALLTOALL, TUTTI_ALL_TO_ALL);
  for (const at::Tensor& output : outputs) {
    check_tensor(output, "all_to_all");
    TORCH_CHECK_VALUE(output.scalar_type() == inputs.front().scalar_type(),
                      "tutti: all_to_all: tensors of types ", inputs.front().scalar_type(), " and ",
                      output.scalar_type(), " in one call");
  }
  task.input_counts = counts_of(inputs);
  task.output_counts = counts_of(outputs);
  set_memory(joined(inputs, "all_to_all"), to_be_cut(outputs, task), outputs, task);
  task.inputs = inputs;
  return make(std::move(task), options.timeout, options.asyncOp);
}

}  // namespace tutti::torch_backend

// Implements the Backend's reductions: all_reduce, reduce, reduce_scatter.
#include <c10/util/Exception.h>

#include <utility>

#include "backend.h"
#include "values.h"

namespace tutti::torch_backend {

using c10d::OpType;

Task Backend::all_reduce_of(const at::Tensor& tensor, const c10d::ReduceOp& op,
                            const char* name) const {
  Task task = task_of(name, OpType::ALLREDUCE, TUTTI_ALL_REDUCE);
  set_reduction(op, tensor, name, task.request);
  const at::Tensor output = output_of(tensor, task);
  const at::Tensor input = output.is_same(tensor) ? output : input_of(tensor);
  set_memory(input, output, {tensor}, task);
  return task;
}

Future Backend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  const at::Tensor& tensor = only(tensors, "all_reduce");
  return make(all_reduce_of(tensor, options.reduceOp, "all_reduce"), options.timeout,
              options.asyncOp);
}

Future Backend::allreduce_coalesced(Tensors& tensors,
                                    const c10d::AllreduceCoalescedOptions& options) {
  std::vector<Task> tasks;
  for (const at::Tensor& tensor : tensors) {
    check_tensor(tensor, "all_reduce_coalesced");
    tasks.push_back(all_reduce_of(tensor, options.reduceOp, "all_reduce_coalesced"));
  }
  return begin(OpType::ALLREDUCE_COALESCED, tasks, options.timeout);
}

Future Backend::allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) {
  return allreduce(tensors, options);  // allreduce() rejects sparse tensors
}

Future Backend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  const at::Tensor& tensor = only(tensors, "reduce");
  check_root(options.rootRank, size_, "reduce");
  Task task = task_of("reduce", OpType::REDUCE, TUTTI_REDUCE);
  set_reduction(options.reduceOp, tensor, "reduce", task.request);
  const at::Tensor input = input_of(tensor);
  task.request.root = static_cast<int32_t>(options.rootRank);
  task.request.input = elements_of(input);
  task.request.output = task.request.input;
  task.tensors = {input};
  if (rank_ == options.rootRank) {
    const at::Tensor output = output_of(tensor, task);
    task.request.output = elements_of(output);
    task.tensors.push_back(output);
  } else {
    task.request.output.data = nullptr;
  }
  task.inputs = {tensor};
  task.outputs = {tensor};
  return make(std::move(task), options.timeout, options.asyncOp);
}

Task Backend::reduce_scatter_of(const at::Tensor& output, const at::Tensor& input,
                                const c10d::ReduceOp& op) const {
  check_tensor(output, "reduce_scatter");
  check_tensor(input, "reduce_scatter");
  TORCH_CHECK_VALUE(input.scalar_type() == output.scalar_type(),
                    "tutti: reduce_scatter: input of type ", input.scalar_type(),
                    ", output of type ", output.scalar_type());
  TORCH_CHECK_VALUE(input.numel() == output.numel() * size_,
                    "tutti: reduce_scatter: input tensor must be the same size as output size "
                    "times world size, but has ",
                    input.numel(), " elements for an output of ", output.numel(), " on ", size_,
                    " ranks");
  Task task = task_of("reduce_scatter", OpType::_REDUCE_SCATTER_BASE, TUTTI_REDUCE_SCATTER);
  set_reduction(op, input, "reduce_scatter", task.request);
  set_memory(input_of(input), output_of(output, task), {output}, task);
  return task;
}

Future Backend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                     const c10d::ReduceScatterOptions& options) {
  return make(reduce_scatter_of(output, input, options.reduceOp), options.timeout, options.asyncOp);
}

Future Backend::reduce_scatter(Tensors& outputs, TensorLists& inputs,
                               const c10d::ReduceScatterOptions& options) {
  const at::Tensor& output = only(outputs, "reduce_scatter");
  TORCH_CHECK_VALUE(inputs.size() == 1, "tutti: reduce_scatter takes one list of inputs");
  const Tensors& blocks = inputs.front();
  check_count(blocks, size_, "reduce_scatter");
  check_tensor(output, "reduce_scatter");

  TORCH_CHECK_VALUE(blocks[static_cast<size_t>(rank_)].numel() == output.numel(),
                    "tutti: reduce_scatter: this rank's block has ",
                    blocks[static_cast<size_t>(rank_)].numel(), " elements, its output ",
                    output.numel());
  const at::Tensor whole = joined(blocks, "reduce_scatter");
  // Block sizes may differ between ranks.
  std::vector<uint64_t> counts = counts_of(blocks);
  if (all_equal(counts)) {
    return make(reduce_scatter_of(output, whole, options.reduceOp), options.timeout,
                options.asyncOp);
  }
  Task task = task_of("reduce_scatter", OpType::REDUCE_SCATTER, TUTTI_REDUCE_SCATTER);
  set_reduction(options.reduceOp, whole, "reduce_scatter", task.request);
  task.input_counts = std::move(counts);
  set_memory(whole, output_of(output, task), {output}, task);
  return make(std::move(task), options.timeout, options.asyncOp);
}

Future Backend::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                const c10d::ReduceScatterOptions& options) {
  TORCH_CHECK_VALUE(outputs.size() == inputs.size(), "tutti: reduce_scatter: ", inputs.size(),
                    " inputs for ", outputs.size(), " outputs");
  std::vector<Task> tasks;
  for (size_t i = 0; i < outputs.size(); ++i) {
    tasks.push_back(reduce_scatter_of(outputs[i], inputs[i], options.reduceOp));
  }
  return begin(OpType::COALESCED, tasks, options.timeout);
}

}  // namespace tutti::torch_backend

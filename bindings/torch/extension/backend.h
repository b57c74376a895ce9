// The c10d::Backend. In torch, old and new names of a method forward to each other. torch 2.10 to
// 2.15 all have the old names, so this class overrides the old names.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "call.h"
#include "connection.h"
#include "work.h"

namespace tutti::torch_backend {

using Tensors = std::vector<at::Tensor>;
using TensorLists = std::vector<Tensors>;
using Future = c10::intrusive_ptr<c10d::Work>;

class Backend final : public c10d::Backend {
 public:
  // Creates the backend. `store`: the store of the process group. Ranks are numbered as in
  // `connection`.
  Backend(std::shared_ptr<Connection> connection, c10::intrusive_ptr<c10d::Store> store, int rank,
          int size, std::chrono::milliseconds timeout);

  const std::string getBackendName() const override { return "tutti"; }
  c10::intrusive_ptr<Options> getBackendOptions() override;
  void setTimeout(std::chrono::milliseconds timeout) override { timeout_ = timeout; }
  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override { return collectives_; }

  // ---- groups (backend.cc) ----
  bool supportsSplitting() const override { return true; }
  // Creates a process group of some ranks of this one. Only those ranks call it.
  c10::intrusive_ptr<c10d::Backend> split(const c10::intrusive_ptr<c10d::Store>& store,
                                          const std::vector<int>& ranks,
                                          const c10::intrusive_ptr<Options>& options) override;
  c10::intrusive_ptr<c10d::Backend> merge(const c10::intrusive_ptr<c10d::Store>& store,
                                          const c10::intrusive_ptr<Options>& options,
                                          const int& rank, const int& size) override;
  void abort() override;
  void shutdown() override { connection_->close(); }
  bool supportsTensorAlloc(c10::DeviceIndex device) override { return true; }
  at::Tensor allocateTensor(long size, at::TensorOptions options) override;
  bool closed() const { return connection_->closed(); }

  // ---- reductions.cc ----
  Future allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  Future allreduce_coalesced(Tensors& tensors,
                             const c10d::AllreduceCoalescedOptions& options) override;
  Future allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  Future reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  Future reduce_scatter(Tensors& outputs, TensorLists& inputs,
                        const c10d::ReduceScatterOptions& options) override;
  Future _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                              const c10d::ReduceScatterOptions& options) override;
  Future reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                         const c10d::ReduceScatterOptions& options) override;

  // ---- movements.cc ----
  Future broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  Future allgather(TensorLists& outputs, Tensors& inputs,
                   const c10d::AllgatherOptions& options) override;
  Future _allgather_base(at::Tensor& output, at::Tensor& input,
                         const c10d::AllgatherOptions& options) override;
  Future allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                             const c10d::AllgatherOptions& options) override;
  Future allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                         const c10d::AllgatherOptions& options) override;
  Future gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& options) override;
  Future scatter(Tensors& outputs, TensorLists& inputs,
                 const c10d::ScatterOptions& options) override;
  Future alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                       std::vector<int64_t>& input_splits,
                       const c10d::AllToAllOptions& options) override;
  Future alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override;

  // ---- messages.cc ----
  Future send(Tensors& tensors, int to, int tag) override;
  Future recv(Tensors& tensors, int from, int tag) override;
  Future recvAnysource(Tensors& tensors, int tag) override;
  Future barrier(const c10d::BarrierOptions& options) override;
  void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) override;
  bool supportsCoalescing() const override { return true; }
  void startCoalescing() override { coalescing_.emplace(); }
  Future endCoalescing() override;

 private:
  // Starts the call, or runs it on this thread if the caller would wait at once.
  Future make(Task task, std::chrono::milliseconds timeout, bool asynchronous);
  // Starts calls that form one work.
  Future begin(c10d::OpType type, std::span<Task> tasks, std::chrono::milliseconds timeout);
  std::chrono::milliseconds timeout_or_own(std::chrono::milliseconds given) const;
  uint64_t count(const Task& task);

  Task all_reduce_of(const at::Tensor& tensor, const c10d::ReduceOp& op, const char* name) const;
  Task reduce_scatter_of(const at::Tensor& output, const at::Tensor& input,
                         const c10d::ReduceOp& op) const;
  Task all_gather_of(const at::Tensor& output, const at::Tensor& input) const;
  Task all_gather_of(const Tensors& outputs, const at::Tensor& input) const;
  Task receive_of(Tensors& tensors, int from, int tag) const;

  const std::shared_ptr<Connection> connection_;
  const c10::intrusive_ptr<c10d::Store> store_;
  std::atomic<std::chrono::milliseconds> timeout_;
  std::atomic<uint64_t> collectives_{0};  // number of started collectives, equal on all ranks
  uint64_t monitored_barriers_ = 0;
  // Calls started between startCoalescing() and endCoalescing(), which one thread calls; nullopt at
  // other times.
  std::optional<std::vector<std::shared_ptr<Call>>> coalescing_;
};

// ---- layouts.cc: tasks on tensors, as one block of memory each ----

Task task_of(const char* name, c10d::OpType type, tutti_collective_t collective);
// Sets the input and the output of a task; both must be contiguous. `result`: the tensors that
// result() of the torch work returns.
void set_memory(const at::Tensor& input, const at::Tensor& output, Tensors result, Task& task);
// Returns the element counts of the tensors, in the library's dtypes.
std::vector<uint64_t> counts_of(const Tensors& tensors);
bool all_equal(const std::vector<uint64_t>& counts);

// Returns `tensor` itself if it is contiguous, otherwise a contiguous copy.
at::Tensor input_of(const at::Tensor& tensor);
// Returns `tensor` itself if the library can write to its memory; otherwise a new tensor, which
// task.unpack copies into it.
at::Tensor output_of(const at::Tensor& tensor, Task& task);
// Returns the concatenation of a list of tensors.
at::Tensor joined(const Tensors& tensors, const char* call);
// Returns a new tensor, which task.unpack splits into the tensors of the list.
at::Tensor to_be_cut(const Tensors& tensors, Task& task);
// Throws unless all tensors of the list have the dtype and size of `like`.
void check_alike(const Tensors& tensors, const at::Tensor& like, const char* call);
void check_count(const Tensors& tensors, int size, const char* call);
void check_root(int64_t root, int size, const char* call);

}  // namespace tutti::torch_backend

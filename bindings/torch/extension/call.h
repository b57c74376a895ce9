// A library call of a process group: its operands, its state, and the actions on its completion.
#pragma once

#include <ATen/core/ivalue.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>
#include <vector>

#include "pending_call.h"
#include "tutti.h"

namespace tutti::torch_backend {

// A call that has not been made yet.
struct Task {
  const char* name = "";  // "all_reduce"
  c10d::OpType type = c10d::OpType::UNKNOWN;
  tutti_request_t request = TUTTI_REQUEST_INIT;
  int tag = 0;
  std::chrono::milliseconds timeout{0};
  // Storage of the request's pointers; kept until the call has ended.
  std::vector<at::Tensor> tensors;
  std::vector<uint64_t> input_counts;   // for uneven blocks, else empty
  std::vector<uint64_t> output_counts;  // for uneven blocks, else empty
  std::vector<at::Tensor> inputs;       // tensors whose shapes a profiler shows
  std::vector<at::Tensor> outputs;      // returned by the work's result()
  std::function<void()> unpack;         // called once the request is complete; may be empty
  // The profiler's record of the call, shared by all calls of one work. The record ends when the
  // last of these calls ends.
  std::shared_ptr<void> event;
};

class Call final : public PendingCall {
 public:
  // Runs the call to completion on the caller's thread. Throws the call's error.
  static void run(Connection& connection, Task task);
  // Starts the call.
  static std::shared_ptr<Call> start(std::shared_ptr<Connection> connection, Task task);
  Call(std::shared_ptr<Connection> connection, Task task)
      : PendingCall(std::move(connection), task.name), task_(std::move(task)) {}

  const Task& task() const { return task_; }
  // Returns a future of the call. It is completed by a thread on which callbacks may block.
  c10::intrusive_ptr<c10::ivalue::Future> future();

 private:
  void unpack() override;
  void ending() override;
  void settle() override;
  void complete(c10::ivalue::Future& future) const;

  Task task_;
  // The following members are guarded by mutex_.
  c10::intrusive_ptr<c10::ivalue::Future> future_;
  bool asked_before_end_ = false;
};

}  // namespace tutti::torch_backend

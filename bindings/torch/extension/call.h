// One call of the library's for a process group: what it works on, how far it is, what follows it.
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

// What is to be done.
struct Task {
  const char* name = "";  // "all_reduce"
  c10d::OpType type = c10d::OpType::UNKNOWN;
  tutti_request_t request = TUTTI_REQUEST_INIT;
  int tag = 0;
  std::chrono::milliseconds timeout{0};
  // What the request points to; kept until the call has ended.
  std::vector<at::Tensor> tensors;
  std::vector<uint64_t> input_counts;   // of uneven blocks, else empty
  std::vector<uint64_t> output_counts;  // likewise
  std::vector<at::Tensor> inputs;       // those whose shapes a profiler shows
  std::vector<at::Tensor> outputs;      // what the work's result() is
  std::function<void()> unpack;         // once the request is complete; may be empty
  // What a profiler shows of the call, and of others that share it: ends with the last of them.
  std::shared_ptr<void> event;
};

class Call final : public PendingCall {
 public:
  // Runs on the caller's thread, to its end. Throws what went wrong.
  static void run(Connection& connection, Task task);
  // Begins.
  static std::shared_ptr<Call> start(std::shared_ptr<Connection> connection, Task task);
  Call(std::shared_ptr<Connection> connection, Task task)
      : PendingCall(std::move(connection), task.name), task_(std::move(task)) {}

  const Task& task() const { return task_; }
  // Completed by a thread where callbacks may wait.
  c10::intrusive_ptr<c10::ivalue::Future> future();

 private:
  void unpack() override;
  void ending() override;
  void settle() override;
  void complete(c10::ivalue::Future& future) const;

  Task task_;
  // Guarded by mutex_, as is what follows.
  c10::intrusive_ptr<c10::ivalue::Future> future_;
  bool asked_before_end_ = false;
};

}  // namespace tutti::torch_backend

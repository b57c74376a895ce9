// One call of the library's for a process group: what it works on, how far it is, what follows it.
#pragma once

#include <ATen/core/ivalue.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "connection.h"
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

class Call final : public Driven, public std::enable_shared_from_this<Call> {
 public:
  // Runs on the caller's thread, to its end. Throws what went wrong.
  static void run(Connection& connection, Task task);
  // Begins.
  static std::shared_ptr<Call> start(std::shared_ptr<Connection> connection, Task task);
  Call(std::shared_ptr<Connection> connection, Task task);
  ~Call() override;

  const Connection* connection() const override { return connection_.get(); }
  bool ended() const override;
  void drive() override;
  void let_go(const std::string& reason) override;

  // True once it has ended, false when `timeout` (none: 0) passed first. Throws nothing of the
  // call's.
  bool wait(std::chrono::milliseconds timeout);
  std::exception_ptr error() const;
  void abort(const std::string& reason);
  int source();  // of a receive that is complete
  const Task& task() const { return task_; }
  // Completed by a thread where callbacks may wait.
  c10::intrusive_ptr<c10::ivalue::Future> future();

 private:
  static void on_end(tutti_status_t status, const char* text, void* context);
  void end(std::exception_ptr error);
  void settle(const c10::intrusive_ptr<c10::ivalue::Future>& future) const;

  const std::shared_ptr<Connection> connection_;
  Task task_;

  std::mutex driving_;  // who holds it uses work_
  tutti_work_t* work_ = nullptr;
  int source_ = -1;  // guarded by driving_

  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  bool ended_ = false;
  std::exception_ptr error_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

}  // namespace tutti::torch_backend

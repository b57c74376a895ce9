// The c10d::Work of a call.
#pragma once

#include <memory>
#include <span>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>
#include <vector>

#include "call.h"

namespace tutti::torch_backend {

// One or more calls that were started together. The work is complete when all calls are complete,
// and has failed when one call has failed.
class Work final : public c10d::Work {
 public:
  // Creates the work of tasks that are started or run afterwards. Their profiler record begins
  // here.
  Work(int rank, c10d::OpType type, std::span<Task> tasks);
  // Creates the work of calls that were already started.
  Work(int rank, c10d::OpType type, std::vector<std::shared_ptr<Call>> calls);

  void add(std::shared_ptr<Call> call) { calls_.push_back(std::move(call)); }

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  int sourceRank() const override;
  std::vector<at::Tensor> result() override;
  void synchronize() override { wait(); }
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void abort() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  uint64_t getSequencenumber() const override { return sequence; }

  uint64_t sequence = 0;

 private:
  std::vector<std::shared_ptr<Call>> calls_;  // except calls that were run synchronously
  const std::vector<at::Tensor> outputs_;
};

}  // namespace tutti::torch_backend

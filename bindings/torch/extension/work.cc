#include "work.h"

#include <ATen/core/jit_type.h>
#include <ATen/record_function.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace tutti::torch_backend {

namespace {

std::vector<at::Tensor> outputs_of(const std::vector<std::shared_ptr<Call>>& calls) {
  std::vector<at::Tensor> outputs;
  for (const auto& call : calls) {
    outputs.insert(outputs.end(), call->task().outputs.begin(), call->task().outputs.end());
  }
  return outputs;
}

std::vector<at::Tensor> joined(std::span<const Task> tasks, std::vector<at::Tensor> Task::*list) {
  std::vector<at::Tensor> all;
  for (const Task& task : tasks) all.insert(all.end(), (task.*list).begin(), (task.*list).end());
  return all;
}

bool profiled(std::span<const Task> tasks) { return !tasks.empty() && at::hasCallbacks(); }

// Returns "tutti:all_reduce", with static lifetime; null if no profiler is active.
const char* title_of(std::span<const Task> tasks) {
  if (!profiled(tasks)) return nullptr;
  static std::mutex mutex;
  static std::map<std::string_view, std::string> titles;  // keyed by names, which are literals
  const std::string_view name = tasks.front().name;
  const std::lock_guard lock(mutex);
  return titles.try_emplace(name, "tutti:" + std::string(name)).first->second.c_str();
}

std::optional<std::vector<at::Tensor>> inputs_of(std::span<const Task> tasks) {
  if (!profiled(tasks)) return std::nullopt;
  return joined(tasks, &Task::inputs);
}

}  // namespace

Work::Work(int rank, c10d::OpType type, std::span<Task> tasks)
    : c10d::Work(rank, type, title_of(tasks), inputs_of(tasks)),
      outputs_(joined(tasks, &Task::outputs)) {
  if (!recordFunctionEndCallback_) return;
  const std::shared_ptr<void> event(
      nullptr, [end = std::exchange(recordFunctionEndCallback_, nullptr)](void*) { end(); });
  for (Task& task : tasks) task.event = event;
}

Work::Work(int rank, c10d::OpType type, std::vector<std::shared_ptr<Call>> calls)
    : c10d::Work(rank, type), calls_(std::move(calls)), outputs_(outputs_of(calls_)) {}

bool Work::isCompleted() {
  return std::all_of(calls_.begin(), calls_.end(), [](const auto& call) { return call->ended(); });
}

bool Work::isSuccess() const { return exception() == nullptr; }

std::exception_ptr Work::exception() const {
  for (const auto& call : calls_) {
    if (const std::exception_ptr error = call->error()) return error;
  }
  return nullptr;
}

int Work::sourceRank() const {
  TORCH_CHECK(calls_.size() == 1 && opType_ != c10d::OpType::SEND,
              "tutti: only the work of one receive has a source rank");
  return calls_.front()->source();
}

std::vector<at::Tensor> Work::result() {
  TORCH_CHECK(isCompleted(),
              "Work needs to be completed before calling result(). Should call "
              "wait() before result().");
  return outputs_;
}

bool Work::wait(std::chrono::milliseconds timeout) {
  for (const auto& call : calls_) {
    TORCH_CHECK_WITH(DistBackendError, call->wait(timeout), "tutti: ", call->task().name,
                     " timed out: it is not complete after ", timeout.count(), " ms");
    if (const std::exception_ptr error = call->error()) std::rethrow_exception(error);
  }
  return true;
}

void Work::abort() {
  for (const auto& call : calls_) call->abort("Work.abort()");
}

c10::intrusive_ptr<c10::ivalue::Future> Work::getFuture() {
  if (calls_.size() == 1) return calls_.front()->future();
  const auto type = c10::ListType::create(c10::TensorType::get());
  const auto all = c10::make_intrusive<c10::ivalue::Future>(type);
  if (calls_.empty()) {
    all->markCompleted(at::IValue(outputs_));
    return all;
  }
  const auto left = std::make_shared<std::atomic<size_t>>(calls_.size());
  for (const auto& call : calls_) {
    call->future()->addCallback([all, left, outputs = outputs_](c10::ivalue::Future& one) {
      if (one.hasError()) all->setErrorIfNeeded(one.exception_ptr());
      if (left->fetch_sub(1) == 1 && !all->completed()) all->markCompleted(at::IValue(outputs));
    });
  }
  return all;
}

}  // namespace tutti::torch_backend

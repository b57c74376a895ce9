#include "call.h"

#include <ATen/core/grad_mode.h>
#include <ATen/core/jit_type.h>

#include <utility>

#include "callback_pool.h"
#include "errors.h"

namespace tutti::torch_backend {

namespace {

tutti_call_options_t options_of(const Task& task) {
  tutti_call_options_t options = TUTTI_CALL_OPTIONS_INIT;
  options.timeout = std::chrono::duration<double>(task.timeout).count();
  options.tag = task.tag;
  return options;
}

// Returns the request. The vectors have moved with the task, so its pointers are set again.
const tutti_request_t* request_of(Task& task) {
  task.request.uneven = !task.input_counts.empty() || !task.output_counts.empty();
  if (!task.input_counts.empty()) task.request.input_counts = task.input_counts.data();
  if (!task.output_counts.empty()) task.request.output_counts = task.output_counts.data();
  return &task.request;
}

void unpack_now(const Task& task) {
  if (!task.unpack) return;
  const at::NoGradGuard no_gradients;
  task.unpack();
}

}  // namespace

void Call::run(Connection& connection, Task task) {
  {
    const UseGate::Use inside = connection.use(task.name);
    const Driver::Rest rest(connection.driver());
    const tutti_call_options_t options = options_of(task);
    check(tutti_run(connection.comm(), request_of(task), &options), task.name);
  }
  unpack_now(task);
}

std::shared_ptr<Call> Call::start(std::shared_ptr<Connection> connection, Task task) {
  auto call = std::make_shared<Call>(std::move(connection), std::move(task));
  const tutti_call_options_t options = options_of(call->task_);
  call->begin(*request_of(call->task_), options);
  return call;
}

void Call::unpack() { unpack_now(task_); }

void Call::ending() {
  task_.event.reset();  // before any other thread may read the profile
  asked_before_end_ = future_ != nullptr;
}

void Call::settle() {
  if (!asked_before_end_) return;
  CallbackPool::instance().run([call = shared_from_this(), this] { complete(*future_); });
}

c10::intrusive_ptr<c10::ivalue::Future> Call::future() {
  std::unique_lock lock(mutex_);
  if (future_) return future_;
  future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
  const auto future = future_;
  const bool ended = ended_;
  lock.unlock();
  if (ended) complete(*future);
  return future;
}

void Call::complete(c10::ivalue::Future& future) const {
  if (const std::exception_ptr error = this->error()) return future.setError(error);
  future.markCompleted(at::IValue(task_.outputs));
}

}  // namespace tutti::torch_backend

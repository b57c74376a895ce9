#include "call.h"

#include <ATen/core/grad_mode.h>
#include <ATen/core/jit_type.h>
#include <c10/util/Exception.h>

#include <utility>

#include "crew.h"

namespace tutti::torch_backend {

namespace {

// The longest that a thread stays in the library without a look at whether it should.
constexpr std::chrono::milliseconds kSlice{20};

tutti_call_options_t options_of(const Task& task) {
  tutti_call_options_t options = TUTTI_CALL_OPTIONS_INIT;
  options.timeout = std::chrono::duration<double>(task.timeout).count();
  options.tag = task.tag;
  return options;
}

// The vectors have moved with the task: point to where they are now.
const tutti_request_t* request_of(Task& task) {
  task.request.uneven = !task.input_counts.empty() || !task.output_counts.empty();
  if (!task.input_counts.empty()) task.request.input_counts = task.input_counts.data();
  if (!task.output_counts.empty()) task.request.output_counts = task.output_counts.data();
  return &task.request;
}

void unpack(const Task& task) {
  if (!task.unpack) return;
  const at::NoGradGuard no_gradients;
  task.unpack();
}

}  // namespace

void Call::run(Connection& connection, Task task) {
  {
    const Connection::Use use(connection);
    const Driver::Rest rest(connection.driver());
    const tutti_call_options_t options = options_of(task);
    check(tutti_run(use.comm(), request_of(task), &options), task.name);
  }
  unpack(task);
}

std::shared_ptr<Call> Call::start(std::shared_ptr<Connection> connection, Task task) {
  Driver& driver = connection->driver();
  auto call = std::make_shared<Call>(std::move(connection), std::move(task));
  {
    const std::lock_guard driving(call->driving_);
    const Connection::Use use(*call->connection_);
    const tutti_call_options_t options = options_of(call->task_);
    check(tutti_start(use.comm(), request_of(call->task_), &options, &call->work_),
          call->task_.name);
    // The library holds the call until it has ended, whoever else lets go of it.
    auto kept = std::make_unique<std::shared_ptr<Call>>(call);
    check(tutti_work_on_end(call->work_, on_end, kept.get()), call->task_.name);
    kept.release();  // NOLINT(bugprone-unused-return-value): on_end() deletes it
  }
  driver.add(call);
  return call;
}

Call::Call(std::shared_ptr<Connection> connection, Task task)
    : connection_(std::move(connection)), task_(std::move(task)) {}

Call::~Call() { tutti_work_free(work_); }

void Call::on_end(tutti_status_t status, const char* text, void* context) {
  const std::unique_ptr<std::shared_ptr<Call>> kept(static_cast<std::shared_ptr<Call>*>(context));
  Call& call = **kept;
  std::exception_ptr error;
  if (status != TUTTI_OK) {
    error = error_of(status, text, call.task_.name);
  } else {
    try {
      unpack(call.task_);
    } catch (...) {
      error = std::current_exception();
    }
  }
  call.end(error);
}

void Call::end(std::exception_ptr error) {
  c10::intrusive_ptr<c10::ivalue::Future> future;
  {
    const std::lock_guard lock(mutex_);
    if (ended_) return;
    task_.event.reset();  // before anybody may look at the profile
    ended_ = true;
    error_ = std::move(error);
    future = future_;
    changed_.notify_all();
  }
  if (future) Crew::instance().run([call = shared_from_this(), future] { call->settle(future); });
}

bool Call::ended() const {
  const std::lock_guard lock(mutex_);
  return ended_;
}

std::exception_ptr Call::error() const {
  const std::lock_guard lock(mutex_);
  return error_;
}

void Call::drive() {
  const std::unique_lock driving(driving_, std::try_to_lock);
  if (!driving || connection_->closed()) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::milliseconds(1), [this] { return ended_; });
    return;
  }
  const Connection::Use use(*connection_);
  int done = 0;
  // How it ended is what on_end() is told.
  tutti_wait_for(work_, std::chrono::duration<double>(kSlice).count(), &done);
}

bool Call::wait(std::chrono::milliseconds timeout) {
  if (ended()) return true;
  const bool endless = timeout.count() == 0;
  const auto late = std::chrono::steady_clock::now() + timeout;
  const Driver::Rest rest(connection_->driver());
  while (!ended()) {
    if (!endless && std::chrono::steady_clock::now() >= late) return false;
    drive();
  }
  return true;
}

void Call::let_go(const std::string& reason) {
  {
    const std::lock_guard driving(driving_);
    tutti_work_free(std::exchange(work_, nullptr));
  }
  end(std::make_exception_ptr(
      c10::DistBackendError({}, std::string("tutti: ") + task_.name + ": " + reason)));
}

void Call::abort(const std::string& reason) { connection_->abort(reason); }

int Call::source() {
  const std::lock_guard driving(driving_);
  if (source_ < 0 && work_ != nullptr) {
    tutti_message_t message = TUTTI_MESSAGE_INIT;
    message.size = sizeof message;
    check(tutti_work_message(work_, &message), task_.name);
    source_ = message.source;
  }
  return source_;
}

c10::intrusive_ptr<c10::ivalue::Future> Call::future() {
  std::unique_lock lock(mutex_);
  if (future_) return future_;
  future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
  const auto future = future_;
  const bool ended = ended_;
  lock.unlock();
  if (ended) settle(future);
  return future;
}

void Call::settle(const c10::intrusive_ptr<c10::ivalue::Future>& future) const {
  if (const std::exception_ptr error = this->error()) return future->setError(error);
  future->markCompleted(at::IValue(task_.outputs));
}

}  // namespace tutti::torch_backend

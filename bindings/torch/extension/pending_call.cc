#include "pending_call.h"

#include <utility>

#include "errors.h"

namespace tutti::torch_backend {

namespace {

// Maximum time that a thread waits in the library before it checks again if it must return.
constexpr std::chrono::milliseconds kSlice{20};

}  // namespace

void PendingCall::begin(const tutti_request_t& request, const tutti_call_options_t& options) {
  const UseGate::Use inside = connection_->use(name_);
  {
    const std::lock_guard driving(driving_);
    receives_ = request.collective == TUTTI_RECV;
    check(tutti_start(connection_->comm(), &request, &options, &work_), name_);
    // This reference keeps the call alive until it has ended, even if all other references are
    // released.
    auto kept = std::make_unique<std::shared_ptr<PendingCall>>(shared_from_this());
    check(tutti_work_on_end(work_, on_end, kept.get()), name_);
    kept.release();  // NOLINT(bugprone-unused-return-value): on_end() deletes it
  }
  // The call is added while the use lasts, so that a connection that is being closed finds each
  // call with a handle.
  connection_->driver().add(shared_from_this());
}

void PendingCall::on_end(tutti_status_t status, const char* text, void* context) {
  const std::unique_ptr<std::shared_ptr<PendingCall>> kept(
      static_cast<std::shared_ptr<PendingCall>*>(context));
  PendingCall& call = **kept;
  std::exception_ptr error;
  if (status != TUTTI_OK) {
    error = error_of(status, text, call.name_);
  } else {
    try {
      call.unpack();
    } catch (...) {
      error = std::current_exception();
    }
  }
  call.end(error);
}

void PendingCall::end(std::exception_ptr error) {
  {
    const std::lock_guard lock(mutex_);
    if (ended_) return;
    ending();
    ended_ = true;
    error_ = std::move(error);
    changed_.notify_all();
  }
  settle();
}

bool PendingCall::ended() const {
  const std::lock_guard lock(mutex_);
  return ended_;
}

std::exception_ptr PendingCall::error() const {
  const std::lock_guard lock(mutex_);
  return error_;
}

void PendingCall::drive() {
  const std::unique_lock driving(driving_, std::try_to_lock);
  const UseGate::Use inside = driving ? connection_->try_use() : UseGate::Use();
  if (!inside) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::milliseconds(1), [this] { return ended_; });
    return;
  }
  if (work_ == nullptr) return;  // the call has ended meanwhile
  int done = 0;
  // The outcome is ignored, because on_end() receives it.
  tutti_wait_for(work_, std::chrono::duration<double>(kSlice).count(), &done);
  if (ended()) give_back();
}

// Frees the work of an ended call, with driving_ held. Works must be freed before their
// communicator.
void PendingCall::give_back() {
  if (work_ == nullptr) return;
  tutti_message_t message = TUTTI_MESSAGE_INIT;
  if (receives_ && tutti_work_message(work_, &message) == TUTTI_OK) source_ = message.source;
  tutti_work_free(std::exchange(work_, nullptr));
}

bool PendingCall::wait(std::chrono::milliseconds timeout) {
  if (!ended()) {
    const bool endless = timeout.count() == 0;
    const auto late = std::chrono::steady_clock::now() + timeout;
    const Driver::Rest rest(connection_->driver());
    while (!ended()) {
      if (!endless && std::chrono::steady_clock::now() >= late) return false;
      drive();
    }
  }
  const std::lock_guard driving(driving_);
  give_back();
  return true;
}

void PendingCall::let_go(const std::string& reason) {
  {
    const std::lock_guard driving(driving_);
    tutti_work_free(std::exchange(work_, nullptr));
  }
  end(error_of(TUTTI_ABORTED, reason, name_));
}

int PendingCall::source() {
  const std::lock_guard driving(driving_);
  if (ended()) give_back();
  return source_;
}

}  // namespace tutti::torch_backend

#include "bindings/python/extension/work.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

#include "bindings/python/extension/errors.h"
#include "bindings/python/extension/signals.h"

namespace tutti::python {

namespace nb = nanobind;

Work::Work(nb::handle communicator, Calls::iterator call, nb::handle result, bool receives)
    : owner_(nb::borrow(communicator)),
      communicator_(nb::inst_ptr<Communicator>(communicator)),
      call_(call),
      result_(nb::borrow(result)),
      receives_(receives) {}

Work::Work(Work&& other) noexcept
    : owner_(std::move(other.owner_)),
      communicator_(std::exchange(other.communicator_, nullptr)),
      call_(other.call_),
      result_(std::move(other.result_)),
      receives_(other.receives_),
      complete_(other.complete_),
      failure_(std::move(other.failure_)),
      message_(other.message_) {}

Work::~Work() {
  if (communicator_ != nullptr && !complete_ && !communicator_->closed()) {
    communicator_->abandon(call_);
  }
}

template <typename Function>
void Work::advance(Function function) {
  if (complete_) return;
  communicator_->handle();  // raises if the communicator is closed
  if (entered_) {
    raise(TUTTI_INVALID_ARGUMENT,
          "another thread waits for this call: only one may wait at a time");
  }
  int done = 0;
  tutti_status_t status = TUTTI_OK;
  {
    const Communicator::Visit visit(*communicator_);
    entered_ = true;
    const nb::gil_scoped_release without_gil;
    status = function(call_->work, &done);
  }
  entered_ = false;
  if (status != TUTTI_OK) failure_ = last_failure(status);
  if (done != 0 || status != TUTTI_OK) end(status);
}

bool Work::ended() const {
  if (failure_) raise(*failure_);
  return complete_;
}

void Work::end(tutti_status_t status) {
  if (receives_ && status == TUTTI_OK) tutti_work_message(call_->work, &message_);
  complete_ = true;
  // A communicator that is being closed ends its calls itself.
  if (!communicator_->closed()) communicator_->end(call_);
}

// Waits in pieces, so that signals are handled and the communicator can be closed meanwhile.
bool Work::wait_for(double seconds) {
  constexpr double kPiece = std::chrono::duration<double>(kBetweenSignals).count();
  if (!(seconds >= 0)) raise(TUTTI_INVALID_ARGUMENT, "the timeout of a wait must not be negative");
  for (double left = seconds;; left -= kPiece) {
    const double piece = std::min(left, kPiece);
    advance([piece](tutti_work_t* work, int* done) { return tutti_wait_for(work, piece, done); });
    if (ended()) return true;
    if (left <= kPiece) return false;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  }
}

bool Work::test() {
  advance(tutti_test);
  return ended();
}

nb::object Work::wait() {
  wait_for(std::numeric_limits<double>::infinity());
  return result_;
}

nb::object Work::finish() {
  try {
    return wait();
  } catch (nb::python_error&) {
    if (!complete_ && !communicator_->closed()) {
      tutti_work_abort(call_->work, "a call was interrupted");
      advance([](tutti_work_t* work, int*) { return tutti_wait(work); });
    }
    throw;
  }
}

void Work::abort(const std::string& reason) {
  if (complete_) return;
  communicator_->handle();
  check(tutti_work_abort(call_->work, reason.c_str()));
}

const tutti_message_t& Work::message() const {
  if (!receives_ || !complete_ || failure_) {
    raise(TUTTI_INVALID_ARGUMENT, "no message: only completed receives have one");
  }
  return message_;
}

}  // namespace tutti::python

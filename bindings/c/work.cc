// The C interface on top of Communicator: calls in flight, and messages.
#include <memory>
#include <utility>

#include "bindings/c/handles.h"
#include "bindings/c/tutti.h"
#include "collectives/group.h"

// NOLINTBEGIN(readability-identifier-naming): C names
using tutti::c::buffer_from;
using tutti::c::checked;
using tutti::c::checked_message;
using tutti::c::fill_message;
using tutti::c::guarded;
using tutti::c::invalid;
using tutti::c::of;
using tutti::c::options_of;

// ---- messages ----

tutti_status_t tutti_recv_message(tutti_comm_t* comm, tutti_buffer_t buffer, int32_t from,
                                  const tutti_call_options_t* options, tutti_message_t* message) {
  return guarded([&] {
    tutti_message_t& result = checked_message(message);
    if (tutti::internal::in_group()) {
      invalid(
          "tutti_recv_message() is not available between tutti_group_begin() and "
          "tutti_group_end(): use tutti_recv_async() and, after the group, tutti_work_message()");
    }
    fill_message(of(comm).recv(buffer_from(buffer), from, options_of(options)), result);
  });
}

tutti_status_t tutti_probe(tutti_comm_t* comm, int32_t from, int32_t tag,
                           tutti_message_t* message) {
  return guarded([&] {
    tutti_message_t& result = checked_message(message);
    fill_message(of(comm).await_message(from, tag), result);
  });
}

tutti_status_t tutti_probe_now(tutti_comm_t* comm, int32_t from, int32_t tag, int* found,
                               tutti_message_t* message) {
  return guarded([&] {
    checked(found, "the output pointer for the answer") = 0;
    tutti_message_t& result = checked_message(message);
    if (const auto there = of(comm).probe(from, tag)) {
      fill_message(*there, result);
      *found = 1;
    }
  });
}

// ---- work ----

tutti_status_t tutti_wait(tutti_work_t* work) {
  return guarded([&] { checked(work, "the work").work.wait(); });
}

tutti_status_t tutti_test(tutti_work_t* work, int* done) {
  return guarded([&] {
    checked(done, "the output pointer for the answer") = 0;
    *done = checked(work, "the work").work.test() ? 1 : 0;
  });
}

tutti_status_t tutti_wait_for(tutti_work_t* work, double seconds, int* done) {
  return guarded([&] {
    checked(done, "the output pointer for the answer") = 0;
    const auto time = tutti::c::nanoseconds_of(seconds);
    *done = checked(work, "the work").work.wait_for(time) ? 1 : 0;
  });
}

tutti_status_t tutti_work_on_end(tutti_work_t* work, tutti_end_function_t callback, void* context) {
  return guarded([&] {
    if (callback == nullptr) invalid("the callback is NULL");
    checked(work, "the work").work.on_end([callback, context](const tutti::Error* error) {
      if (error == nullptr) return callback(TUTTI_OK, "", context);
      // The callback may run on any thread, so that thread's last error is preserved.
      tutti::c::LastError of_thread = std::exchange(tutti::c::last_error(), {});
      const tutti_status_t status = tutti::c::failed(error->code(), error->what(), error->rank());
      callback(status, error->what(), context);
      tutti::c::last_error() = std::move(of_thread);
    });
  });
}

tutti_status_t tutti_work_message(const tutti_work_t* work, tutti_message_t* message) {
  return guarded([&] {
    tutti_message_t& result = checked_message(message);
    fill_message(checked(work, "the work").work.received(), result);
  });
}

tutti_status_t tutti_work_abort(tutti_work_t* work, const char* reason) {
  return guarded([&] {
    checked(work, "the work").work.abort(reason == nullptr ? "tutti_work_abort()" : reason);
  });
}

void tutti_work_free(tutti_work_t* work) { const std::unique_ptr<tutti_work> owned(work); }
// NOLINTEND(readability-identifier-naming)

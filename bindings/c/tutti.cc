// The C interface on top of Communicator: communicators, and the common calls.
#include "bindings/c/tutti.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "bindings/c/handles.h"

// NOLINTBEGIN(readability-identifier-naming): C names
using tutti::cat;
using tutti::ErrorCode;
using tutti::c::begin;
using tutti::c::buffer_from;
using tutti::c::checked;
using tutti::c::const_buffer_from;
using tutti::c::guarded;
using tutti::c::invalid;
using tutti::c::of;
using tutti::c::op_from;
using tutti::c::options_of;

#define TUTTI_TEXT_OF(x) #x
#define TUTTI_TEXT(x) TUTTI_TEXT_OF(x)

const char* tutti_version(void) {
  return TUTTI_TEXT(TUTTI_VERSION_MAJOR) "." TUTTI_TEXT(TUTTI_VERSION_MINOR) "." TUTTI_TEXT(
      TUTTI_VERSION_PATCH);
}

const char* tutti_error_text(void) { return tutti::c::last_error().text.c_str(); }

int32_t tutti_error_rank(void) { return tutti::c::last_error().rank; }

const char* tutti_error_name(tutti_status_t status) {
  // The name is a literal, so it ends with a zero.
  return tutti::name(static_cast<tutti::ErrorCode>(status)).data();
}

// ---- communicators ----

tutti_status_t tutti_split(tutti_comm_t* comm, int32_t color, int32_t key, tutti_comm_t** result) {
  return guarded([&] {
    checked(result, "the output pointer for the communicator") = nullptr;
    tutti::Communicator part = of(comm).split(color, key);
    if (part.valid()) *result = tutti::c::handle_of(std::move(part));
  });
}

tutti_status_t tutti_shrink(tutti_comm_t* comm, tutti_comm_t** left) {
  return guarded([&] {
    checked(left, "the output pointer for the communicator") = nullptr;
    *left = tutti::c::handle_of(of(comm).shrink());
  });
}

tutti_status_t tutti_grow(tutti_comm_t* comm, int32_t count, tutti_comm_t** grown) {
  return guarded([&] {
    checked(grown, "the output pointer for the communicator") = nullptr;
    *grown = tutti::c::handle_of(of(comm).grow(count));
  });
}

tutti_status_t tutti_agree(tutti_comm_t* comm, uint64_t* flags, int32_t* living, size_t* count) {
  return guarded([&] {
    const uint64_t given = checked(flags, "the flags");
    if (living != nullptr) checked(count, "the output pointer for the number of ranks");
    const tutti::Agreement agreement = of(comm).agree(given);
    *flags = agreement.flags;
    if (count != nullptr) *count = agreement.living.size();
    if (living != nullptr) std::ranges::copy(agreement.living, living);
  });
}

void tutti_destroy(tutti_comm_t* comm) {
  const std::unique_ptr<tutti_comm> owned(comm);
  if (owned == nullptr) return;
  // The calls are ended first, because they may still write to the memory.
  owned->communicator = {};
  owned->allocations.clear();
  owned->registrations.clear();
  owned->windows.clear();
}

tutti_status_t tutti_create(tutti_comm_t* comm, const int32_t* ranks, size_t count, int32_t tag,
                            tutti_comm_t** created) {
  return guarded([&] {
    checked(created, "the output pointer for the communicator") = nullptr;
    if (count > 0) checked(ranks, "the list of ranks");
    // The length is checked before the list is read, because a longer list cannot be valid.
    if (count > static_cast<size_t>(of(comm).size())) {
      invalid(
          cat("a list of ", count, " ranks exceeds the communicator's size of ", of(comm).size()));
    }
    const std::vector<int> members(ranks, ranks + count);
    auto handle = std::make_unique<tutti_comm>();
    handle->communicator = of(comm).create(members, tag);
    *created = handle.release();
  });
}

tutti_status_t tutti_open_queues(tutti_comm_t* comm, int32_t count) {
  static_assert(TUTTI_MOST_QUEUES == tutti::Communicator::kMostQueues);
  return guarded([&] { of(comm).open_queues(count); });
}

tutti_status_t tutti_while_waiting(tutti_comm_t* comm, tutti_hook_t hook, void* context) {
  return guarded([&] {
    if (hook == nullptr) return of(comm).while_waiting({});
    of(comm).while_waiting([hook, context] { hook(context); });
  });
}

tutti_status_t tutti_abort(tutti_comm_t* comm, const char* reason) {
  return guarded([&] { of(comm).abort(reason == nullptr ? "tutti_abort()" : reason); });
}

tutti_status_t tutti_comm_status(const tutti_comm_t* comm) {
  if (comm == nullptr)
    return tutti::c::failed(ErrorCode::invalid_argument, "the communicator is NULL");
  const auto failure = comm->communicator.failure();
  return failure ? static_cast<tutti_status_t>(failure->code()) : TUTTI_OK;
}

int32_t tutti_rank(const tutti_comm_t* comm) {
  return comm == nullptr ? -1 : comm->communicator.rank();
}

int32_t tutti_size(const tutti_comm_t* comm) {
  return comm == nullptr ? -1 : comm->communicator.size();
}

tutti_status_t tutti_alloc(tutti_comm_t* comm, size_t bytes, void** data) {
  return guarded([&] {
    checked(data, "the output pointer for the memory") = nullptr;
    // Allocates at least one byte, so that each allocation has a distinct address.
    tutti::Memory<std::byte> memory = of(comm).allocate<std::byte>(std::max<size_t>(bytes, 1));
    void* const address = memory.get();
    const std::lock_guard lock(comm->mutex);
    comm->allocations[address] = std::move(memory);
    *data = address;
  });
}

tutti_status_t tutti_free(tutti_comm_t* comm, void* data) {
  return guarded([&] {
    of(comm);
    if (data == nullptr) return;
    const std::lock_guard lock(comm->mutex);
    if (comm->allocations.erase(data) == 0) {
      tutti::c::invalid("the memory is not from tutti_alloc() of this communicator");
    }
  });
}

tutti_status_t tutti_register(tutti_comm_t* comm, void* data, size_t bytes) {
  return guarded([&] {
    of(comm);
    const std::lock_guard lock(comm->mutex);
    if (data == nullptr || comm->registrations.contains(data)) {
      tutti::c::invalid(data == nullptr ? "the memory is NULL"
                                        : "the memory is already registered");
    }
    comm->registrations[data] = of(comm).register_memory(data, bytes);
  });
}

tutti_status_t tutti_deregister(tutti_comm_t* comm, void* data) {
  return guarded([&] {
    of(comm);
    const std::lock_guard lock(comm->mutex);
    if (comm->registrations.erase(data) == 0) {
      tutti::c::invalid("the memory is not registered with this communicator");
    }
  });
}

tutti_status_t tutti_alloc_on_device(tutti_comm_t* comm, size_t bytes, void** data) {
  return guarded([&] {
    checked(data, "the output pointer for the memory") = nullptr;
    of(comm);
    auto memory = tutti::Communicator::allocate_on_device<std::byte>(std::max<size_t>(bytes, 1));
    void* const address = memory.get();
    const std::lock_guard lock(comm->mutex);
    comm->allocations[address] = std::move(memory);
    *data = address;
  });
}

tutti_status_t tutti_register_window(tutti_comm_t* comm, void* data, size_t bytes) {
  return guarded([&] {
    tutti::Communicator& communicator = of(comm);
    {
      const std::lock_guard lock(comm->mutex);
      if (comm->windows.contains(data)) tutti::c::invalid("the memory is already a window");
    }
    tutti::Registration window = communicator.register_window(data, bytes);
    const std::lock_guard lock(comm->mutex);
    comm->windows[data] = std::move(window);
  });
}

tutti_status_t tutti_deregister_window(tutti_comm_t* comm, void* data) {
  return guarded([&] {
    of(comm);
    const std::lock_guard lock(comm->mutex);
    if (comm->windows.erase(data) == 0) {
      tutti::c::invalid("the memory is not a window of this communicator");
    }
  });
}

// ---- blocking calls ----

tutti_status_t tutti_all_reduce(tutti_comm_t* comm, tutti_buffer_t input, tutti_buffer_t output,
                                tutti_op_t op, const tutti_call_options_t* options) {
  return guarded([&] {
    of(comm).all_reduce(const_buffer_from(input), buffer_from(output), op_from(op),
                        options_of(options));
  });
}

tutti_status_t tutti_all_gather(tutti_comm_t* comm, tutti_buffer_t input, tutti_buffer_t output,
                                const tutti_call_options_t* options) {
  return guarded([&] {
    of(comm).all_gather(const_buffer_from(input), buffer_from(output), options_of(options));
  });
}

tutti_status_t tutti_reduce_scatter(tutti_comm_t* comm, tutti_buffer_t input, tutti_buffer_t output,
                                    tutti_op_t op, const tutti_call_options_t* options) {
  return guarded([&] {
    of(comm).reduce_scatter(const_buffer_from(input), buffer_from(output), op_from(op),
                            options_of(options));
  });
}

tutti_status_t tutti_broadcast(tutti_comm_t* comm, tutti_buffer_t input, tutti_buffer_t output,
                               int32_t root, const tutti_call_options_t* options) {
  return guarded([&] {
    of(comm).broadcast(const_buffer_from(input), buffer_from(output), root, options_of(options));
  });
}

tutti_status_t tutti_reduce(tutti_comm_t* comm, tutti_buffer_t input, tutti_buffer_t output,
                            tutti_op_t op, int32_t root, const tutti_call_options_t* options) {
  return guarded([&] {
    of(comm).reduce(const_buffer_from(input), buffer_from(output), op_from(op), root,
                    options_of(options));
  });
}

tutti_status_t tutti_gather(tutti_comm_t* comm, tutti_buffer_t input, tutti_buffer_t output,
                            int32_t root, const tutti_call_options_t* options) {
  return guarded([&] {
    of(comm).gather(const_buffer_from(input), buffer_from(output), root, options_of(options));
  });
}

tutti_status_t tutti_scatter(tutti_comm_t* comm, tutti_buffer_t input, tutti_buffer_t output,
                             int32_t root, const tutti_call_options_t* options) {
  return guarded([&] {
    of(comm).scatter(const_buffer_from(input), buffer_from(output), root, options_of(options));
  });
}

tutti_status_t tutti_all_to_all(tutti_comm_t* comm, tutti_buffer_t input, tutti_buffer_t output,
                                const tutti_call_options_t* options) {
  return guarded([&] {
    of(comm).all_to_all(const_buffer_from(input), buffer_from(output), options_of(options));
  });
}

tutti_status_t tutti_scan(tutti_comm_t* comm, tutti_buffer_t input, tutti_buffer_t output,
                          tutti_op_t op, const tutti_call_options_t* options) {
  return guarded([&] {
    of(comm).scan(const_buffer_from(input), buffer_from(output), op_from(op), options_of(options));
  });
}

tutti_status_t tutti_exscan(tutti_comm_t* comm, tutti_buffer_t input, tutti_buffer_t output,
                            tutti_op_t op, const tutti_call_options_t* options) {
  return guarded([&] {
    of(comm).exscan(const_buffer_from(input), buffer_from(output), op_from(op),
                    options_of(options));
  });
}

tutti_status_t tutti_barrier(tutti_comm_t* comm, const tutti_call_options_t* options) {
  return guarded([&] { of(comm).barrier(options_of(options)); });
}

tutti_status_t tutti_send(tutti_comm_t* comm, tutti_buffer_t buffer, int32_t to,
                          const tutti_call_options_t* options) {
  return guarded([&] { of(comm).send(const_buffer_from(buffer), to, options_of(options)); });
}

tutti_status_t tutti_recv(tutti_comm_t* comm, tutti_buffer_t buffer, int32_t from,
                          const tutti_call_options_t* options) {
  return guarded([&] { of(comm).recv(buffer_from(buffer), from, options_of(options)); });
}

// ---- asynchronous calls ----

tutti_status_t tutti_all_reduce_async(tutti_comm_t* comm, tutti_buffer_t input,
                                      tutti_buffer_t output, tutti_op_t op,
                                      const tutti_call_options_t* options, tutti_work_t** work) {
  return begin(work, [&] {
    return of(comm).all_reduce_async(const_buffer_from(input), buffer_from(output), op_from(op),
                                     options_of(options));
  });
}

tutti_status_t tutti_all_gather_async(tutti_comm_t* comm, tutti_buffer_t input,
                                      tutti_buffer_t output, const tutti_call_options_t* options,
                                      tutti_work_t** work) {
  return begin(work, [&] {
    return of(comm).all_gather_async(const_buffer_from(input), buffer_from(output),
                                     options_of(options));
  });
}

tutti_status_t tutti_reduce_scatter_async(tutti_comm_t* comm, tutti_buffer_t input,
                                          tutti_buffer_t output, tutti_op_t op,
                                          const tutti_call_options_t* options,
                                          tutti_work_t** work) {
  return begin(work, [&] {
    return of(comm).reduce_scatter_async(const_buffer_from(input), buffer_from(output), op_from(op),
                                         options_of(options));
  });
}

tutti_status_t tutti_broadcast_async(tutti_comm_t* comm, tutti_buffer_t input,
                                     tutti_buffer_t output, int32_t root,
                                     const tutti_call_options_t* options, tutti_work_t** work) {
  return begin(work, [&] {
    return of(comm).broadcast_async(const_buffer_from(input), buffer_from(output), root,
                                    options_of(options));
  });
}

tutti_status_t tutti_reduce_async(tutti_comm_t* comm, tutti_buffer_t input, tutti_buffer_t output,
                                  tutti_op_t op, int32_t root, const tutti_call_options_t* options,
                                  tutti_work_t** work) {
  return begin(work, [&] {
    return of(comm).reduce_async(const_buffer_from(input), buffer_from(output), op_from(op), root,
                                 options_of(options));
  });
}

tutti_status_t tutti_gather_async(tutti_comm_t* comm, tutti_buffer_t input, tutti_buffer_t output,
                                  int32_t root, const tutti_call_options_t* options,
                                  tutti_work_t** work) {
  return begin(work, [&] {
    return of(comm).gather_async(const_buffer_from(input), buffer_from(output), root,
                                 options_of(options));
  });
}

tutti_status_t tutti_scatter_async(tutti_comm_t* comm, tutti_buffer_t input, tutti_buffer_t output,
                                   int32_t root, const tutti_call_options_t* options,
                                   tutti_work_t** work) {
  return begin(work, [&] {
    return of(comm).scatter_async(const_buffer_from(input), buffer_from(output), root,
                                  options_of(options));
  });
}

tutti_status_t tutti_all_to_all_async(tutti_comm_t* comm, tutti_buffer_t input,
                                      tutti_buffer_t output, const tutti_call_options_t* options,
                                      tutti_work_t** work) {
  return begin(work, [&] {
    return of(comm).all_to_all_async(const_buffer_from(input), buffer_from(output),
                                     options_of(options));
  });
}

tutti_status_t tutti_scan_async(tutti_comm_t* comm, tutti_buffer_t input, tutti_buffer_t output,
                                tutti_op_t op, const tutti_call_options_t* options,
                                tutti_work_t** work) {
  return begin(work, [&] {
    return of(comm).scan_async(const_buffer_from(input), buffer_from(output), op_from(op),
                               options_of(options));
  });
}

tutti_status_t tutti_exscan_async(tutti_comm_t* comm, tutti_buffer_t input, tutti_buffer_t output,
                                  tutti_op_t op, const tutti_call_options_t* options,
                                  tutti_work_t** work) {
  return begin(work, [&] {
    return of(comm).exscan_async(const_buffer_from(input), buffer_from(output), op_from(op),
                                 options_of(options));
  });
}

tutti_status_t tutti_barrier_async(tutti_comm_t* comm, const tutti_call_options_t* options,
                                   tutti_work_t** work) {
  return begin(work, [&] { return of(comm).barrier_async(options_of(options)); });
}

tutti_status_t tutti_send_async(tutti_comm_t* comm, tutti_buffer_t buffer, int32_t to,
                                const tutti_call_options_t* options, tutti_work_t** work) {
  return begin(work, [&] {
    return of(comm).send_async(const_buffer_from(buffer), to, options_of(options));
  });
}

tutti_status_t tutti_recv_async(tutti_comm_t* comm, tutti_buffer_t buffer, int32_t from,
                                const tutti_call_options_t* options, tutti_work_t** work) {
  return begin(work,
               [&] { return of(comm).recv_async(buffer_from(buffer), from, options_of(options)); });
}
// NOLINTEND(readability-identifier-naming)

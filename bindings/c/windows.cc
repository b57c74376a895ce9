#include <memory>
#include <span>
#include <utility>

#include "bindings/c/handles.h"
#include "collectives/one_sided/window.h"

namespace c = tutti::c;

namespace {

tutti::Window& of(tutti_window_t* window) { return c::checked(window, "the window").window; }

tutti::DType dtype_from(tutti_dtype_t dtype) {
  return c::buffer_from({nullptr, 0, dtype, TUTTI_HOST}).dtype;
}

}  // namespace

tutti_status_t tutti_window_create(tutti_comm_t* comm, void* memory, size_t bytes,
                                   const tutti_window_options_t* options, tutti_window_t** window) {
  return c::guarded([&] {
    c::checked(window, "the output pointer for the window") = nullptr;
    const tutti_window_options_t known = c::known_part(options, "tutti_window_options_t");
    const auto members =
        known.members_may_die != 0 ? tutti::Members::may_die : tutti::Members::end_together;
    tutti::Communicator& world = c::of(comm);
    auto handle = std::make_unique<tutti_window>(
        memory == nullptr
            ? tutti::Window::allocate(world, bytes, members)
            : tutti::Window(world, {static_cast<std::byte*>(memory), bytes}, members));
    *window = handle.release();
  });
}

tutti_status_t tutti_window_free(tutti_window_t* window) {
  return c::guarded([&] {
    of(window);
    const std::unique_ptr<tutti_window> handle(window);
    handle->window.free();
  });
}

void tutti_window_destroy(tutti_window_t* window) {
  c::guarded([&] { const std::unique_ptr<tutti_window> handle(window); });
}

tutti_status_t tutti_window_abort(tutti_window_t* window, const char* reason) {
  return c::guarded([&] { of(window).abort(reason != nullptr ? reason : "tutti_window_abort()"); });
}

void* tutti_window_memory(const tutti_window_t* window) {
  return window != nullptr ? window->window.memory().data() : nullptr;
}

uint64_t tutti_window_bytes(const tutti_window_t* window, int32_t rank) {
  if (window == nullptr || rank < 0 || rank >= window->window.size()) return 0;
  return window->window.bytes_of(rank);
}

tutti_status_t tutti_put(tutti_window_t* window, tutti_buffer_t from, int32_t rank,
                         uint64_t offset) {
  return c::guarded([&] { of(window).put(c::const_buffer_from(from), rank, offset); });
}

tutti_status_t tutti_get(tutti_window_t* window, tutti_buffer_t into, int32_t rank,
                         uint64_t offset) {
  return c::guarded([&] { of(window).get(c::buffer_from(into), rank, offset); });
}

tutti_status_t tutti_accumulate(tutti_window_t* window, tutti_buffer_t from, int32_t rank,
                                uint64_t offset, tutti_op_t op) {
  return c::guarded(
      [&] { of(window).accumulate(c::const_buffer_from(from), rank, offset, c::op_from(op)); });
}

tutti_status_t tutti_compare_and_swap(tutti_window_t* window, tutti_dtype_t dtype,
                                      uint64_t expected, uint64_t desired, int32_t rank,
                                      uint64_t offset, uint64_t* found) {
  return c::guarded([&] {
    c::checked(found, "the output pointer for the previous value") =
        of(window).compare_and_swap(dtype_from(dtype), expected, desired, rank, offset);
  });
}

tutti_status_t tutti_signal(tutti_window_t* window, int32_t rank, int32_t slot, uint64_t count) {
  return c::guarded([&] { of(window).signal(rank, slot, count); });
}

tutti_status_t tutti_wait_signal(tutti_window_t* window, int32_t slot, uint64_t count) {
  return c::guarded([&] { of(window).wait_signal(slot, count); });
}

tutti_status_t tutti_flush(tutti_window_t* window, int32_t rank) {
  return c::guarded([&] {
    if (rank == -1) {
      of(window).flush_all();
    } else {
      of(window).flush(rank);
    }
  });
}

tutti_status_t tutti_fence(tutti_window_t* window) {
  return c::guarded([&] { of(window).fence(); });
}

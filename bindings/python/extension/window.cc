#include "bindings/python/extension/window.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "bindings/python/extension/errors.h"
#include "bindings/python/extension/signals.h"

namespace tutti::python {

namespace nb = nanobind;

namespace {

// A window under construction. If an interrupt comes before it has an owner, it is destroyed here.
struct Making {
  Making() = default;
  Making(const Making&) = delete;
  Making& operator=(const Making&) = delete;
  ~Making() { tutti_window_destroy(window); }
  tutti_window_t* window = nullptr;
};

// Makes a call without the GIL. `inside` counts it, so that the window stays alive during the call.
template <typename Call>
void call(int& inside, Call call) {
  tutti_status_t status = TUTTI_OK;
  ++inside;
  {
    const nb::gil_scoped_release without_gil;
    status = call();
  }
  --inside;
  check(status);
}

}  // namespace

Window::Window(Communicator& communicator, nb::handle memory, uint64_t bytes, bool members_may_die)
    : rank_(communicator.rank()) {
  if (!memory.is_none()) {
    memory_ = Array(memory, Access::write, "the window's memory");
    bytes = memory_.bytes();
  }
  tutti_window_options_t options = TUTTI_WINDOW_OPTIONS_INIT;
  options.members_may_die = members_may_die ? 1 : 0;
  void* const data = memory.is_none() ? nullptr : memory_.buffer().data;
  tutti_comm_t* const world = communicator.handle();
  const Communicator::Visit visit(communicator);
  listening_for_signals(
      [world, data, bytes, options, this] {
        return tutti_window_create(world, data, bytes, &options, &handle_);
      },
      [world] { return tutti_abort(world, "Window() was interrupted") == TUTTI_OK; });
}

tutti_window_t* Window::handle() const {
  if (handle_ == nullptr) {
    raise(TUTTI_INVALID_ARGUMENT, "the window has ended: make calls before free() and close()");
  }
  return handle_;
}

uint64_t Window::bytes(int32_t rank) const { return tutti_window_bytes(handle(), rank); }

std::span<uint8_t> Window::part() const {
  return {static_cast<uint8_t*>(tutti_window_memory(handle())), bytes(rank_)};
}

void Window::put(nb::handle from, int32_t rank, uint64_t offset) {
  const Array array(from, Access::read, "the array");
  tutti_window_t* const window = handle();
  call(inside_, [&] { return tutti_put(window, array.buffer(), rank, offset); });
}

void Window::get(nb::handle into, int32_t rank, uint64_t offset) {
  const Array array(into, Access::write, "the array");
  tutti_window_t* const window = handle();
  call(inside_, [&] { return tutti_get(window, array.buffer(), rank, offset); });
}

void Window::accumulate(nb::handle from, int32_t rank, uint64_t offset, tutti_op_t op) {
  const Array array(from, Access::read, "the array");
  tutti_window_t* const window = handle();
  call(inside_, [&] { return tutti_accumulate(window, array.buffer(), rank, offset, op); });
}

uint64_t Window::compare_and_swap(int32_t dtype, uint64_t expected, uint64_t desired, int32_t rank,
                                  uint64_t offset) {
  uint64_t found = 0;
  tutti_window_t* const window = handle();
  call(inside_, [&] {
    return tutti_compare_and_swap(window, dtype, expected, desired, rank, offset, &found);
  });
  return found;
}

void Window::signal(int32_t rank, int32_t slot, uint64_t count) {
  tutti_window_t* const window = handle();
  call(inside_, [&] { return tutti_signal(window, rank, slot, count); });
}

template <typename Block>
void Window::run(const char* name, Block block) {
  tutti_window_t* const window = handle();
  ++inside_;
  long_calls_.push_back(std::this_thread::get_id());
  const struct Leave {
    Window& window;
    ~Leave() {
      --window.inside_;
      std::erase(window.long_calls_, std::this_thread::get_id());
    }
  } leave{*this};
  listening_for_signals([window, block] { return block(window); },
                        [window, name] {
                          const std::string reason = std::string(name) + "() was interrupted";
                          return tutti_window_abort(window, reason.c_str()) == TUTTI_OK;
                        });
}

void Window::wait_signal(int32_t slot, uint64_t count) {
  run("wait_signal",
      [slot, count](tutti_window_t* window) { return tutti_wait_signal(window, slot, count); });
}

void Window::flush(int32_t rank) {
  tutti_window_t* const window = handle();
  call(inside_, [&] { return tutti_flush(window, rank); });
}

void Window::fence() {
  run("fence", [](tutti_window_t* window) { return tutti_fence(window); });
}

// Raises in a signal handler that runs during a call of this thread, because it cannot wait for the
// end of that call.
void Window::refuse_within_call() const {
  if (std::ranges::count(long_calls_, std::this_thread::get_id()) == 0) return;
  raise(TUTTI_INVALID_ARGUMENT,
        "a signal handler cannot end a window during a call on it: raise an exception");
}

void Window::wait_for_others() const {
  while (inside_ > 0) {
    const nb::gil_scoped_release without_gil;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void Window::free() {
  refuse_within_call();
  fence();
  tutti_window_t* const window = std::exchange(handle_, nullptr);
  if (window == nullptr) return;
  wait_for_others();
  call(inside_, [window] { return tutti_window_free(window); });
}

void Window::close() {
  refuse_within_call();
  tutti_window_t* const window = std::exchange(handle_, nullptr);
  if (window == nullptr) return;
  if (inside_ > 0) tutti_window_abort(window, "the window was closed during a call");
  wait_for_others();
  const nb::gil_scoped_release without_gil;
  tutti_window_destroy(window);
}

}  // namespace tutti::python

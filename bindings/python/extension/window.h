// Python's windows: one-sided access to other ranks' memory.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <span>
#include <thread>
#include <vector>

#include "bindings/c/tutti.h"
#include "bindings/python/extension/communicator.h"

namespace tutti::python {

// A window. It is guarded by the GIL, which is released whenever the library is called.
class Window {
 public:
  // Creates the window. Collective. `memory` is an array that is kept alive, or None for `bytes`
  // bytes of the window's own memory.
  Window(Communicator& communicator, nanobind::handle memory, uint64_t bytes, bool members_may_die);
  ~Window() { close(); }
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;

  uint64_t bytes(int32_t rank) const;
  std::span<uint8_t> part() const;  // this rank's part
  bool closed() const { return handle_ == nullptr; }

  void put(nanobind::handle from, int32_t rank, uint64_t offset);
  void get(nanobind::handle into, int32_t rank, uint64_t offset);
  void accumulate(nanobind::handle from, int32_t rank, uint64_t offset, tutti_op_t op);
  uint64_t compare_and_swap(int32_t dtype, uint64_t expected, uint64_t desired, int32_t rank,
                            uint64_t offset);
  void signal(int32_t rank, int32_t slot, uint64_t count);
  void wait_signal(int32_t slot, uint64_t count);
  void flush(int32_t rank);
  void fence();
  void free();
  // Ends the window on this rank alone. Waiting threads get an error.
  void close();

 private:
  // Raises tutti.Error if the window has ended.
  tutti_window_t* handle() const;
  void refuse_within_call() const;
  void wait_for_others() const;
  // Runs a blocking call on the window; an interrupt aborts the window.
  template <typename Block>
  void run(const char* name, Block block);

  tutti_window_t* handle_ = nullptr;
  Array memory_;
  int32_t rank_;
  int inside_ = 0;                           // number of threads in calls
  std::vector<std::thread::id> long_calls_;  // threads in calls that run signal handlers
};

}  // namespace tutti::python

// MPI windows that Tutti serves. All ranks of such a window have mapped its memory.
//
// The creation of a window decides, for all ranks, whether Tutti or the MPI library serves it. For
// a window that Tutti serves, the MPI library creates a window without memory, whose handle carries
// the group, the attributes, the name, the info and the error handler. Tutti handles all accesses
// to the memory, and opens, closes and completes epochs. An access is complete when its call
// returns.
//
//   Win_allocate    part of rank r   | the program's memory | control of rank r |
//   Win_create      part of rank r   | the program's memory |    and a window of controls
//
//   control         | lock | posts from each rank | completions by each rank |
#pragma once

#include <mpi.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "bindings/mpi/session.h"
#include "collectives/one_sided/window.h"

namespace tutti::mpi {

// A rank's part of a window; known on all ranks.
struct Part {
  int64_t bytes = 0;
  int64_t unit = 1;  // bytes per displacement
};

class ServedWindow {
 public:
  // Creates the window, without a handle. Collective among the ranks of the channel. `memory`: this
  // rank's part, which the program uses. `own` keeps this memory alive if Tutti allocated it.
  ServedWindow(Channel& channel, std::vector<Part> parts, std::byte* memory,
               std::shared_ptr<void> own);
  ~ServedWindow();
  ServedWindow(const ServedWindow&) = delete;
  ServedWindow& operator=(const ServedWindow&) = delete;
  // Returns the bytes to allocate for a part with its control block.
  static uint64_t bytes_with_control(int64_t bytes, int ranks);

  // Returns true if this rank has mapped all parts.
  bool is_whole() const { return is_whole_; }
  void set_handle(MPI_Win handle);
  // Completes all accesses. Collective. Only the destructor may follow.
  void free() { window_.free(); }

  int rank() const { return window_.rank(); }
  int size() const { return static_cast<int>(parts_.size()); }
  bool has(int rank) const { return rank >= 0 && rank < size(); }
  Window& window() { return window_; }
  const Part& part(int rank) const { return parts_[static_cast<size_t>(rank)]; }
  bool is_allocated() const { return own_ != nullptr; }
  std::byte* memory() const { return memory_; }
  MPI_Aint* bytes() { return &bytes_; }  // address of the size, for the attribute MPI_WIN_SIZE
  std::byte* data(int rank) const { return data_[static_cast<size_t>(rank)]; }

  // Implement passive target synchronisation: MPI's functions of the same names.
  void lock(int type, int rank, int assertion);
  void lock_all(int assertion);
  void unlock(int rank);
  void unlock_all();
  // Completes accesses at this rank and at the targets.
  void flush();
  // Implement active target synchronisation: MPI's functions of the same names.
  void post(MPI_Group group);
  void start(MPI_Group group);
  void complete();
  void wait();
  bool test();

 private:
  struct Control;
  enum class Held : uint8_t { no, shared, exclusive, unchecked };

  Control& control(int rank) const { return *control_[static_cast<size_t>(rank)]; }
  bool try_lock(int rank, bool exclusive);
  void release(int rank, Held held);
  template <typename Ready>
  void wait_until(const Ready& ready);
  std::vector<int> ranks_of(MPI_Group group) const;
  void map(int ranks);

  const std::shared_ptr<void> own_;  // this rank's memory, which outlives the window on it
  std::byte* const memory_;
  MPI_Aint bytes_;
  const std::vector<Part> parts_;
  const std::shared_ptr<void> stand_in_;  // a part for a rank whose program passes no memory
  Window window_;
  std::optional<Window> controls_;  // control blocks of a window of Win_create
  MPI_Group group_ = MPI_GROUP_NULL;
  bool is_whole_ = true;
  std::vector<std::byte*> data_;  // by rank, as are control_ and held_
  std::vector<Control*> control_;
  std::vector<Held> held_;
  bool all_held_ = false;
  std::vector<int> started_;  // targets of the access epoch
  std::vector<int> posted_;   // origins of the exposure epoch
  std::atomic<uint32_t> flushes_{0};
};

// Returns the window that Tutti serves behind this handle; null if the MPI library serves it.
ServedWindow* served(MPI_Win win);
// Registers or unregisters the window of this handle for served().
void add_window(MPI_Win win, std::unique_ptr<ServedWindow> window);
std::unique_ptr<ServedWindow> remove_window(MPI_Win win);
// Destroys the windows that the program has not freed with MPI_Win_free; called before
// MPI_Finalize.
void end_windows();

// Allocates memory for MPI_Alloc_mem, which may become a window. Returns null if Tutti provides
// none.
void* allocate_memory(MPI_Aint bytes, MPI_Info info);
// Frees the memory. Returns false if it does not come from allocate_memory().
bool free_memory(void* memory);
// Returns true if these bytes are the memory of one allocate_memory(), or of an allocated window.
bool is_allocated_memory(const void* memory, MPI_Aint bytes);

// Implement the two functions that create windows. `base` receives the memory's address.
int create_window(void* memory, MPI_Aint bytes, int64_t unit, MPI_Info info, MPI_Comm comm,
                  MPI_Win* win, const std::function<int()>& theirs);
int allocate_window(MPI_Aint bytes, int64_t unit, MPI_Info info, MPI_Comm comm, void* base,
                    MPI_Win* win, const std::function<int()>& theirs);

}  // namespace tutti::mpi

// The intercepted window functions.
#include <mpi.h>

#include <exception>
#include <memory>

#include "bindings/mpi/accesses.h"

namespace tutti::mpi {

namespace {

bool flushed(ServedWindow& window, int rank) {
  if (rank != MPI_PROC_NULL && !window.has(rank)) return false;
  window.flush();
  return true;
}

}  // namespace

extern "C" {

int MPI_Alloc_mem(MPI_Aint bytes, MPI_Info info, void* base) {
  void* memory = nullptr;
  try {
    memory = allocate_memory(bytes, info);
  } catch (const std::exception&) {  // the MPI library may have memory, or reports the error
  }
  if (memory == nullptr) return PMPI_Alloc_mem(bytes, info, base);
  *static_cast<void**>(base) = memory;
  return MPI_SUCCESS;
}

int MPI_Free_mem(void* base) { return free_memory(base) ? MPI_SUCCESS : PMPI_Free_mem(base); }

int MPI_Win_create(void* base, MPI_Aint bytes, int unit, MPI_Info info, MPI_Comm comm,
                   MPI_Win* win) {
  return create_window(base, bytes, unit, info, comm, win,
                       [&] { return PMPI_Win_create(base, bytes, unit, info, comm, win); });
}

int MPI_Win_allocate(MPI_Aint bytes, int unit, MPI_Info info, MPI_Comm comm, void* base,
                     MPI_Win* win) {
  return allocate_window(bytes, unit, info, comm, base, win,
                         [&] { return PMPI_Win_allocate(bytes, unit, info, comm, base, win); });
}

// The window is destroyed last, because the callbacks of attributes may read the memory.
int MPI_Win_free(MPI_Win* win) {
  ServedWindow* const window = served(*win);
  if (window == nullptr) return PMPI_Win_free(win);
  try {
    window->free();
  } catch (const std::exception& error) {
    return fail_on_window(*win, Call::win_free, error);
  }
  const std::unique_ptr<ServedWindow> last = remove_window(*win);
  return PMPI_Win_free(win);
}

// Returns an attribute. The MPI library's window behind the handle has no memory and was created by
// MPI_Win_allocate. So Tutti itself returns the base, the size and, for windows of MPI_Win_create,
// the flavour.
int MPI_Win_get_attr(MPI_Win win, int key, void* value, int* flag) {
  static int created = MPI_WIN_FLAVOR_CREATE;
  ServedWindow* const window = served(win);
  void* own = nullptr;
  if (window != nullptr && key == MPI_WIN_BASE) own = window->memory();
  if (window != nullptr && key == MPI_WIN_SIZE) own = window->bytes();
  if (window != nullptr && key == MPI_WIN_CREATE_FLAVOR && !window->is_allocated()) own = &created;
  if (own == nullptr) return PMPI_Win_get_attr(win, key, value, flag);
  *flag = 1;
  *static_cast<void**>(value) = own;
  return MPI_SUCCESS;
}

int MPI_Win_fence(int assertion, MPI_Win win) {
  return on_window(
      Call::win_fence, win, [&] { return PMPI_Win_fence(assertion, win); },
      [](ServedWindow& window) {
        window.window().fence();
        return true;
      });
}

int MPI_Win_lock(int type, int rank, int assertion, MPI_Win win) {
  return on_window(
      Call::win_lock, win, [&] { return PMPI_Win_lock(type, rank, assertion, win); },
      [&](ServedWindow& window) {
        if (rank == MPI_PROC_NULL) return true;
        if (!window.has(rank) || (type != MPI_LOCK_SHARED && type != MPI_LOCK_EXCLUSIVE)) {
          return false;
        }
        window.lock(type, rank, assertion);
        return true;
      });
}

int MPI_Win_lock_all(int assertion, MPI_Win win) {
  return on_window(
      Call::win_lock_all, win, [&] { return PMPI_Win_lock_all(assertion, win); },
      [&](ServedWindow& window) {
        window.lock_all(assertion);
        return true;
      });
}

int MPI_Win_unlock(int rank, MPI_Win win) {
  return in_epoch(
      Call::win_lock, win, [&] { return PMPI_Win_unlock(rank, win); },
      [&](ServedWindow& window) {
        if (rank == MPI_PROC_NULL) return true;
        if (!window.has(rank)) return false;
        window.unlock(rank);
        return true;
      });
}

int MPI_Win_unlock_all(MPI_Win win) {
  return in_epoch(
      Call::win_lock_all, win, [&] { return PMPI_Win_unlock_all(win); },
      [](ServedWindow& window) {
        window.unlock_all();
        return true;
      });
}

int MPI_Win_flush(int rank, MPI_Win win) {
  return in_epoch(
      Call::win_lock, win, [&] { return PMPI_Win_flush(rank, win); },
      [&](ServedWindow& window) { return flushed(window, rank); });
}

int MPI_Win_flush_local(int rank, MPI_Win win) {
  return in_epoch(
      Call::win_lock, win, [&] { return PMPI_Win_flush_local(rank, win); },
      [&](ServedWindow& window) { return flushed(window, rank); });
}

int MPI_Win_flush_all(MPI_Win win) {
  return in_epoch(
      Call::win_lock_all, win, [&] { return PMPI_Win_flush_all(win); },
      [](ServedWindow& window) { return flushed(window, 0); });
}

int MPI_Win_flush_local_all(MPI_Win win) {
  return in_epoch(
      Call::win_lock_all, win, [&] { return PMPI_Win_flush_local_all(win); },
      [](ServedWindow& window) { return flushed(window, 0); });
}

int MPI_Win_sync(MPI_Win win) {
  return in_epoch(
      Call::win_lock_all, win, [&] { return PMPI_Win_sync(win); },
      [](ServedWindow& window) { return flushed(window, 0); });
}

int MPI_Win_post(MPI_Group group, int assertion, MPI_Win win) {
  return on_window(
      Call::win_post, win, [&] { return PMPI_Win_post(group, assertion, win); },
      [&](ServedWindow& window) {
        if (group == MPI_GROUP_NULL) return false;
        window.post(group);
        return true;
      });
}

int MPI_Win_start(MPI_Group group, int assertion, MPI_Win win) {
  return on_window(
      Call::win_start, win, [&] { return PMPI_Win_start(group, assertion, win); },
      [&](ServedWindow& window) {
        if (group == MPI_GROUP_NULL) return false;
        window.start(group);
        return true;
      });
}

int MPI_Win_complete(MPI_Win win) {
  return in_epoch(
      Call::win_start, win, [&] { return PMPI_Win_complete(win); },
      [](ServedWindow& window) {
        window.complete();
        return true;
      });
}

int MPI_Win_wait(MPI_Win win) {
  return in_epoch(
      Call::win_post, win, [&] { return PMPI_Win_wait(win); },
      [](ServedWindow& window) {
        window.wait();
        return true;
      });
}

int MPI_Win_test(MPI_Win win, int* flag) {
  return in_epoch(
      Call::win_post, win, [&] { return PMPI_Win_test(win, flag); },
      [&](ServedWindow& window) {
        *flag = window.test() ? 1 : 0;
        window.flush();
        return true;
      });
}

}  // extern "C"

}  // namespace tutti::mpi

// Implements the one-sided calls on windows that Tutti serves, for counts of any integer type. The
// argument `theirs` calls the MPI library's own function with the caller's arguments. `theirs` is
// used for windows of the MPI library, and for arguments that the MPI library rejects.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <exception>

#include "bindings/mpi/windows.h"

namespace tutti::mpi {

// Elements in this rank's memory, the origin of an access.
struct Elements {
  const void* data;
  int64_t count;
  MPI_Datatype type;
};

// Elements in a rank's part of a window, the target of an access.
struct Target {
  int rank;
  int64_t displacement;
  int64_t count;
  MPI_Datatype type;
};

// Access a window. They return true once the access is complete, and false if the MPI library
// rejects an argument. They throw ClassedError(MPI_ERR_RMA_RANGE) for locations outside the part.
bool put(ServedWindow& window, const Elements& origin, const Target& target);
bool get(ServedWindow& window, const Elements& result, const Target& target);
bool accumulate(ServedWindow& window, const Elements& origin, const Target& target, MPI_Op op);
bool get_accumulate(ServedWindow& window, const Elements& origin, const Elements& result,
                    const Target& target, MPI_Op op);
bool compare_and_swap(ServedWindow& window, const void* origin, const void* compare, void* result,
                      const Target& target);
// Creates the request of a completed call.
int complete_request(MPI_Request* request);

// Executes one call on a window: by `ours` if Tutti serves the window and `ours` returns true,
// otherwise by `theirs`.
template <typename Theirs, typename Ours>
int on_window(Call call, MPI_Win win, Theirs theirs, Ours ours) {
  ServedWindow* const window = served(win);
  if (window == nullptr) {
    count(Form::blocking, call, Outcome::window);
    return theirs();
  }
  try {
    if (!ours(*window)) {
      count(Form::blocking, call, Outcome::argument);
      return theirs();
    }
  } catch (const std::exception& error) {
    return fail_on_window(win, call, error);
  }
  count(Form::blocking, call, Outcome::through);
  return MPI_SUCCESS;
}

// Executes a call within an epoch or at its end as on_window() does, but does not count it. `call`:
// the call that opened the epoch, which an error names.
template <typename Theirs, typename Ours>
int in_epoch(Call call, MPI_Win win, Theirs theirs, Ours ours) {
  ServedWindow* const window = served(win);
  if (window == nullptr) return theirs();
  try {
    return ours(*window) ? MPI_SUCCESS : theirs();
  } catch (const std::exception& error) {
    return fail_on_window(win, call, error);
  }
}

// Executes a call with a request, as on_window() does.
template <typename Theirs, typename Ours>
int on_window(Call call, MPI_Win win, MPI_Request* request, Theirs theirs, Ours ours) {
  bool is_ours = false;
  const int status = on_window(call, win, theirs, [&](ServedWindow& window) {
    is_ours = ours(window);
    return is_ours;
  });
  return is_ours && status == MPI_SUCCESS ? complete_request(request) : status;
}

}  // namespace tutti::mpi

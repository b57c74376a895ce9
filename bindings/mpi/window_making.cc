// Creates windows. The ranks exchange their contributions, and Tutti serves the window if all ranks
// support it. No decision depends on values that only one rank knows.
#include <mpi.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

#include "base/text.h"
#include "bindings/mpi/windows.h"

namespace tutti::mpi {

namespace {

// A rank's contribution to the decision. The largest outcome of all ranks decides.
struct Contribution {
  int64_t bytes = 0;
  int64_t unit = 1;
  int64_t outcome = 0;
};

std::vector<Contribution> exchange(const Contribution& own, MPI_Comm comm, int size) {
  constexpr int kWords = sizeof(Contribution) / sizeof(int64_t);
  std::vector<Contribution> all(static_cast<size_t>(size));
  PMPI_Allgather(&own, kWords, MPI_INT64_T, all.data(), kWords, MPI_INT64_T, comm);
  return all;
}

bool all_agree(bool own, MPI_Comm comm) {
  const int one = own ? 1 : 0;
  int all = 0;
  PMPI_Allreduce(&one, &all, 1, MPI_INT, MPI_MIN, comm);
  return all != 0;
}

// Returns true if the memory has the alignment that MPI 4's info key requests.
bool is_aligned(const void* memory, MPI_Info info) {
  if (info == MPI_INFO_NULL) return true;
  constexpr int kDigits = 20;
  char digits[kDigits + 1] = "";
  int found = 0;
  PMPI_Info_get(info, "mpi_minimum_memory_alignment", kDigits, digits, &found);
  const uint64_t alignment = found != 0 ? std::strtoull(digits, nullptr, 10) : 1;
  return alignment <= 1 || reinterpret_cast<uintptr_t>(memory) % alignment == 0;
}

// Creates one window: a window of Tutti if all ranks support it, otherwise one of the MPI library.
class WindowMaking {
 public:
  WindowMaking(Call call, MPI_Comm comm, MPI_Info info, MPI_Win* win,
               const std::function<int()>& theirs)
      : call_(call), comm_(comm), info_(info), win_(win), theirs_(theirs) {}

  // Creates the window. `program_memory`: memory of Win_create. `base`: receives the memory of
  // Win_allocate.
  int make(const Contribution& own, std::byte* program_memory, void* base) {
    if (comm_ == MPI_COMM_NULL) return fall(Outcome::argument);
    int is_inter = 0;
    PMPI_Comm_test_inter(comm_, &is_inter);
    int size = 0;
    PMPI_Comm_size(comm_, &size);
    if (is_inter != 0 || size == 1) return fall(Outcome::communicator);
    brought_ = exchange(own, comm_, size);
    const auto worst = static_cast<Outcome>(
        std::ranges::max_element(brought_, {}, &Contribution::outcome)->outcome);
    if (worst != Outcome::through) return fall(worst);
    Channel* channel = nullptr;
    try {
      channel = choose(Form::blocking, call_, comm_, {.bytes = largest()});
    } catch (const std::exception& error) {
      return fail(comm_, call_, error);
    }
    if (channel == nullptr) return theirs_();
    return make_on(*channel, program_memory, base);
  }

 private:
  int fall(Outcome outcome) {
    count(Form::blocking, call_, outcome);
    return theirs_();
  }

  uint64_t largest() const {
    return static_cast<uint64_t>(
        std::ranges::max_element(brought_, {}, &Contribution::bytes)->bytes);
  }

  std::vector<Part> parts() const {
    std::vector<Part> parts;
    for (const Contribution& one : brought_)
      parts.push_back({.bytes = one.bytes, .unit = one.unit});
    return parts;
  }

  int make_on(Channel& channel, std::byte* program_memory, void* base) {
    const int64_t bytes = brought_[static_cast<size_t>(channel.rank)].bytes;
    std::shared_ptr<void> own;
    if (call_ == Call::win_allocate) {
      own = allocate(channel, bytes);
      if (!all_agree(own != nullptr, comm_)) return fall(Outcome::memory);
    }
    std::unique_ptr<ServedWindow> window;
    try {
      std::byte* const memory =
          own != nullptr ? static_cast<std::byte*>(own.get()) : program_memory;
      window = std::make_unique<ServedWindow>(channel, parts(), memory, own);
      if (!all_agree(window->is_whole(), comm_)) {
        window->free();
        window.reset();
        return fall(Outcome::memory);
      }
    } catch (const std::exception& error) {
      return fail(comm_, call_, error);
    }
    return give_handle(std::move(window), base);
  }

  std::shared_ptr<void> allocate(Channel& channel, int64_t bytes) const {
    try {
      std::shared_ptr<void> own = channel.communicator.allocate<std::byte>(
          ServedWindow::bytes_with_control(bytes, channel.size));
      return is_aligned(own.get(), info_) ? own : nullptr;
    } catch (const std::exception&) {  // the MPI library may have memory, or reports the error
      return nullptr;
    }
  }

  int give_handle(std::unique_ptr<ServedWindow> window, void* base) {
    const int unit = static_cast<int>(window->part(window->rank()).unit);
    void* nothing = nullptr;
    // Win_create is not used here, because Open MPI does not support it on some communicators.
    const int status = PMPI_Win_allocate(0, unit, info_, comm_, static_cast<void*>(&nothing), win_);
    if (status != MPI_SUCCESS) return status;
    if (base != nullptr) *static_cast<void**>(base) = window->memory();
    window->set_handle(*win_);
    add_window(*win_, std::move(window));
    count(Form::blocking, call_, Outcome::through);
    return MPI_SUCCESS;
  }

  const Call call_;
  const MPI_Comm comm_;
  const MPI_Info info_;
  MPI_Win* const win_;
  const std::function<int()>& theirs_;
  std::vector<Contribution> brought_;
};

// Returns this rank's contribution. Windows with units beyond `int`, which only MPI 4's large-count
// functions accept, are left to the MPI library.
Contribution brought(MPI_Aint bytes, int64_t unit, Outcome outcome) {
  if (bytes < 0 || unit <= 0 || unit > INT32_MAX) outcome = Outcome::argument;
  return {.bytes = bytes, .unit = unit, .outcome = static_cast<int64_t>(outcome)};
}

}  // namespace

int create_window(void* memory, MPI_Aint bytes, int64_t unit, MPI_Info info, MPI_Comm comm,
                  MPI_Win* win, const std::function<int()>& theirs) {
  const bool is_ours = bytes <= 0 || is_allocated_memory(memory, bytes);
  return WindowMaking(Call::win_create, comm, info, win, theirs)
      .make(brought(bytes, unit, is_ours ? Outcome::through : Outcome::memory),
            static_cast<std::byte*>(memory), nullptr);
}

int allocate_window(MPI_Aint bytes, int64_t unit, MPI_Info info, MPI_Comm comm, void* base,
                    MPI_Win* win, const std::function<int()>& theirs) {
  const Outcome outcome = base == nullptr || win == nullptr ? Outcome::argument : Outcome::through;
  return WindowMaking(Call::win_allocate, comm, info, win, theirs)
      .make(brought(bytes, unit, outcome), nullptr, base);
}

}  // namespace tutti::mpi

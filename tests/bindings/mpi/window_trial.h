// A window with random accesses in epochs of any kind, and its expected memory. Every rank draws
// the accesses of all ranks, so it can compute the expected contents of every rank's part.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "tests/bindings/mpi/trial.h"
#include "tests/bindings/mpi/window_values.h"

namespace tutti::test {

// One access to a cell of the target's part of the window.
struct Access {
  enum Call { put, get, accumulate, get_accumulate, fetch_and_op, compare_and_swap };
  int origin = 0;
  int target = 0;
  Call call = put;
  const Kind* kind = nullptr;
  MPI_Op op = MPI_OP_NULL;
  size_t place = 0;  // offset in the part, in bytes
  int count = 0;
  int origin_form = 0;
  int target_form = 0;
  int result_form = 0;
  uint64_t seed = 0;
};

// Kinds of accesses to draw. The narrower scopes exist because Open MPI 4.1 crashes in some calls
// on its own windows and computes wrong sums.
enum class Scope : uint8_t {
  all,      // everything that MPI has
  served,   // everything, on windows that Tutti implements
  careful,  // fences, put, get, and accumulate in allocated windows, on types without gaps
};

class WindowTrial {
 public:
  enum Source { allocated, of_library_memory, of_program_memory };
  enum Epoch { fences, all_locked, locked, posted };

  // The trial refers to both arguments, which must outlive it.
  WindowTrial(const Group& group, RandomDraws& dice, Scope scope);
  ~WindowTrial();
  WindowTrial(const WindowTrial&) = delete;
  WindowTrial& operator=(const WindowTrial&) = delete;

  // One epoch consists of these calls in order; two windows may have overlapping epochs.
  void draw();
  void open();
  void access();
  void close();
  void check();
  // Digest of the memory and of all results.
  uint64_t digest() const { return digest_; }

 private:
  // The buffers of one of this rank's accesses, and the expected result.
  struct Buffers {
    std::vector<std::byte> origin;
    std::vector<std::byte> result;
    std::vector<std::byte> compare;
    std::vector<std::byte> wanted;
  };

  void make_window();
  void check_attributes();
  void draw_cell(int target, size_t start);
  Access draw_access(int target, size_t start, const Kind& kind, bool is_single);
  void fill();
  void lock_own(bool locks);
  void make(const Access& access, Buffers& buffers, MPI_Request* request);
  void move(const Access& access, const Layout& origin, const Layout& target, Buffers& buffers,
            MPI_Request* request);
  void combine(const Access& access, const Layout& origin, const Layout& target, Buffers& buffers,
               MPI_Request* request);
  void apply(const Access& access, Buffers* own);
  void compare(const char* what, const Kind& kind, const std::byte* got, const std::byte* wanted,
               size_t bytes);
  std::byte* model(int rank, size_t place) {
    return models_[static_cast<size_t>(rank)].data() + place;
  }

  const Group& group_;
  RandomDraws& dice_;
  const Scope scope_;
  size_t cell_ = 0;
  std::vector<size_t> cells_;  // number of cells on each rank
  std::vector<int> units_;
  Source source_;
  std::vector<std::byte> programs_;
  std::byte* memory_ = nullptr;
  MPI_Win win_ = MPI_WIN_NULL;
  Epoch epoch_ = fences;
  std::vector<std::vector<std::byte>> models_;
  std::vector<std::vector<const Kind*>> kinds_;  // kinds of each rank's cells
  std::vector<std::vector<uint64_t>> seeds_;     // seeds of the cells' initial values
  std::vector<Access> accesses_;
  std::vector<Buffers> buffers_;  // buffers of this rank's accesses
  std::vector<MPI_Request> requests_;
  uint64_t digest_ = 14695981039346656037U;
};

}  // namespace tutti::test

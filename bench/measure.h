// Times one collective at one size and checks its results. The method is the same as for peers:
// each rank rewrites its input before each timed call, so that the input is in no other rank's
// cache, as with gradients. The time of a call is the time of its slowest rank.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bench/device_side.h"
#include "bench/digest.h"
#include "bench/layout.h"
#include "collectives/communicator.h"
#include "collectives/program/program.h"

namespace tutti::bench {

// Memory of the buffers: allocated by the caller, allocated by the library, or allocated by the
// caller and registered with the library.
enum class Buffers { user, library, registered };

struct Case {
  Collective collective = Collective::all_reduce;
  bool uneven = false;  // true: the v-variant, with uneven_blocks()
  DType dtype = DType::f32;
  ReduceOp op = ReduceOp::sum;
  int root = 0;  // root of the collectives for which has_root() is true
  std::string algorithm = "auto";
  uint64_t bytes = 0;  // size of the larger buffer, as in nccl-tests
  Data data = Data::exact;
  bool deterministic = false;
  Buffers buffers = Buffers::user;
  bool on_device = false;  // true: the buffers are in GPU memory
  bool graph = false;      // true: capture the call and launch its graph (GPU only)
  // true: input and output share memory (hosts only; requires runs_in_place())
  bool in_place = false;
  WireFormat wire = WireFormat::plain;
};

// Returns true if input and output may share memory, so that one is the other or a block of it
// (collectives/request.h).
bool runs_in_place(Collective collective);

// Returns the collective's name, for example "all_gatherv" if `uneven`.
std::string name(Collective collective, bool uneven);

// Returns the number of elements of one block (all_reduce: of the buffer) that fit into `bytes`.
uint64_t element_count(const Case& c, int ranks);
// Returns the size in bytes of a buffer with that many elements per block.
uint64_t real_bytes(const Case& c, int ranks);

// Returns the size in bytes of the same buffer in the wire format.
uint64_t wire_bytes(const Case& c, int ranks);

// The filled buffers of a case. A case is timed in several rounds, so that peers or other
// algorithms can be timed in between.
class Measurement {
 public:
  Measurement(Communicator& comm, const Case& c);

  // Selects the algorithm of later calls.
  void use(const std::string& algorithm) { case_.algorithm = algorithm; }
  // Collective. Makes `warm_up` untimed calls, then `timed` calls. Returns the time of each timed
  // call in microseconds (on a GPU measured by events), the same on every rank.
  std::vector<double> run(int warm_up, int timed);
  // Collective. Returns the digest of the last call's result.
  Digest digest();
  // Collective; clears the output. Returns the number of wrong elements of the last call, over all
  // ranks. An element is wrong if it differs from the expected result. For rounding data whose
  // result depends on the order of summation, it is wrong if it is outside the rounding error bound
  // and, in a deterministic call, if it differs from the canonical result. Results in another wire
  // format are compared with wire_reference().
  uint64_t count_wrong();
  // Returns the name of the algorithm that runs; empty if none is needed. Throws Error(unsupported)
  // if the requested algorithm cannot run.
  std::string algorithm();

 private:
  Memory<std::byte> allocate(uint64_t bytes);
  void place_buffers();
  uint64_t most() const;
  std::shared_ptr<std::byte> allocate_on_device(const cuda::Context& context, uint64_t bytes);
  std::span<std::byte> output() {
    return {output_, layout_.outputs(comm_.rank()) * size_of(case_.dtype)};
  }
  CallOptions options() const;
  void write_input();
  void call();
  double timed_call();
  uint64_t count_wrong_here() const;

  Communicator& comm_;
  Case case_;
  const Layout layout_;
  std::vector<std::byte> pristine_;
  Memory<std::byte> memory_;
  Memory<std::byte> more_memory_;  // memory of the output, unused in place
  std::byte* input_ = nullptr;     // addresses in memory_ and more_memory_
  std::byte* output_ = nullptr;
  std::unique_ptr<DeviceSide> device_;  // GPU buffers, used instead of memory_ if set
  std::vector<Registration> registrations_;
  std::vector<Request> requests_;
};

}  // namespace tutti::bench

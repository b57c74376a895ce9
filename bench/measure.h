// Times one collective at one size, with checked data, the way every peer is timed too: before each
// timed call each rank rewrites its input (real gradients are never warm in a peer's cache), and
// the time of a call is that of its slowest rank.
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

// Whose memory the calls work on: the caller's, from the library, or the caller's registered with
// it.
enum class Buffers { user, library, registered };

struct Case {
  Collective collective = Collective::all_reduce;
  bool uneven = false;  // the v-variant, with uneven_blocks()
  DType dtype = DType::f32;
  ReduceOp op = ReduceOp::sum;
  int root = 0;  // where has_root()
  std::string algorithm = "auto";
  uint64_t bytes = 0;  // as nccl-tests counts them: of the larger of the two buffers
  Data data = Data::exact;
  bool deterministic = false;
  Buffers buffers = Buffers::user;
  bool on_device = false;  // the buffers are a GPU's
  bool graph = false;      // of a GPU: the call is captured once, and its graph is launched
  bool in_place = false;   // on hosts, of a collective that runs_in_place()
  WireFormat wire = WireFormat::plain;
};

// Whether the input may be the output buffer, or a block of it, or the other way round
// (collectives/request.h).
bool runs_in_place(Collective collective);

// "all_gatherv"
std::string name(Collective collective, bool uneven);

// Elements of one block (all_reduce: of the buffer) that fit into `bytes`.
uint64_t element_count(const Case& c, int ranks);
// Bytes that these elements really are.
uint64_t real_bytes(const Case& c, int ranks);

// Bytes that they travel as.
uint64_t wire_bytes(const Case& c, int ranks);

// A case's buffers, filled and ready; timed in several rounds, so that peers, or other algorithms,
// can be timed in between. Root is rank 0.
class Measurement {
 public:
  Measurement(Communicator& comm, const Case& c);

  // From now on.
  void use(const std::string& algorithm) { case_.algorithm = algorithm; }
  // Untimed calls, then timed ones. In microseconds, of each timed call, on a GPU by its own
  // events; the same on every rank. Collective.
  std::vector<double> run(int warm_up, int timed);
  // Of the last call. Collective.
  Digest digest();
  // Wrong elements of the last call, over all ranks: those that differ from the right result. Of
  // rounding data whose result depends on the order: those outside of what roundings explain, and
  // in a deterministic call those that differ from the canonical result. What travels in another
  // format is compared with wire_reference(). Collective; clears the
  // output.
  uint64_t count_wrong();
  // The name of the one that runs; empty where none is needed. Throws Error(unsupported) where the
  // one that was asked for cannot run.
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
  Memory<std::byte> more_memory_;  // none in place
  std::byte* input_ = nullptr;     // in these
  std::byte* output_ = nullptr;
  std::unique_ptr<DeviceSide> device_;  // where the calls read and write instead
  std::vector<Registration> registrations_;
  std::vector<Request> requests_;
};

}  // namespace tutti::bench

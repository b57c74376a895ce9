// Times one collective at one size, with checked data, the way every peer is timed too: before each
// timed call each rank rewrites its input (real gradients are never warm in a peer's cache), and
// the time of a call is that of its slowest rank.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "collectives/communicator.h"
#include "collectives/program.h"

namespace tutti::bench {

struct Case {
  Collective collective = Collective::all_reduce;
  DType dtype = DType::f32;
  ReduceOp op = ReduceOp::sum;
  std::string algorithm = "auto";
  uint64_t bytes = 0;  // as nccl-tests counts them: of the larger of the two buffers
};

struct Timing {
  std::vector<double> times_us;  // of each timed call, the slowest rank's; same on every rank
  uint64_t wrong = 0;            // wrong elements, over all ranks
};

// Elements of one block (all_reduce: of the buffer) that fit into `bytes`.
uint64_t element_count(const Case& c, int ranks);
// Bytes that these elements really are.
uint64_t real_bytes(const Case& c, int ranks);
// busbw = algbw * factor, as nccl-tests defines it.
double bus_factor(Collective collective, int ranks);

double median(std::vector<double> values);

// A case's buffers, filled and ready; timed in several rounds, so that peers can be timed in
// between.
class Measurement {
 public:
  Measurement(Communicator& comm, const Case& c);
  // Untimed calls, then timed ones. Collective.
  std::vector<double> run(int warm_up, int timed);
  // Wrong elements of the last call, over all ranks. Collective.
  uint64_t count_wrong();
  // The name of the one that runs.
  std::string algorithm() const;

 private:
  Request request() const;
  void call();

  Communicator& comm_;
  const Case case_;
  const uint64_t count_;
  std::vector<std::byte> pristine_;
  Memory<std::byte> input_;
  Memory<std::byte> output_;
  Buffer input_buffer_;
  Buffer output_buffer_;
};

}  // namespace tutti::bench

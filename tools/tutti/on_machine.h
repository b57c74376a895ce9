// Predicts calls between processors with a machine's cost model, for `tutti explain` and `tutti
// simulate`.
#pragma once

#include <string>
#include <vector>

#include "collectives/cost/planner.h"
#include "topology/domain.h"

namespace tutti::tool {

struct MachineQuestion {
  int ranks = 2;
  std::string group;  // ranks per host; empty: one host
  std::string transport = "auto";
  std::string file;  // output file of `tutti tune`; empty: its default file
};

// Reads the costs in `file`, an output file of `tutti tune`; if it is empty, this host's.
CostModel cost_model_in(const std::string& file);
// Returns a text that says where these costs come from.
std::string source_of(const std::string& file);

struct OnMachine {
  // Chooses the transport and the costs for the question. The ranks of a single host are placed as
  // on this host.
  explicit OnMachine(const MachineQuestion& question);

  std::vector<Place> places;
  tutti::Hosts hosts;
  std::string transport;  // such as "tcp", "auto: shm" or "auto: shm+ucx"
  std::string costs;      // where the costs came from
  Shape shape;
  Planner planner;

 private:
  OnMachine(const MachineQuestion& question, const CostModel& model);
};

// Returns the bus bandwidth in GB/s of a call of `bytes` bytes, as in `tutti bench`; 0 for
// barriers.
double busbw_GBps(Collective collective, int ranks, double bytes, double seconds);
// Returns the bytes of one block if the larger buffer has one block per rank, otherwise the bytes
// of the whole buffer.
uint64_t block_bytes(Collective collective, int ranks, uint64_t bytes);
// Returns the grade that a call requires.
Grade grade_wanted(Collective collective, bool deterministic);

struct MachineSimulation {
  MachineQuestion machine;
  Collective collective = Collective::all_reduce;
  std::vector<double> bytes;
  std::string json;  // output file; empty: none
};
// Runs `tutti simulate` with a file of `tutti tune`: prints a line for each size, and returns the
// exit code.
int simulate_on_machine(const MachineSimulation& question);

}  // namespace tutti::tool

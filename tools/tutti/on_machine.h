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
  std::string file;  // file of `tutti tune`; empty: its default file
};

struct OnMachine {
  // Ranks of a single host are placed as on this host.
  explicit OnMachine(const MachineQuestion& question);

  std::vector<Place> places;
  tutti::Hosts hosts;
  std::string transport;  // "tcp", "auto: shm", "auto: shm+ucx"
  std::string costs;      // source of the costs
  Shape shape;
  Planner planner;

 private:
  OnMachine(const MachineQuestion& question, const CostModel& model);
};

// Bus bandwidth in GB/s of a call of `bytes` bytes, as in `tutti bench`; 0 for barriers.
double busbw_GBps(Collective collective, int ranks, double bytes, double seconds);
// Bytes of one block if the larger buffer has one block per rank, else of the whole buffer.
uint64_t block_bytes(Collective collective, int ranks, uint64_t bytes);
// Returns the grade that a call requires.
Grade grade_wanted(Collective collective, bool deterministic);

struct MachineSimulation {
  MachineQuestion machine;
  Collective collective = Collective::all_reduce;
  std::vector<double> bytes;
  std::string json;  // a file; empty: none
};
// `tutti simulate` with a file of `tutti tune`: prints a line for each size.
int simulate_on_machine(const MachineSimulation& question);

}  // namespace tutti::tool

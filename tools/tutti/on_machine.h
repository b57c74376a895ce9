// Calls on hosts of processors, priced by a machine's cost model: what `tutti explain` and `tutti
// simulate` share.
#pragma once

#include <string>
#include <vector>

#include "collectives/cost/planner.h"
#include "topology/domain.h"

namespace tutti::tool {

struct MachineQuestion {
  int ranks = 2;
  std::string group;  // ranks of each host; empty: all on one
  std::string transport = "auto";
  std::string file;  // written by `tutti tune`; empty: its default file
};

struct OnMachine {
  // Ranks of a single host are placed as on this one.
  explicit OnMachine(const MachineQuestion& question);

  std::vector<Place> places;
  tutti::Hosts hosts;
  std::string transport;  // "tcp", "auto: shm", "auto: shm+ucx"
  std::string costs;      // where the numbers come from
  Shape shape;
  Planner planner;

 private:
  OnMachine(const MachineQuestion& question, const CostModel& model);
};

// Bus bandwidth in GB/s of a call on `bytes` bytes, as `tutti bench` counts them; 0 for barriers.
double busbw_GBps(Collective collective, int ranks, double bytes, double seconds);
// Bytes of one block if the larger buffer has one a rank, else all.
uint64_t block_bytes(Collective collective, int ranks, uint64_t bytes);
// The grade that a call asks for.
Grade grade_wanted(Collective collective, bool deterministic);

struct MachineSimulation {
  MachineQuestion machine;
  Collective collective = Collective::all_reduce;
  std::vector<double> bytes;
  std::string json;  // a file; empty: none
};
// `tutti simulate` with a file of `tutti tune`: a line for each size.
int simulate_on_machine(const MachineSimulation& question);

}  // namespace tutti::tool

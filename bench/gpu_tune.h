// Calibrates the costs inside kernels on this host's GPUs. Times all-reduces with both protocols,
// then searches for the costs whose predictions are closest to those times, starting from the
// published numbers of the GPU class.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "collectives/communicator.h"
#include "collectives/cost/cost_model.h"
#include "collectives/cost/gpu_planner.h"

namespace tutti::bench {

// One all-reduce (f32, sum) in GPU memory, and its measured time.
struct GpuObservation {
  std::string algorithm;
  GpuProtocol protocol = GpuProtocol::simple;
  int ranks = 2;
  uint64_t bytes = 0;
  double seconds = 0;  // median time of the slowest rank, by the GPU's own events
};

// Returns the calls to time.
std::vector<GpuObservation> gpu_observations(int ranks);
// Collective. Times the calls and sets their seconds. Skips larger sizes of an algorithm once a
// call took over 0.2 s; their seconds remain 0. Each rank uses the GPU of its local rank.
void measure(Communicator& comm, std::vector<GpuObservation>& observations);

double predict(const GpuObservation& observation, const GpuCosts& costs);
// Returns the costs that fit the observations best, starting from `costs`.
GpuCosts fit(GpuCosts costs, std::span<const GpuObservation> observations);

// Returns one line per observation, which begins with "gpu"; read() skips all other lines.
std::string write(std::span<const GpuObservation> observations);
std::vector<GpuObservation> read_gpu_observations(const std::string& text);

}  // namespace tutti::bench

// Finds what things cost inside kernels on this host's GPUs: times all-reduces by both protocols,
// then looks for the numbers with which the cost walk predicts those times best, beginning with
// what was published of the class.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "collectives/communicator.h"
#include "collectives/cost/cost_model.h"
#include "collectives/cost/gpu_planner.h"

namespace tutti::bench {

// An all-reduce of f32, sum, in a GPU's memory.
struct GpuObservation {
  std::string algorithm;
  GpuProtocol protocol = GpuProtocol::simple;
  int ranks = 2;
  uint64_t bytes = 0;
  double seconds = 0;  // the median of the slowest rank's, by the GPU's own events
};

// What is to be timed.
std::vector<GpuObservation> gpu_observations(int ranks);
// Fills in the seconds. Collective; the GPUs are those of the ranks' places on the host.
void measure(Communicator& comm, std::vector<GpuObservation>& observations);

double predict(const GpuObservation& observation, const GpuCosts& costs);
// The numbers that fit best.
GpuCosts fit(GpuCosts costs, std::span<const GpuObservation> observations);

// A line each, which begins with "gpu"; read() skips all other lines.
std::string write(std::span<const GpuObservation> observations);
std::vector<GpuObservation> read_gpu_observations(const std::string& text);

}  // namespace tutti::bench

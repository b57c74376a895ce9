// Predicts the times of NCCL's own algorithms by walking equivalent programs in Tutti's cost model
// (collectives/cost/gpu_planner.h).
//
// It covers one host with GPUs of a class whose costs are known (gpu_costs.h: published, or
// measured by `tutti tune`), the algorithms ring and tree, and the protocols LL, LL128 and Simple.
// In all other cases NCCL's own predictions remain.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>

#include "bindings/nccl_plugins/tuner_abi.h"
#include "collectives/cost/gpu_planner.h"

namespace tutti::nccl {

// Returns the class that TUTTI_NCCL_GPU names, or the class of the current device. If the class
// cannot be determined, returns an empty text and sets `why` to the reason.
std::string find_gpu_class(std::string& why);

// Returns the algorithm of NCCL's "tree" within a host, which reduces along the chain of ranks to
// one end and sends the result back along the chain.
const Algorithm& tree_within_host();

class Tuner {
 public:
  Tuner(size_t ranks, size_t nodes);

  // Replaces the entries of `table` whose times are known and which NCCL has not disabled.
  void fill(ncclFunc_t function, size_t bytes, float* table, int algorithms, int protocols);

 private:
  // Returns the time in microseconds; nullopt if it is unknown.
  std::optional<float> time(ncclFunc_t function, size_t bytes, int algorithm, int protocol);

  int ranks_ = 0;
  std::mutex mutex_;
  // Planners; null if this communicator is not covered. In the second planner, LL128 takes the
  // place of `lines`.
  std::unique_ptr<GpuPlanner> planner_;
  std::unique_ptr<GpuPlanner> planner_of_ll128_;
  std::map<std::tuple<int, uint64_t, int, int>, std::optional<float>> known_;
};

}  // namespace tutti::nccl

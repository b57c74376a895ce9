// What NCCL's own algorithms take, from our walk of their programs
// (collectives/cost/gpu_planner.h).
//
// GPUs of one host, of a class with known costs (gpu_costs.h: published, or measured by
// `tutti tune`); ring and tree; LL, LL128 and Simple. NVLS, CollNet and PAT, several hosts and
// other GPUs: nothing is known, and what NCCL reckons stays.
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

// The class of TUTTI_NCCL_GPU, else that of the current device; empty where there is none of which
// the costs are known, with the reason in `why`.
std::string find_gpu_class(std::string& why);

// Up and down the chain of ranks: what NCCL's "tree" is within a host.
const Algorithm& tree_within_host();

class Tuner {
 public:
  Tuner(size_t ranks, size_t nodes);

  // Replaces the entries that are known and that NCCL has not switched off.
  void fill(ncclFunc_t function, size_t bytes, float* table, int algorithms, int protocols);

 private:
  // Microseconds; nothing: not known.
  std::optional<float> time(ncclFunc_t function, size_t bytes, int algorithm, int protocol);

  int ranks_ = 0;
  std::mutex mutex_;
  // Null: nothing is known of this communicator. LL128 has the place of `lines` in the second.
  std::unique_ptr<GpuPlanner> planner_;
  std::unique_ptr<GpuPlanner> planner_of_ll128_;
  std::map<std::tuple<int, uint64_t, int, int>, std::optional<float>> known_;
};

}  // namespace tutti::nccl

#include "bindings/nccl_plugins/tuner.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/cuda/device.h"
#include "base/error.h"
#include "base/settings.h"
#include "base/text.h"
#include "bindings/nccl_plugins/host_log.h"
#include "collectives/cost/gpu_costs.h"

namespace tutti::nccl {

namespace {

// Limit on the number of ranks, because the cost model walks the plans of all ranks. It is above
// the largest host that NCCL supports.
constexpr size_t kMostRanks = 72;

// Data bytes in one of the eight steps of NCCL's buffers (src/include/device.h, comm.h): an eighth
// of 4 MiB for Simple; 512 threads with 8 lines of 8 bytes each for LL; 640 threads with 120 words
// each, of which 15 in 16 are data, for LL128.
constexpr GpuSlots kSlots = {.simple_bytes = (4 << 20) / 8, .lines_bytes = 512 * 8 * 8};
constexpr GpuSlots kSlotsOfLL128 = {.simple_bytes = kSlots.simple_bytes,
                                    .lines_bytes = 640 * 120 * 8 / 16 * 15};

// Fraction of a line that is data: 120 of 128 bytes. The additional latency over LL is NCCL's
// figure: 1.9 us a hop over NVLink, against 0.6 us (hwLatencies, src/graph/tuning.cc).
constexpr double kOfALine = 120.0 / 128;
constexpr double kLaterThanLL = 1.3e-6;

GpuCosts with_ll128(GpuCosts costs) {
  LinkCosts line = costs.simple;
  line.send = costs.lines.send;
  line.recv = costs.lines.recv;
  line.latency = costs.lines.latency + kLaterThanLL;
  line.wire /= kOfALine;
  for (ByteCosts& bytes : line.bytes) {
    for (double* const moves : {&bytes.send, &bytes.recv, &bytes.recv_reduce}) *moves /= kOfALine;
  }
  costs.lines = line;
  return costs;
}

struct Call {
  Collective collective;
  bool has_blocks;  // true: NCCL counts the bytes of all ranks, Tutti one rank's
};

std::optional<Call> call_of(ncclFunc_t function) {
  switch (function) {
    case ncclFuncBroadcast:
      return Call{Collective::broadcast, false};
    case ncclFuncReduce:
      return Call{Collective::reduce, false};
    case ncclFuncAllGather:
      return Call{Collective::all_gather, true};
    case ncclFuncReduceScatter:
      return Call{Collective::reduce_scatter, true};
    case ncclFuncAllReduce:
      return Call{Collective::all_reduce, false};
  }
  return std::nullopt;
}

// Returns the equivalent of NCCL's algorithm; null if Tutti has none.
const Algorithm* program_of_nccl(Collective collective, int algorithm) {
  if (algorithm == NCCL_ALGO_TREE) {
    return collective == Collective::all_reduce ? &tree_within_host() : nullptr;
  }
  if (algorithm != NCCL_ALGO_RING) return nullptr;
  // If there is a root, NCCL's ring is a pipeline along the ring.
  const bool rooted = collective == Collective::broadcast || collective == Collective::reduce;
  return find_algorithm(collective, rooted ? "chain" : "ring");
}

Program emit_tree(const Shape& shape) {
  const int32_t up = shape.rank - 1;
  const int32_t down = shape.rank + 1;
  const bool is_first = shape.rank == 0;
  const bool is_last = down == shape.ranks;
  const bool has_middle = shape.ranks > 2;
  Program program{.scratch_chunks = has_middle ? 1 : 0, .fan_out = has_middle ? 2 : 1};
  if (is_first && is_last) {
    program.steps = {copy({input(0)}, {output(0)})};
  } else if (is_first) {
    program.steps = {recv_reduce_right(down, {input(0)}, {output(0)}), send({down}, {output(0)})};
  } else if (is_last) {
    program.steps = {send({up}, {input(0)}), recv(up, {output(0)})};
  } else {
    program.steps = {recv_reduce_right(down, {input(0)}, {scratch(0)}), send({up}, {scratch(0)}),
                     recv(up, {output(0)}), send({down}, {output(0)})};
  }
  return program;
}

}  // namespace

std::string find_gpu_class(std::string& why) {
  const std::string set = settings().get_string("TUTTI_NCCL_GPU");
  if (!set.empty()) return set;
  try {
    const std::string name = cuda::device_info(cuda::current_device()).name;
    if (const std::string_view gpu = gpu_class_of(name); !gpu.empty()) return std::string(gpu);
    why = cat("the costs of the GPU '", name, "' are unknown; set TUTTI_NCCL_GPU to a known class");
  } catch (const Error& error) {
    why = error.what();
  }
  return {};
}

const Algorithm& tree_within_host() {
  static const Algorithm tree = {.collective = Collective::all_reduce,
                                 .name = "nccl_tree",
                                 .source = "NVIDIA/nccl, src/graph/connect.cc",
                                 .grade = Grade::same_bits,
                                 .is_pipeline = true,
                                 .emit = emit_tree,
                                 .id = id_of(Collective::all_reduce, "nccl_tree")};
  return tree;
}

Tuner::Tuner(size_t ranks, size_t nodes) {
  std::string why;
  if (nodes != 1) why = "the communicator spans several hosts";
  if (ranks < 2 || ranks > kMostRanks) why = cat("the communicator has ", ranks, " ranks");
  const std::string gpu = why.empty() ? find_gpu_class(why) : std::string();
  if (gpu.empty()) {
    inform(NCCL_TUNING, cat("NCCL's own predictions are kept for this communicator: ", why));
    return;
  }
  ranks_ = static_cast<int>(ranks);
  const GpuCosts costs = gpu_costs(load_cost_model(), gpu);
  const Shape shape{.ranks = ranks_};
  planner_ = std::make_unique<GpuPlanner>(shape, costs, std::vector<const Algorithm*>(), kSlots);
  planner_of_ll128_ = std::make_unique<GpuPlanner>(shape, with_ll128(costs),
                                                   std::vector<const Algorithm*>(), kSlotsOfLL128);
  inform(NCCL_TUNING, cat("ring and tree are predicted for ", ranks, " GPUs of class ", gpu));
}

void Tuner::fill(ncclFunc_t function, size_t bytes, float* table, int algorithms, int protocols) {
  if (planner_ == nullptr) return;
  const std::lock_guard lock(mutex_);
  for (int algorithm = 0; algorithm < algorithms; ++algorithm) {
    for (int protocol = 0; protocol < protocols; ++protocol) {
      float& entry = table[algorithm * protocols + protocol];
      if (entry == NCCL_ALGO_PROTO_IGNORE) continue;
      entry = time(function, bytes, algorithm, protocol).value_or(entry);
    }
  }
}

std::optional<float> Tuner::time(ncclFunc_t function, size_t bytes, int algorithm, int protocol) {
  const std::optional<Call> call = call_of(function);
  if (!call) return std::nullopt;
  const Algorithm* const program = program_of_nccl(call->collective, algorithm);
  if (program == nullptr || protocol < 0 || protocol >= NCCL_NUM_PROTOCOLS) return std::nullopt;
  const uint64_t typical =
      typical_size(call->has_blocks ? bytes / static_cast<uint64_t>(ranks_) : bytes);
  const auto [entry, is_new] = known_.try_emplace({function, typical, algorithm, protocol});
  if (!is_new) return entry->second;
  GpuPlanner& planner = protocol == NCCL_PROTO_LL128 ? *planner_of_ll128_ : *planner_;
  const GpuCandidate candidate = planner.price(
      *program, protocol == NCCL_PROTO_SIMPLE ? GpuProtocol::simple : GpuProtocol::lines,
      {.collective = call->collective, .bytes = typical, .at_least = Grade::correct});
  if (candidate.excluded.empty()) {
    entry->second = static_cast<float>(candidate.prediction.seconds * 1e6);
  }
  return entry->second;
}

}  // namespace tutti::nccl

#include "collectives/cost/gpu_costs.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "collectives/gpu/call.h"
#include "topology/link_speeds.h"

namespace tutti {

namespace {

constexpr double us = 1e-6;

// Published figures. Bandwidths in 1e9 bytes/s per direction.
//
//   link      bandwidth that a link achieves, times the number of links of a GPU
//             (topology/link_speeds.h, from NCCL, src/graph/topo.h). It is about a
//             fifth below the data sheet bandwidth, because of protocol overhead according to
//             NVIDIA (NVIDIA/nccl-tests, issue 212: 370 of 450).
//   block     bandwidth at which one block forwards: NCCL's limit for a channel that reduces and
//             sends (perChMaxTreeBws on one node, src/graph/tuning.cc); Blackwell: twice Hopper's
//   memory    data sheet bandwidth of the device memory
//   MHz       data sheet boost clock
//   way_us    latency of a store to a polling peer: NCCL's LL hop (hwLatencies, equal for all GPUs)
//   fence_us  additional time of a release. MSCCL++ measured 2.345 us for a signal round trip on
//             two H100 (commit "red.release.sys", microsoft/mscclpp): 1.17 us one way, minus
//             way_us. PCIe: scaled by the latency, because no figure was found.
//   multicast bandwidth of a link for in-switch sums and copies: NCCL's NVLS reaches a bus
//             bandwidth of 480 on 8 H100 (NVIDIA/nccl-tests, doc/PERFORMANCE.md and issues), at
//             which 9/8 of the buffer enter and leave each GPU, so 480 * 9/14. B200: scaled by the
//             links. A100: its switch cannot sum.
struct Published {
  std::string_view name;
  double link;
  double block;
  double memory;
  double MHz;
  double way_us;
  double fence_us;
  double multicast = 0;
  bool mesh = false;
};

constexpr double kMulticastOfH100 = 480.0 * 9 / 14;

const std::array kPublished = {
    Published{"a100", 12 * nvlink_GBps(80), 24, 2039, 1410, 0.6, 0.57},
    Published{"h100", 18 * nvlink_GBps(90), 38.7, 3350, 1980, 0.6, 0.57, kMulticastOfH100},
    Published{"b200", 18 * nvlink_GBps(100), 77.4, 8000, 1965, 0.6, 0.57,
              kMulticastOfH100* nvlink_GBps(100) / nvlink_GBps(90)},
    // The PCI Express classes have the processor and memory of GPUs that are sold as PCIe cards:
    // V100, A100, H100 NVL.
    Published{"pcie3", pci_GBps(8, 16), 24, 900, 1380, 1.0, 0.95},
    Published{"pcie4", pci_GBps(16, 16), 24, 1935, 1410, 1.0, 0.95},
    Published{"pcie5", pci_GBps(32, 16), 38.7, 3938, 1785, 1.0, 0.95},
    // Each GPU has a link to each of seven others; 48 of 64 GB/s are achievable (AMD,
    // "Understanding RCCL Bandwidth and xGMI Performance on AMD Instinct MI300X", 2025). No figures
    // for blocks and latencies were found; the figures of an H100 are used.
    Published{"mi300x", 48, 38.7, 5300, 2100, 0.6, 0.57, 0, true},
};

// Duration in cycles of a load from the L1 and from the L2 cache of an H100: Luo et al.,
// Benchmarking and Dissecting the Nvidia Hopper GPU Architecture, IPDPS workshops 2024. The
// durations on an A100 differ by at most three cycles; no figures were found for a B200. The
// duration of a barrier of 16 warps is an assumption.
constexpr double kFirstLevel = 41;
constexpr double kSecondLevel = 263;
constexpr double kBarrier = 40;
// A step is the time between two barriers. A sending step reads data that earlier steps used
// recently; a receiving step polls memory where the message has just arrived.
constexpr double kSendCycles = kFirstLevel + 2 * kBarrier;
constexpr double kReceiveCycles = kSecondLevel + 2 * kBarrier;

// Time of a launch, assumed to be the same for all classes. It is mainly host and driver time;
// published times of empty kernels range from 1 us (back to back) to 5 us and more (until the first
// instruction).
constexpr double kLaunch = 4.5 * us;

// Maximum number of blocks. It is small compared with a GPU's 100 or more multiprocessors, because
// the other multiprocessors compute meanwhile.
constexpr int32_t kBlocks = gpu::kMailboxShape.blocks;

// 8 of a line's 16 bytes are data, both on the link and in a block's stores.
constexpr double kOfALine = 0.5;

LinkCosts protocol_of(const Published& gpu, double fence, double part) {
  const double cycle = us / gpu.MHz;
  const double pass = 1e-9 / (part * gpu.block);
  LinkCosts link{.call = kLaunch,
                 .send = kSendCycles * cycle + fence,
                 .recv = kReceiveCycles * cycle,
                 .latency = gpu.way_us * us,
                 .local = kSendCycles * cycle,
                 .wire = 1e-9 / (part * gpu.link)};
  // All buffer sizes have the same costs, because latency limits a block, so that caches do not
  // speed it up.
  link.bytes.fill({.send = pass,
                   .recv = pass,
                   .recv_reduce = pass,
                   .reduce = 1e-9 / gpu.block,
                   .copy = 1e-9 / gpu.block});
  return link;
}

GpuCosts costs_of(const Published& gpu) {
  return {.simple = protocol_of(gpu, gpu.fence_us * us, 1),
          .lines = protocol_of(gpu, 0, kOfALine),
          .memory = 1e-9 / gpu.memory,
          .multicast = gpu.multicast > 0 ? 1e-9 / gpu.multicast : 0,
          .blocks = kBlocks,
          .mesh = gpu.mesh};
}

}  // namespace

std::span<const std::string_view> gpu_classes() {
  static const auto names = [] {
    std::array<std::string_view, kPublished.size()> all;
    std::ranges::transform(kPublished, all.begin(), &Published::name);
    return all;
  }();
  return names;
}

std::string_view gpu_class_of(std::string_view device_name) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kClasses = {
      {{"A100", "a100"}, {"H100", "h100"}, {"H200", "h100"}, {"B200", "b200"}}};
  if (device_name.find("PCI") != std::string_view::npos) return {};
  for (const auto& [part, gpu] : kClasses) {
    if (device_name.find(part) != std::string_view::npos) return gpu;
  }
  return {};
}

std::string_view gpu_class_for(std::string_view device_name) {
  const std::string_view known = gpu_class_of(device_name);
  if (!known.empty()) return known;
  return device_name.find("PCI") != std::string_view::npos ? "pcie4" : "h100";
}

GpuCosts gpu_costs(const CostModel& model, std::string_view gpu) {
  const auto measured = model.gpus.find(std::string(gpu));
  if (measured != model.gpus.end()) return measured->second;
  const auto published = std::ranges::find(kPublished, gpu, &Published::name);
  if (published != kPublished.end()) return costs_of(*published);
  std::string known;
  for (const std::string_view name : gpu_classes()) known += cat(known.empty() ? "" : ", ", name);
  for (const auto& [name, costs] : model.gpus) {
    if (std::ranges::find(gpu_classes(), name) == gpu_classes().end()) known += cat(", ", name);
  }
  throw Error(ErrorCode::invalid_argument, cat("no costs are known for the GPU '", gpu, "'"),
              {.remedy = cat("use one of ", known)});
}

}  // namespace tutti

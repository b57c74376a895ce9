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

// As published. Bandwidths in 1e9 bytes a second, of one direction.
//
//   link      a link's achievable rate times the links of a GPU: topology/link_speeds.h, which has
//             them from NCCL (src/graph/topo.h). NVIDIA calls the fifth that is missing to the rate
//             on the box the protocol's overhead (NVIDIA/nccl-tests, issue 212: 370 of 450).
//   block     what one block forwards: NCCL's limit for a channel that reduces and sends
//             (perChMaxTreeBws on one node, src/graph/tuning.cc); twice Hopper's for Blackwell
//   memory    the data sheets' bandwidth of the device's memory
//   MHz       the data sheets' boost clock
//   way_us    a store's way to a peer that polls: NCCL's time of a hop by LL (hwLatencies, the same
//             for all GPUs)
//   fence_us  what a release adds to that. MSCCL++ measured 2.345 us for a signal there and back on
//             two H100 (commit "red.release.sys", microsoft/mscclpp): 1.17 us one way, less way_us.
//             Over PCIe in the ratio of the ways: no figure was found.
//   multicast what a link carries of what the switch adds up and copies: NCCL's NVLS reaches a bus
//             bandwidth of 480 on 8 H100 (NVIDIA/nccl-tests, doc/PERFORMANCE.md and issues), where
//             9/8 of the buffer enter and leave each GPU, so 480 * 9/14; B200's in the ratio of the
//             links. No such switch for A100.
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
    // With the processor and memory of GPUs that are sold for such slots: V100, A100, H100 NVL.
    Published{"pcie3", pci_GBps(8, 16), 24, 900, 1380, 1.0, 0.95},
    Published{"pcie4", pci_GBps(16, 16), 24, 1935, 1410, 1.0, 0.95},
    Published{"pcie5", pci_GBps(32, 16), 38.7, 3938, 1785, 1.0, 0.95},
    // A link to each of seven others: 48 of 64 can be had (AMD, "Understanding RCCL Bandwidth and
    // xGMI Performance on AMD Instinct MI300X", 2025). No figures were found of blocks and ways,
    // for which an H100's stand.
    Published{"mi300x", 48, 38.7, 5300, 2100, 0.6, 0.57, 0, true},
};

// Cycles of a load from the first and the second level's cache on an H100 (an A100's are within
// three of them; none were found of a B200): Luo et al., Benchmarking and Dissecting the Nvidia
// Hopper GPU Architecture, IPDPS workshops 2024. A barrier of 16 warps is assumed to take 40.
constexpr double kFirstLevel = 41;
constexpr double kSecondLevel = 263;
constexpr double kBarrier = 40;
// A step is between two barriers. One that sends reads what earlier steps had in their hands; one
// that receives polls the memory, where the message just came in.
constexpr double kSendCycles = kFirstLevel + 2 * kBarrier;
constexpr double kReceiveCycles = kSecondLevel + 2 * kBarrier;

// Assumed, for all of them: a launch is the host's and the driver's time more than the GPU's, and
// what is published of kernels that do nothing goes from 1 us (back to back) to 5 us and more (to
// the first instruction).
constexpr double kLaunch = 4.5 * us;

// Few of the more than 100 processors of a GPU, which compute meanwhile.
constexpr int32_t kBlocks = gpu::kMailboxShape.blocks;

// Of 16 bytes in a line, 8 are data: on the link and in the stores of a block.
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
  // A block does not move faster what is in a cache: it waits for the way there, not for the rate.
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
  throw Error(ErrorCode::invalid_argument, cat("there are no costs of a GPU '", gpu, "'"),
              {.remedy = cat("use one of ", known)});
}

}  // namespace tutti

#include "collectives/cluster/published.h"

namespace tutti {

// Bandwidths are from the vendors' data sheets, per direction.
//
//   ll_GBps     NCCL's limit of ll on one host (llMaxBws, src/graph/tuning.cc: Ampere 39, Hopper
//               87.7); kLlBetweenGBps: between hosts (19 to 22.5)
//   step_us     NVLink: fitted to Polaris' tables (argonne-lcf/alcf-nccl-tests, 4 A100 per host,
//               none of the systems below), between NCCL's default (0.6, 1.9 and 3.4:
//               hwLatencies) and its measurement for Rubin (4.0, 5.5 and 14.3:
//               src/tuning/platform/rubin.h). PCI Express and InfiniBand: NCCL's default.
//               EFA: 20 us network latency per message (tuner_net_latency of aws-ofi-nccl) instead
//               of InfiniBand's 5, and the same again for acknowledged messages.
//   part        InfiniBand: 370 to 390 of 400 GB/s (NVIDIA/nccl-tests, doc/PERFORMANCE.md and
//               issues); Slingshot: 36 of 50 on Polaris; TCPXO: 185 to 190 of 200 (Google's page on
//               A3 Mega); others: in between
//   all_to_all  Slingshot: fitted to Polaris; others: assumed
namespace {

constexpr std::array kGpus = {
    PublishedGpu{"A100", "a100", 300, 39},   PublishedGpu{"H100", "h100", 450, 87.7},
    PublishedGpu{"H200", "h100", 450, 87.7}, PublishedGpu{"B200", "b200", 900, 120},
    PublishedGpu{"GB200", "b200", 900, 120}, PublishedGpu{"MI300X", "mi300x", 64, 39}};

constexpr std::array kNetworks = {PublishedNetwork{"IB", 0.95, {5, 9, 14}, 1.5, 0.85},
                                  PublishedNetwork{"RoCE", 0.92, {6, 10, 16}, 1.5, 0.8},
                                  PublishedNetwork{"EFA", 0.92, {20, 32, 42}, 5, 0.7},
                                  PublishedNetwork{"TCPXO", 0.92, {20, 32, 42}, 5, 0.7},
                                  PublishedNetwork{"Slingshot", 0.75, {5, 9, 14}, 3, 0.6},
                                  PublishedNetwork{"Ethernet", 0.7, {30, 45, 60}, 10, 0.6},
                                  PublishedNetwork{"NVLink", 0.8, {1.5, 3, 6.5}, 1, 0.9}};

constexpr std::array kSystems = {
    PublishedSystem{"dgx-a100", "8xA100, NVLink 300, IB 8x25", "NVIDIA DGX A100's data sheet"},
    PublishedSystem{"dgx-h100", "8xH100, NVLink 450, IB 8x50", "NVIDIA DGX H100's data sheet"},
    PublishedSystem{"dgx-h200", "8xH200, NVLink 450, IB 8x50", "NVIDIA DGX H200's data sheet"},
    PublishedSystem{"dgx-b200", "8xB200, NVLink 900, IB 8x50", "NVIDIA DGX B200's data sheet"},
    PublishedSystem{"gb200-nvl72", "72xGB200, NVLink 900, IB 72x50",
                    "NVIDIA GB200 NVL72's data sheet; a host is a domain of NVLink"},
    PublishedSystem{"p4d", "8xA100, NVLink 300, EFA 4x12.5", "AWS, EC2 P4 instances"},
    PublishedSystem{"p5", "8xH100, NVLink 450, EFA 32x12.5", "AWS, EC2 P5 instances"},
    PublishedSystem{"p5en", "8xH200, NVLink 450, EFA 16x25", "AWS, EC2 P5 instances"},
    PublishedSystem{"p6-b200", "8xB200, NVLink 900, EFA 8x50", "AWS, EC2 P6 instances"},
    PublishedSystem{"nd-a100-v4", "8xA100, NVLink 300, IB 8x25", "Azure, ND A100 v4-series"},
    PublishedSystem{"nd-h100-v5", "8xH100, NVLink 450, IB 8x50", "Azure, ND H100 v5-series"},
    PublishedSystem{"a3-mega", "8xH100, NVLink 450, TCPXO 8x25", "Google Cloud, A3 machine series"},
    PublishedSystem{"a3-ultra", "8xH200, NVLink 450, RoCE 8x50", "Google Cloud, A3 machine series"},
    PublishedSystem{"mi300x", "8xMI300X, xGMI 64, RoCE 8x50",
                    "AMD Instinct MI300X platform's data sheet; a card of 400 Gb/s for each GPU"}};

}  // namespace

std::span<const PublishedGpu> published_gpus() { return kGpus; }
std::span<const PublishedNetwork> published_networks() { return kNetworks; }
std::span<const PublishedSystem> published_systems() { return kSystems; }

std::array<double, kMessageProtocols.size()> steps_inside(bool nvlink) {
  return nvlink ? std::array{0.8, 3.0, 6.5} : std::array{1.0, 0.0, 5.7};
}

}  // namespace tutti

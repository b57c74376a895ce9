// Published figures of GPUs, of networks between hosts and of whole systems, and the error that
// predictions from them have.
#pragma once

#include <array>
#include <span>
#include <string_view>

#include "collectives/cluster/cluster.h"

namespace tutti {

struct PublishedGpu {
  std::string_view name;
  std::string_view costs;  // the class in gpu_costs.h that has its link's rate
  double raw_GBps;         // of its link as printed on the box, each direction
  double ll_GBps;
};

struct PublishedNetwork {
  std::string_view name;
  double part;  // of the cards' rate that rings reach
  std::array<double, kMessageProtocols.size()> step_us;
  double message_us;
  double all_to_all;
};

struct PublishedSystem {
  std::string_view name;
  std::string_view line;  // of one host
  std::string_view source;
};

std::span<const PublishedGpu> published_gpus();
std::span<const PublishedNetwork> published_networks();
std::span<const PublishedSystem> published_systems();

// Of links inside a host: NVLink's steps, or those over PCI Express.
std::array<double, kMessageProtocols.size()> steps_inside(bool nvlink);

// Of a call, beside its steps.
inline constexpr double kLaunchUs = 15;
inline constexpr double kSumsUs = 45;
inline constexpr double kLlBetweenGBps = 20;
inline constexpr PredictionErrors kPublishedErrors = {{0.6, 0.4, 0.2}};

}  // namespace tutti

// Published figures of GPUs, of networks between hosts and of whole systems, and the errors of
// predictions from these figures.
#pragma once

#include <array>
#include <span>
#include <string_view>

#include "collectives/cluster/cluster.h"

namespace tutti {

struct PublishedGpu {
  std::string_view name;
  std::string_view costs;  // class in gpu_costs.h that has this GPU's link
  double raw_GBps;         // data sheet bandwidth of the GPU's link, per direction
  double ll_GBps;
};

struct PublishedNetwork {
  std::string_view name;
  double part;  // fraction of the cards' bandwidth that rings reach
  std::array<double, kMessageProtocols.size()> step_us;
  double message_us;
  double all_to_all;
};

struct PublishedSystem {
  std::string_view name;
  std::string_view line;  // one host, in the form that load_cluster() reads
  std::string_view source;
};

std::span<const PublishedGpu> published_gpus();
std::span<const PublishedNetwork> published_networks();
std::span<const PublishedSystem> published_systems();

// Returns the step times of a host's internal links, which are NVLink or PCI Express.
std::array<double, kMessageProtocols.size()> steps_inside(bool nvlink);

// Fixed time of every call, and additional fixed time of a call whose sums a switch computes, in
// microseconds.
inline constexpr double kLaunchUs = 15;
inline constexpr double kSumsUs = 45;
inline constexpr double kLlBetweenGBps = 20;
inline constexpr PredictionErrors kPublishedErrors = {{0.6, 0.4, 0.2}};

}  // namespace tutti

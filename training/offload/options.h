// What of a rank's memory is in files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tutti::training {

inline constexpr int64_t kOffloadWindow = 64;  // MiB

struct OffloadOptions {
  // "optimizer": the optimizer's states, masters, and gradients of which a rank keeps shards;
  // "parameters": values of which a rank keeps shards (ZeRO stage 3); "activations": the inputs of
  // units that are recomputed.
  std::vector<std::string> kinds;
  std::string directory;
  // MiB of the optimizer's files that are in memory at once, at most.
  int64_t window = kOffloadWindow;

  bool has(const char* kind) const;
  bool optimizer() const { return has("optimizer"); }
  bool parameters() const { return has("parameters"); }
  bool activations() const { return has("activations"); }
};

// Throws Error(invalid_argument) for a kind that there is not, and for kinds without a directory.
void check(const OffloadOptions& options);

}  // namespace tutti::training

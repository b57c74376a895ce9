// Settings of offloading: which state of a rank is in files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tutti::training {

inline constexpr int64_t kOffloadWindow = 64;  // in MiB

struct OffloadOptions {
  // "optimizer": optimizer states, masters and sharded gradients; "parameters": sharded values
  // (ZeRO stage 3); "activations": inputs of recomputed units.
  std::vector<std::string> kinds;
  std::string directory;
  // Maximum amount of the optimizer's files that is in memory at once, in MiB.
  int64_t window = kOffloadWindow;

  bool has(const char* kind) const;
  bool optimizer() const { return has("optimizer"); }
  bool parameters() const { return has("parameters"); }
  bool activations() const { return has("activations"); }
};

// Throws Error(invalid_argument) for an unknown kind, and if there are kinds but no directory.
void check(const OffloadOptions& options);

}  // namespace tutti::training

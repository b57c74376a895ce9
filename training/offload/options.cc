#include "training/offload/options.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "base/error.h"
#include "base/text.h"

namespace tutti::training {

bool OffloadOptions::has(const char* kind) const { return std::ranges::count(kinds, kind) > 0; }

void check(const OffloadOptions& options) {
  constexpr std::array<std::string_view, 3> kKinds = {"optimizer", "parameters", "activations"};
  for (const std::string& kind : options.kinds) {
    if (std::ranges::count(kKinds, kind) > 0) continue;
    throw Error(ErrorCode::invalid_argument, cat("unknown kind of state in --offload: ", kind),
                {.remedy = "use optimizer, parameters or activations, separated by commas"});
  }
  if (!options.kinds.empty() && options.directory.empty()) {
    throw Error(ErrorCode::invalid_argument, "--offload requires a directory for its files",
                {.remedy = "add --offload-dir DIR, on a local disk"});
  }
}

}  // namespace tutti::training

// All ranks do something, or none does.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/text.h"

namespace tutti::gpu {

// Gives each rank's bytes, equally many, to all ranks; in the order of the ranks.
using Exchange = std::function<std::vector<std::byte>(std::span<const std::byte> mine)>;

class Agreement {
 public:
  explicit Agreement(const Exchange& exchange) : exchange_(exchange) {}

  // Keeps the first Error that this rank's part throws.
  template <typename Act>
  void attempt(const Act& act) {
    if (failure_) return;
    try {
      act();
    } catch (const Error& error) {
      failure_ = error;
    }
  }

  // Collective. The first rank whose part has failed, or -1.
  int failed() {
    const std::byte mine{static_cast<unsigned char>(failure_ ? 1 : 0)};
    const std::vector<std::byte> all = exchange_(std::span(&mine, 1));
    for (size_t rank = 0; rank < all.size(); ++rank) {
      if (all[rank] != std::byte{0}) return static_cast<int>(rank);
    }
    return -1;
  }

  // Collective. Throws on all ranks where a part has failed: there its Error, elsewhere that this
  // happened to that rank's GPU.
  void require(const char* what) {
    const int rank = failed();
    if (failure_) throw Error(*failure_);
    if (rank < 0) return;
    throw Error(ErrorCode::unsupported, cat("of the GPU of rank ", rank, ": ", what),
                {.cause = "see what that rank says"});
  }

 private:
  const Exchange& exchange_;
  std::optional<Error> failure_;
};

}  // namespace tutti::gpu

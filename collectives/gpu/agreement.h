// Makes sure that either all ranks take a step or none does.
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

// Function that gathers each rank's bytes (equally many) on all ranks, in rank order.
using Exchange = std::function<std::vector<std::byte>(std::span<const std::byte> mine)>;

class Agreement {
 public:
  explicit Agreement(const Exchange& exchange) : exchange_(exchange) {}

  // Runs this rank's part of the step and keeps the Error that it throws. Does nothing if an
  // earlier attempt has failed.
  template <typename Act>
  void attempt(const Act& act) {
    if (failure_) return;
    try {
      act();
    } catch (const Error& error) {
      failure_ = error;
    }
  }

  // Returns the first rank whose part has failed, or -1. Collective.
  int failed() {
    const std::byte mine{static_cast<unsigned char>(failure_ ? 1 : 0)};
    const std::vector<std::byte> all = exchange_(std::span(&mine, 1));
    for (size_t rank = 0; rank < all.size(); ++rank) {
      if (all[rank] != std::byte{0}) return static_cast<int>(rank);
    }
    return -1;
  }

  // Throws on all ranks if the part of some rank has failed: a failed rank throws its own Error,
  // and the other ranks throw an error that names the first failed rank. `what` describes the
  // failure. Collective.
  void require(const char* what) {
    const int rank = failed();
    if (failure_) throw Error(*failure_);
    if (rank < 0) return;
    throw Error(ErrorCode::unsupported, cat("GPU of rank ", rank, ": ", what),
                {.cause = "see the error of that rank"});
  }

 private:
  const Exchange& exchange_;
  std::optional<Error> failure_;
};

}  // namespace tutti::gpu

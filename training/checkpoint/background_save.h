// A save that goes on while its caller does other work.
//
//   caller   |copy|----- steps -----|agree: all have written|---- steps ----|agree: published|
//   threads        |write, fsync|                            |rank 0: publish, prune|
#pragma once

#include <cstddef>
#include <future>
#include <span>
#include <vector>

#include "training/checkpoint/save.h"

namespace tutti::training {

class BackgroundSave {
 public:
  // Collective. Copies what the pieces refer to into `memory`, which grows if need be and is not
  // touched by others until the save is over, and begins to write. Throws as save_checkpoint().
  BackgroundSave(const SaveRequest& request, std::span<const TensorPiece> pieces, Group group,
                 std::vector<std::byte>& memory);
  // Waits for this rank's thread. A save that is not over leaves nothing but the older steps.
  ~BackgroundSave() = default;
  BackgroundSave(const BackgroundSave&) = delete;
  BackgroundSave& operator=(const BackgroundSave&) = delete;

  // Whether this rank's thread has work left. When no rank has, advance() does not wait.
  bool busy() const;
  // Collective: goes on to the next part of the save. Returns whether it is over. Throws, on every
  // rank, as save_checkpoint() does; then it is over as well.
  bool advance();

 private:
  CheckpointSave save_;
  bool writing_ = true;     // else publishing
  std::future<void> work_;  // ends before save_ does
};

}  // namespace tutti::training

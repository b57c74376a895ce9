// A save that runs in the background while its caller does other work.
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
  // Collective. Copies the pieces' memory into `memory`, which grows if needed and must not be
  // touched until the save has ended, and starts to write. Throws as save_checkpoint().
  BackgroundSave(const SaveRequest& request, std::span<const TensorPiece> pieces, Group group,
                 std::vector<std::byte>& memory);
  // Waits for this rank's thread. A save that has not ended leaves only the older steps.
  ~BackgroundSave() = default;
  BackgroundSave(const BackgroundSave&) = delete;
  BackgroundSave& operator=(const BackgroundSave&) = delete;

  // True while this rank's thread works. Once no rank is busy, advance() does not block.
  bool busy() const;
  // Collective: starts the next part of the save. Returns true if the save has ended. Throws, on
  // every rank, as save_checkpoint() does; the save has then ended as well.
  bool advance();

 private:
  CheckpointSave save_;
  bool writing_ = true;     // false: publishing
  std::future<void> work_;  // destroyed before save_
};

}  // namespace tutti::training

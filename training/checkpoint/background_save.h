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
  // Collective. Copies the memory of `pieces` into `memory` and starts to write. `memory` grows if
  // needed and must not be touched until the save has ended. Throws as save_checkpoint() does.
  BackgroundSave(const SaveRequest& request, std::span<const TensorPiece> pieces, Group group,
                 std::vector<std::byte>& memory);
  // Waits for this rank's thread. If the step was not being published yet, it is discarded, and the
  // directory keeps its older steps.
  ~BackgroundSave() = default;
  BackgroundSave(const BackgroundSave&) = delete;
  BackgroundSave& operator=(const BackgroundSave&) = delete;

  // Returns true while this rank's thread works. Once no rank is busy, advance() does not wait for
  // disks.
  bool busy() const;
  // Collective. Waits for this rank's thread, and starts the next part of the save or, after the
  // last part, ends the save. Returns true if the save has ended. If a part failed, the call that
  // ends the save throws on every rank, as save_checkpoint() does.
  bool advance();

 private:
  CheckpointSave save_;
  bool writing_ = true;     // false once the files are written and rank 0 publishes the step
  std::future<void> work_;  // declared after save_, so that it is destroyed before it
};

}  // namespace tutti::training

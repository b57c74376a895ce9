// Writes the order of updates of a run whose ranks do not wait for each other to a file, or reads
// it from a file for replay.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "collectives/communicator.h"
#include "training/parallel/replay/update_order.h"
#include "training/parallel/sync_options.h"

namespace tutti::training {

// Reads or writes files of orders. All calls are collective, in the same order on all ranks. They
// throw what OrderRecorder and RecordedOrder throw, on all ranks.
class OrderFiles {
 public:
  // Takes the names of the files from `options`. A file is opened when it is first needed.
  OrderFiles(Communicator ranks, const SyncOptions& options);

  // Returns the recorded order of steps [wanted.first, wanted.last], or null if there is no replay.
  const StretchOrder* replayed(const StretchOrder& wanted);
  // Returns the recorded stretch that begins with step `first`, or null if there is none.
  const StretchOrder* replayed_from(int64_t first);
  // Writes a stretch. `own`: the updates that this rank applied if it is one of the stretch's
  // servers, which are the ranks from `first_server` on.
  void record(StretchOrder stretch, int first_server, const UpdateOrder& own);

 private:
  void open_replayed();

  Communicator ranks_;
  std::string record_;
  std::string replay_;
  bool is_recording_ = false;
  std::optional<OrderRecorder> recorder_;  // set on the first rank
  std::optional<RecordedOrder> recorded_;
};

}  // namespace tutti::training

// The files of a run whose ranks do not wait for each other: where the order of what they apply is
// written, and where one is read that they keep.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "collectives/communicator.h"
#include "training/parallel/replay/update_order.h"
#include "training/parallel/sync_options.h"

namespace tutti::training {

// Every call is made by all ranks, in one order. They throw what OrderRecorder and RecordedOrder
// throw, on all ranks.
class OrderFiles {
 public:
  // The files of `options`, if it has any.
  OrderFiles(Communicator ranks, const SyncOptions& options);

  // The recorded order of the steps [wanted.first, wanted.last]; null where none is replayed.
  const StretchOrder* replayed(const StretchOrder& wanted);
  // That of the stretch that begins with the step, if one is replayed and has such a stretch.
  const StretchOrder* replayed_from(int64_t first);
  // Writes a stretch. `own`: what this rank applied, if it is one of the stretch's servers, which
  // are ranks from `first_server` on.
  void record(StretchOrder stretch, int first_server, const UpdateOrder& own);

 private:
  void open_replayed();

  Communicator ranks_;
  std::string record_;
  std::string replay_;
  bool is_recording_ = false;
  std::optional<OrderRecorder> recorder_;  // on the first rank
  std::optional<RecordedOrder> recorded_;
};

}  // namespace tutti::training

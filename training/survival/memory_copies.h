// Checkpoints in memory: each rank keeps the part of the run's state that it would save, and other
// ranks keep copies of the part. A death then loses no state, and no rank waits for a disk.
//
//   rank          0      1      2      3
//   its own part  A      B      C      D       the state that the rank would save
//   a copy of     D      A      B      C       the part of a rank on another host, if possible
//   a copy of     C      D      A      B       protects against two deaths at once
//
// Two generations are kept. A step cannot complete before all ranks have received the copies that
// were made before it. If a death interrupts a generation, the previous one is therefore complete.
//
// Wang et al.: Gemini, Fast Failure Recovery in Distributed Training with In-Memory Checkpoints,
// SOSP 2023.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "collectives/communicator.h"
#include "training/checkpoint/tensor_piece.h"
#include "training/survival/kept_state.h"

namespace tutti::training {

// The parts and copies on this rank. The object outlives the sessions of a process: after a loss of
// ranks, the next session continues from the state that the previous one kept. One thread at a time
// may use the object.
class MemoryCopies {
 public:
  // Creates an empty object. `copies`: number of other ranks that keep a copy of each rank's part
  // (all other ranks, if there are fewer). The run survives that many simultaneous deaths.
  explicit MemoryCopies(int copies = 2);

  // Collective over `world`, between two steps. Copies the memory of the pieces to this rank's
  // part, and sends copies to other ranks. `state`: the trainer's state, equal on all ranks.
  void keep(Communicator& world, int64_t step, const Json& state,
            std::span<const TensorPiece> pieces);
  struct Found {
    std::shared_ptr<KeptState> state;  // the newest complete state; null if there is none
    // False if no completed step can be lost: a survivor that is not a spare has no state, or the
    // newest state is an incomplete copy of step 0.
    bool begun = false;
  };
  // Collective over the survivors. Finds the newest complete state. `spare`: true if this rank took
  // no part in training, and has no state.
  Found find(Communicator& survivors, bool spare = false);

  int64_t bytes() const;  // Returns the bytes of memory that the copies occupy.

 private:
  // Sends this rank's part to rank r + distance, where r is this rank, and receives the part of
  // rank r - distance (modulo the number of ranks).
  static void exchange(Communicator& world, int distance, const StatePart& own, StatePart& copy);
  void look_around(Communicator& world);

  // A rank's own part, then copies of other ranks' parts.
  using Generation = std::vector<std::shared_ptr<StatePart>>;
  std::array<Generation, 2> generations_;
  size_t next_ = 0;             // index of the generation to write next
  bool begun_ = false;          // true if a state was kept since the run started or continued
  int64_t epoch_ = 0;           // number of find() calls; distinguishes repetitions of a step
  std::vector<int> distances_;  // distances from a rank to the holders of its copies
  bool looked_around_ = false;  // true once distances_ are known
};

}  // namespace tutti::training

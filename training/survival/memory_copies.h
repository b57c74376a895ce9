// Checkpoints in memory: each rank keeps what it would save of the run's state, and another rank
// keeps a copy of it, so that a death loses nothing and no disk is waited for.
//
//   rank          0      1      2      3
//   its own part  A      B      C      D       of the state after a step
//   a copy of     D      A      B      C       another rank's: on another host, where it can be
//   and of        C      D      A      B       so that no two deaths at once take a part along
//
// Two generations are kept. A step cannot be done before all ranks have the copies that were made
// before it, so when a death interrupts a generation, the one before it is whole.
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

// Outlives the runs of a process that go on from each other's states. One thread at a time.
class MemoryCopies {
 public:
  // `copies`: of each rank's part, on so many other ranks, as far as there are: so many deaths at
  // once are survived.
  explicit MemoryCopies(int copies = 2);

  // Collective over `world`, between two steps: copies what the pieces refer to. `state`: the
  // trainer's own, alike on all ranks.
  void keep(Communicator& world, int64_t step, const Json& state,
            std::span<const TensorPiece> pieces);
  struct Found {
    std::shared_ptr<KeptState> state;  // the newest that is all there; null: there is none
    // A step may have been done: all of those that are left, but spares, have kept a state.
    bool begun = false;
  };
  // Collective over those that are left. `spare`: this one took no part, and has kept nothing.
  Found find(Communicator& survivors, bool spare = false);

  int64_t bytes() const;  // of memory that it holds

 private:
  // Sends this rank's part to the one at `distance`, and takes that of the one as far behind.
  static void exchange(Communicator& world, int distance, const StatePart& own, StatePart& copy);
  void look_around(Communicator& world);

  // A rank's own part, and then others'.
  using Generation = std::vector<std::shared_ptr<StatePart>>;
  std::array<Generation, 2> generations_;
  size_t next_ = 0;             // the generation that is written next
  bool begun_ = false;          // a state was kept since the run has begun, or begun again
  int64_t epoch_ = 0;           // how often find() was called: tells equal steps of a run apart
  std::vector<int> distances_;  // from a rank to those that have its copies
  bool looked_around_ = false;  // they are known
};

}  // namespace tutti::training

// Assembles the state of a run from the copies that ranks keep in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "collectives/communicator.h"
#include "training/checkpoint/piecewise_source.h"

namespace tutti::training {

// One rank's part of the state, with the contents of that rank's file in a checkpoint.
struct StatePart {
  bool whole = false;  // false while it is being written
  int64_t epoch = 0;   // number of MemoryCopies::find() calls before this part was written
  int64_t step = 0;
  int rank = 0;             // the rank whose part it is
  int ranks = 1;            // number of ranks whose parts make up the state
  std::string description;  // JSON: "state" and "pieces" (describe_piece()), in the order of bytes
  std::vector<std::byte> bytes;
};

// The assembled state. Values may be in other ranks' memory, so reading takes two passes:
//
//   reads of all that this rank needs         return nothing; the requests are recorded
//   fetch()                                   collective: ranks send each other what was requested
//   the same reads, in the same order         return the values
class KeptState : public PiecewiseSource {
 public:
  struct Part {
    int holder = 0;                         // the rank of `survivors` that has the part in memory
    std::shared_ptr<const StatePart> kept;  // the part itself; null unless this rank has it
    Json description;                       // description of the StatePart
  };
  // Assembles the state. `parts`: indexed by the rank that had the part. `survivors` must outlive
  // the object. Throws Error(mismatch) for parts of different states.
  KeptState(Communicator& survivors, int64_t step, std::vector<Part> parts);

  int64_t step() const { return manifest().step; }
  const Json& state() const { return manifest().state; }

  // Collective over the survivors. Exchanges the values that reads have requested.
  void fetch();

 private:
  // A range of bytes of a part that was requested.
  struct RequestedRange {
    int64_t part = 0;
    int64_t first = 0;
    int64_t count = 0;
    bool operator==(const RequestedRange&) const = default;
  };
  const std::byte* bytes_of(const StoredPiece& piece, const std::string& name, size_t first,
                            size_t count) const override;
  std::vector<std::vector<RequestedRange>> requests_of_all() const;

  Communicator& survivors_;
  std::vector<Part> parts_;
  // for each part, the offsets of its pieces, by piece_name()
  std::vector<std::map<std::string, int64_t>> places_;
  bool fetched_ = false;
  mutable std::vector<RequestedRange> wanted_;
  mutable size_t served_ = 0;  // number of requests that have been served
  // bytes received from other ranks, in the order of holders, then of requests
  std::vector<std::byte> received_;
  std::vector<size_t> place_of_wanted_;  // for each request, its offset in received_
};

}  // namespace tutti::training

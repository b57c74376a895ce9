// The state of a run, put together from what ranks keep of it in memory.
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

// What one rank had of it: as in a checkpoint's file of that rank.
struct StatePart {
  bool whole = false;  // else it is being written
  int64_t epoch = 0;
  int64_t step = 0;
  int rank = 0;
  int ranks = 1;
  std::string description;  // JSON: "state" and "pieces" (describe_piece()), in the order of bytes
  std::vector<std::byte> bytes;
};

// Reading takes two passes, because values may lie in other ranks' memory:
//
//   read everything that this rank wants      nothing is changed; what is wanted is noted down
//   fetch()                                   collective: ranks send each other what they want
//   read the same, in the same order          now there are values
class KeptState : public PiecewiseSource {
 public:
  struct Part {
    int holder = 0;                         // a rank of `survivors`
    std::shared_ptr<const StatePart> kept;  // where this rank holds it
    Json description;                       // StatePart's
  };
  // By the rank of those that kept the state; `survivors` outlives it. Throws Error(mismatch) for
  // parts that are not of one state.
  KeptState(Communicator& survivors, int64_t step, std::vector<Part> parts);

  int64_t step() const { return manifest().step; }
  const Json& state() const { return manifest().state; }

  void fetch();

 private:
  // Bytes of a part.
  struct Wanted {
    int64_t part = 0;
    int64_t first = 0;
    int64_t count = 0;
    bool operator==(const Wanted&) const = default;
  };
  const std::byte* bytes_of(const StoredPiece& piece, const std::string& name, size_t first,
                            size_t count) const override;
  std::vector<std::vector<Wanted>> wishes_of_all() const;

  Communicator& survivors_;
  std::vector<Part> parts_;
  std::vector<std::map<std::string, int64_t>> places_;  // by part: pieces' first bytes, by name
  bool fetched_ = false;
  mutable std::vector<Wanted> wanted_;
  mutable size_t served_ = 0;            // of these
  std::vector<std::byte> received_;      // what lies elsewhere, by holder and then in that order
  std::vector<size_t> place_of_wanted_;  // in received_
};

}  // namespace tutti::training

// Which ranks have which tokens of a micro-batch, where the samples' tokens are dealt out over the
// context axis, and what each rank's queries see of the others' keys.
//
// Ranks get as many tokens each, and as large a part of the mask: its area, the pairs of a query
// and a key that it sees, is counted. Of one causal sample that comes to pieces i and 2p - 1 - i
// for rank i of p ("zigzag"):
//
//   keys ->      queries of rank
//   #            0
//   # #          1                 10 pairs: 1 + 4 and 2 + 3
//   # # #        1
//   # # # #      0
//
// Tokens are numbered sample after sample. Several documents in a sample are cut as finely as it
// takes for even areas, down to single tokens.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "training/core/placement.h"

namespace tutti::training {

// All tokens of a micro-batch, and what they see.
struct TokenMask {
  int64_t samples = 0;
  int64_t positions = 0;  // of each sample
  // MicroBatch::document_starts of all tokens, and SelfAttentionOptions::window.
  std::span<const int32_t> document_starts = {};
  int64_t window = 0;

  int64_t tokens() const { return samples * positions; }
  // Whether a token may not see all of its sample that is before it.
  bool hides() const { return window > 0 || !document_starts.empty(); }
  // The first token that a token sees, and how many it sees.
  int64_t first_seen(int64_t token) const;
  int64_t area(int64_t token) const { return token + 1 - first_seen(token); }
};

// By rank: its tokens, ascending.
std::vector<std::vector<Share>> deal_tokens(const TokenMask& mask, int ranks);

// The deal as one of its ranks sees it. Rows are a rank's tokens in their order.
class TokenDeal {
 public:
  TokenDeal(const TokenMask& mask, int rank, int ranks);
  TokenDeal(const TokenDeal&) = delete;
  TokenDeal& operator=(const TokenDeal&) = delete;

  int rank() const { return rank_; }
  int ranks() const { return static_cast<int>(of_rank_.size()); }
  std::span<const Share> ranges(int rank) const { return at(rank).ranges; }
  int64_t count(int rank) const { return at(rank).count; }
  int64_t most() const;  // that any rank has
  // The rows of a rank's keys that some query of this rank sees, and those of this rank that some
  // query of that one sees.
  Share seen_of(int rank) const { return at(rank).seen_of; }
  Share seen_by(int rank) const { return at(rank).seen_by; }
  // By query of this rank: of those rows of a rank the first that it sees, and the one after the
  // last (AttentionShape::starts and ends).
  std::span<const int32_t> starts(int rank) const { return at(rank).starts; }
  std::span<const int32_t> ends(int rank) const { return at(rank).ends; }
  const TokenMask& mask() const { return mask_; }

 private:
  struct OfRank {
    std::vector<Share> ranges;
    int64_t count = 0;
    std::vector<int32_t> starts, ends;
    Share seen_of, seen_by;
  };
  const OfRank& at(int rank) const { return of_rank_[static_cast<size_t>(rank)]; }

  int rank_;
  std::vector<int32_t> document_starts_;
  TokenMask mask_;
  std::vector<OfRank> of_rank_;
};

}  // namespace tutti::training

// Division of a micro-batch's tokens over the context axis: the tokens of each rank, and the keys
// of other ranks that each rank's queries attend to.
//
// Ranks get equal numbers of tokens and equal areas of the attention mask; the area of a query is
// the number of keys that it attends to. For one causal sample, rank i of p gets pieces i and 2p -
// 1 - i ("zigzag"):
//
//   keys ->      queries of rank
//   #            0
//   # #          1                 10 pairs: 1 + 4 and 2 + 3
//   # # #        1
//   # # # #      0
//
// Tokens are numbered sample after sample. Samples of several documents are cut as finely as even
// areas need, down to single tokens.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "training/core/placement.h"

namespace tutti::training {

// All tokens of a micro-batch, and their attention mask.
struct TokenMask {
  int64_t samples = 0;
  int64_t positions = 0;  // of each sample
  // MicroBatch::document_starts of all tokens, and SelfAttentionOptions::window.
  std::span<const int32_t> document_starts = {};
  int64_t window = 0;

  int64_t tokens() const { return samples * positions; }
  // True if some token cannot attend to all tokens of its sample that precede it.
  bool hides() const { return window > 0 || !document_starts.empty(); }
  // The first token that `token` attends to.
  int64_t first_seen(int64_t token) const;
  int64_t area(int64_t token) const { return token + 1 - first_seen(token); }
};

// Returns the tokens of each rank, ascending.
std::vector<std::vector<Share>> deal_tokens(const TokenMask& mask, int ranks);

// The division as one of its ranks sees it. Row i of a rank is its token i, ascending.
class TokenDeal {
 public:
  TokenDeal(const TokenMask& mask, int rank, int ranks);
  TokenDeal(const TokenDeal&) = delete;
  TokenDeal& operator=(const TokenDeal&) = delete;

  int rank() const { return rank_; }
  int ranks() const { return static_cast<int>(of_rank_.size()); }
  std::span<const Share> ranges(int rank) const { return at(rank).ranges; }
  int64_t count(int rank) const { return at(rank).count; }
  int64_t most() const;  // largest number of tokens of any rank
  // Rows of that rank's keys that some query of this rank attends to, and rows of this rank's keys
  // that some query of that rank attends to.
  Share seen_of(int rank) const { return at(rank).seen_of; }
  Share seen_by(int rank) const { return at(rank).seen_by; }
  // For each query of this rank: the first of the rows seen_of(rank) that it attends to, and one
  // past the last (AttentionShape::starts and ends).
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

// Divides a micro-batch's tokens over the ranks of the context axis. Determines the tokens of each
// rank, and the keys of other ranks to which each rank's queries attend.
//
// Ranks get equal numbers of tokens and equal areas of the attention mask, with deviations of at
// most 2% if possible. The area of a query is the number of keys to which it attends. One causal
// sample is cut into 2p pieces, of which rank i of p gets pieces i and 2p - 1 - i ("zigzag"):
//
//   keys ->      queries of rank
//   #            0
//   # #          1                 10 pairs: 1 + 4 and 2 + 3
//   # # #        1
//   # # # #      0
//
// Tokens are numbered sample after sample. Samples of several documents are cut as finely as needed
// to even out the areas, down to single tokens.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "training/core/placement.h"

namespace tutti::training {

// All tokens of a micro-batch, and their attention mask.
struct TokenMask {
  int64_t samples = 0;
  int64_t positions = 0;  // tokens in each sample
  // MicroBatch::document_starts of all tokens
  std::span<const int32_t> document_starts = {};
  int64_t window = 0;  // SelfAttentionOptions::window

  int64_t tokens() const { return samples * positions; }
  // Returns true if some token cannot attend to all tokens of its sample that precede it.
  bool hides() const { return window > 0 || !document_starts.empty(); }
  // Returns the first token to which `token` attends.
  int64_t first_seen(int64_t token) const;
  int64_t area(int64_t token) const { return token + 1 - first_seen(token); }
};

// Returns the ascending ranges of tokens of each rank.
std::vector<std::vector<Share>> partition_tokens(const TokenMask& mask, int ranks);

// The division from the point of view of one rank. Rows are numbered in ascending order of the
// rank's tokens.
class TokenPartition {
 public:
  TokenPartition(const TokenMask& mask, int rank, int ranks);
  TokenPartition(const TokenPartition&) = delete;
  TokenPartition& operator=(const TokenPartition&) = delete;

  int rank() const { return rank_; }
  int ranks() const { return static_cast<int>(of_rank_.size()); }
  std::span<const Share> ranges(int rank) const { return at(rank).ranges; }
  int64_t count(int rank) const { return at(rank).count; }
  int64_t most() const;  // Returns the largest number of tokens of any rank.
  // seen_of(): rows of rank `rank` to whose keys some query of this rank attends. seen_by(): rows
  // of this rank to whose keys some query of rank `rank` attends.
  Share seen_of(int rank) const { return at(rank).seen_of; }
  Share seen_by(int rank) const { return at(rank).seen_by; }
  // Return, for each query of this rank, the index of the first row to which it attends, and one
  // past the last. Indices are relative to seen_of(rank).first (AttentionShape::starts and ends).
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

#include "training/parallel/heads_attention.h"

#include <chrono>
#include <vector>

#include "training/core/token_partition.h"
#include "training/kernels/elementwise.h"
#include "training/parallel/mesh.h"

namespace tutti::training {
namespace {

using Clock = std::chrono::steady_clock;

// A rank's heads, as ranges of all heads.
struct Heads {
  Share queries;
  Share keys;
};

// Exchanges this rank's tokens of all heads for all tokens of this rank's heads, and back, by
// all-to-all among the ranks along the context axis.
class Exchange {
 public:
  Exchange(Pass& pass, const AttentionShape& heads)
      : pass_(pass), partition_(*pass.batch->partition), shape_(heads) {}

  Heads heads_of(int rank) const {
    const Share queries = even_share(shape_.heads, rank, partition_.ranks());
    if (queries.count == 0) return {};
    const int64_t group = shape_.group_size();
    const int64_t first = (shape_.before + queries.first) / group;
    const int64_t last = (shape_.before + queries.first + queries.count - 1) / group;
    return {queries, {first, last + 1 - first}};
  }
  Heads own() const { return heads_of(partition_.rank()); }

  // Returns the shape for this rank's heads and all tokens. Writes `starts`, to which the shape
  // refers.
  AttentionShape shape(std::vector<int32_t>& starts) const {
    const TokenMask& mask = partition_.mask();
    starts.clear();
    for (int64_t token = 0; token < mask.tokens() && mask.hides(); ++token) {
      starts.push_back(
          static_cast<int32_t>(mask.first_seen(token) - token / mask.positions * mask.positions));
    }
    return {.samples = mask.samples,
            .context = mask.positions,
            .heads = own().queries.count,
            .head_size = shape_.head_size,
            .key_heads = own().keys.count,
            .group = shape_.group_size(),
            .before = (shape_.before + own().queries.first) % shape_.group_size(),
            .starts = starts,
            .bits = shape_.bits};
  }

  // Returns all tokens of this rank's heads. `heads`: the kind of heads in the tensor's columns.
  Tensor to_heads(ConstTensor own_rows, Share Heads::*heads) {
    const int64_t width = (own().*heads).count * shape_.head_size;
    const Tensor all = pass_.arena.take(own_rows.dtype, partition_.mask().tokens(), width);
    const ArenaScope scope(pass_.arena);
    const Tensor sent = packed_by_rank(own_rows, heads);
    const Tensor received = pass_.arena.take(own_rows.dtype, 1, all.size());
    exchange(sent, widths(own_rows.rows, heads), received, heights(width));
    for_each_range(received, width, [&](ConstTensor part, const Share& range) {
      copy(part, all.row_range(range.first, range.count));
    });
    return all;
  }

  // Sends tokens back: writes this rank's tokens of all heads. If several ranks have the same key
  // head, its columns are summed.
  void to_tokens(ConstTensor all, Share Heads::*heads, Tensor own_rows) {
    const ArenaScope scope(pass_.arena);
    const Tensor sent = pass_.arena.take(all.dtype, 1, all.size());
    for_each_range(sent, all.cols, [&](Tensor part, const Share& range) {
      copy(all.row_range(range.first, range.count), part);
    });
    const Blocks blocks = widths(own_rows.rows, heads);
    const Tensor received = pass_.arena.take(all.dtype, 1, total(blocks));
    exchange(sent, heights(all.cols), received, blocks);
    unpack_by_rank(received, heads, own_rows);
  }

 private:
  Share columns(int rank, Share Heads::*heads) const {
    const Share its = heads_of(rank).*heads;
    return {its.first * shape_.head_size, its.count * shape_.head_size};
  }
  static int64_t total(const Blocks& blocks) {
    uint64_t all = 0;
    for (const uint64_t count : blocks.counts) all += count;
    return static_cast<int64_t>(all);
  }
  // widths() returns for each rank the number of elements that its columns have in `rows` rows.
  // heights() returns for each rank the number of elements that its rows have in `cols` columns.
  Blocks widths(int64_t rows, Share Heads::*heads) const {
    return by_rank([&](int rank) { return rows * columns(rank, heads).count; });
  }
  Blocks heights(int64_t cols) const {
    return by_rank([&](int rank) { return partition_.count(rank) * cols; });
  }
  template <typename Count>
  Blocks by_rank(const Count& count) const {
    std::vector<uint64_t> counts;
    for (int rank = 0; rank < partition_.ranks(); ++rank) {
      counts.push_back(static_cast<uint64_t>(count(rank)));
    }
    return Blocks::of(counts);
  }

  Tensor packed_by_rank(ConstTensor own_rows, Share Heads::*heads) {
    const Tensor packed = pass_.arena.take(own_rows.dtype, 1, total(widths(own_rows.rows, heads)));
    int64_t at = 0;
    for (int rank = 0; rank < partition_.ranks(); ++rank) {
      const auto [first, count] = columns(rank, heads);
      const int64_t size = own_rows.rows * count;
      copy_rows(own_rows.col_range(first, count),
                packed.col_range(at, size).reshaped(own_rows.rows, count));
      at += size;
    }
    return packed;
  }

  void unpack_by_rank(ConstTensor packed, Share Heads::*heads, Tensor own_rows) {
    int64_t at = 0, written = 0;  // `at` in elements, `written` in columns
    for (int rank = 0; rank < partition_.ranks(); ++rank) {
      const auto [first, count] = columns(rank, heads);
      const int64_t size = own_rows.rows * count;
      const ConstTensor part = packed.col_range(at, size).reshaped(own_rows.rows, count);
      at += size;
      if (size == 0) continue;
      const int64_t shared = written - first;
      for (int64_t row = 0; row < part.rows && shared > 0; ++row) {
        const Tensor sum = own_rows.row_range(row, 1).col_range(first, shared);
        add(sum, part.row_range(row, 1).col_range(0, shared), sum);
      }
      copy_rows(part.col_range(shared, count - shared),
                own_rows.col_range(written, count - shared));
      written = first + count;
    }
  }

  // Calls body(rows, range of their tokens) for the token ranges of all ranks, which are
  // consecutive in `all`.
  template <bool is_const, typename Body>
  void for_each_range(BasicTensor<is_const> all, int64_t width, const Body& body) const {
    int64_t at = 0;
    for (int rank = 0; rank < partition_.ranks(); ++rank) {
      for (const Share& range : partition_.ranges(rank)) {
        body(all.col_range(at, range.count * width).reshaped(range.count, width), range);
        at += range.count * width;
      }
    }
  }

  void exchange(ConstTensor sent, const Blocks& to, Tensor received, const Blocks& from) {
    const auto kept = static_cast<int64_t>(to.counts[static_cast<size_t>(partition_.rank())]);
    const auto bytes =
        static_cast<double>((sent.size() - kept) * static_cast<int64_t>(size_of(sent.dtype)));
    if (pass_.mesh == nullptr) {
      pass_.record_unsent({Axis::context, "all_to_all", bytes});
      return zero(received);
    }
    const Clock::time_point start = Clock::now();
    pass_.mesh->along(Axis::context).all_to_allv(as_buffer(sent), to, as_buffer(received), from);
    pass_.mesh->add_unit_traffic(Axis::context, "all_to_all", bytes, start);
  }

  Pass& pass_;
  const TokenPartition& partition_;
  const AttentionShape& shape_;
};

}  // namespace

AttentionOverRanks::Saved HeadsAttention::forward(Pass& pass, const AttentionShape& heads,
                                                  const ConstQkv& own, Tensor output) const {
  Exchange ranks(pass, heads);
  std::vector<int32_t> starts;
  const AttentionShape shape = ranks.shape(starts);
  Saved saved;
  saved.queries = ranks.to_heads(own.queries, &Heads::queries);
  saved.keys = ranks.to_heads(own.keys, &Heads::keys);
  saved.values = ranks.to_heads(own.values, &Heads::keys);
  saved.output = pass.arena.take(output.dtype, saved.queries.rows, saved.queries.cols);
  saved.lse = pass.arena.take(value_type(output.dtype), shape.samples * shape.heads, shape.context);
  if (shape.heads > 0) {
    causal_attention(shape, {saved.queries, saved.keys, saved.values}, saved.output, saved.lse,
                     pass.arena);
  }
  ranks.to_tokens(saved.output, &Heads::queries, output);
  return saved;
}

void HeadsAttention::backward(Pass& pass, const AttentionShape& heads, const ConstQkv& /*own*/,
                              ConstTensor /*output*/, const Saved& saved,
                              ConstTensor output_gradient, const Qkv& gradients) const {
  const ArenaScope scope(pass.arena);
  Exchange ranks(pass, heads);
  std::vector<int32_t> starts;
  const AttentionShape shape = ranks.shape(starts);
  const ConstTensor gradient = ranks.to_heads(output_gradient, &Heads::queries);
  const auto like = [&](ConstTensor other) {
    return pass.arena.take(other.dtype, other.rows, other.cols);
  };
  const Qkv found{like(saved.queries), like(saved.keys), like(saved.values)};
  if (shape.heads > 0) {
    causal_attention_backward(shape, {saved.queries, saved.keys, saved.values}, saved.output,
                              saved.lse, gradient, found, pass.arena);
  }
  ranks.to_tokens(found.queries, &Heads::queries, gradients.queries);
  ranks.to_tokens(found.keys, &Heads::keys, gradients.keys);
  ranks.to_tokens(found.values, &Heads::keys, gradients.values);
}

}  // namespace tutti::training

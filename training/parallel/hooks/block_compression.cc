#include "training/parallel/hooks/block_compression.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "training/kernels/elementwise.h"
#include "training/parallel/hooks/error_feedback.h"

namespace tutti::training {
namespace {

std::span<std::byte> bytes_in(const Memory<std::byte>& memory, const Blocks& blocks, int rank) {
  const auto at = static_cast<size_t>(rank);
  return {memory.get() + blocks.displacements[at], blocks.counts[at]};
}

// Returns blocks that follow each other without gaps.
Blocks packed(const std::vector<uint64_t>& counts) {
  std::vector<uint64_t> displacements(counts.size());
  std::exclusive_scan(counts.begin(), counts.end(), displacements.begin(), uint64_t{0});
  return Blocks::of(counts, displacements);
}

uint64_t all_of(const Blocks& blocks) { return blocks.displacements.back() + blocks.counts.back(); }

}  // namespace

BlockCompression::BlockCompression(BlockFormat format, const Layout& layout,
                                   const std::vector<ParameterSpec>& specs)
    : format_(format) {
  size_t largest = 0;
  for (size_t bucket = 0; bucket < layout.buckets.size(); ++bucket) {
    buckets_.emplace_back(BucketErrors(layout, specs, bucket));
    largest = std::max(largest, buckets_.back().errors.size());
  }
  values_.resize(2 * largest);
}

void BlockCompression::prepare(BucketState& at, Communicator& communicator, DType dtype) {
  check_error_feedback(name(format_), dtype);
  at.communicator = communicator;
  const auto block = static_cast<int64_t>(block_of(format_));
  const auto size = static_cast<int64_t>(at.errors.size());
  const int64_t blocks = (size + block - 1) / block;
  std::vector<uint64_t> counts;
  for (int rank = 0; rank < communicator.size(); ++rank) {
    const Share share = even_share(blocks, rank, communicator.size());
    const int64_t first = std::min(size, share.first * block);
    const int64_t end = std::min(size, (share.first + share.count) * block);
    at.parts.push_back({first, end - first});
    counts.push_back(bytes_of(format_, static_cast<size_t>(end - first)));
  }
  at.sent_blocks = packed(counts);
  const uint64_t own = counts[static_cast<size_t>(communicator.rank())];
  at.received_blocks = packed(std::vector<uint64_t>(counts.size(), own));
  at.sent = communicator.allocate<std::byte>(all_of(at.sent_blocks));
  at.received = communicator.allocate<std::byte>(std::max<uint64_t>(1, all_of(at.received_blocks)));
}

std::vector<HookState> BlockCompression::states(Communicator& communicator, DType gradients) {
  std::vector<HookState> states;
  for (BucketState& at : buckets_) {
    if (!at.communicator.valid()) prepare(at, communicator, gradients);
    at.errors.append_states(cat(name(format_), ".error"), states);
  }
  return states;
}

void BlockCompression::start(Communicator& communicator, int bucket, Tensor gradients) {
  BucketState& at = state(bucket);
  if (!at.communicator.valid()) prepare(at, communicator, gradients.dtype);
  const std::span<float> values = std::span(values_).first(at.errors.size());
  const std::span<float> sent = std::span(values_).last(at.errors.size());
  at.errors.add_gradients(gradients, values);
  std::vector<float>& errors = at.errors.values();
  for (int rank = 0; rank < communicator.size(); ++rank) {
    const Share& part = at.parts[static_cast<size_t>(rank)];
    const auto from = static_cast<size_t>(part.first);
    const auto count = static_cast<size_t>(part.count);
    const std::span<std::byte> bytes = bytes_in(at.sent, at.sent_blocks, rank);
    encode(format_, std::span<const float>(errors).subspan(from, count), bytes);
    decode(format_, bytes, sent.subspan(from, count));
  }
  for (size_t i = 0; i < errors.size(); ++i) errors[i] -= sent[i];
  at.exchange = communicator.all_to_allv_async(
      {at.sent.get(), all_of(at.sent_blocks), DType::u8}, at.sent_blocks,
      {at.received.get(), all_of(at.received_blocks), DType::u8}, at.received_blocks);
}

// Sums this rank's part as received from all ranks. Writes the encoded sum to the part's place in
// `sent`, and adds what the encoding lost to the errors.
void BlockCompression::sum_own_part(BucketState& at) {
  const int own = at.communicator.rank();
  const Share& part = at.parts[static_cast<size_t>(own)];
  const auto count = static_cast<size_t>(part.count);
  const std::span<float> sum = std::span(values_).first(count);
  const std::span<float> decoded = std::span(values_).subspan(count, count);
  std::ranges::fill(sum, 0.0f);
  for (int rank = 0; rank < at.communicator.size(); ++rank) {
    decode(format_, bytes_in(at.received, at.received_blocks, rank), decoded);
    for (size_t i = 0; i < count; ++i) sum[i] += decoded[i];
  }
  const std::span<std::byte> bytes = bytes_in(at.sent, at.sent_blocks, own);
  encode(format_, sum, bytes);
  decode(format_, bytes, decoded);
  for (size_t i = 0; i < count; ++i) {
    at.errors.values()[static_cast<size_t>(part.first) + i] += sum[i] - decoded[i];
  }
}

void BlockCompression::finish(int bucket, Tensor gradients) {
  BucketState& at = state(bucket);
  at.exchange.wait();
  sum_own_part(at);
  const std::span<std::byte> own = bytes_in(at.sent, at.sent_blocks, at.communicator.rank());
  at.communicator.all_gatherv({own.data(), own.size(), DType::u8},
                              {at.sent.get(), all_of(at.sent_blocks), DType::u8}, at.sent_blocks);
  const std::span<float> values = std::span(values_).first(at.errors.size());
  for (int rank = 0; rank < at.communicator.size(); ++rank) {
    const Share& part = at.parts[static_cast<size_t>(rank)];
    decode(format_, bytes_in(at.sent, at.sent_blocks, rank),
           values.subspan(static_cast<size_t>(part.first), static_cast<size_t>(part.count)));
  }
  convert(f32_row(values), gradients);
  if (!all_finite(f32_row(values)).get()) std::ranges::fill(at.errors.values(), 0.0f);
}

int64_t BlockCompression::payload_bytes(int bucket, Tensor gradients) const {
  return static_cast<int64_t>(bytes_of(format_, static_cast<size_t>(gradients.size())));
}

int64_t BlockCompression::bytes() const {
  int64_t bytes = std::ssize(values_) * static_cast<int64_t>(sizeof(float));
  for (const BucketState& at : buckets_) {
    bytes += static_cast<int64_t>(at.errors.size()) * static_cast<int64_t>(sizeof(float));
    if (at.communicator.valid()) {
      bytes += static_cast<int64_t>(all_of(at.sent_blocks) + all_of(at.received_blocks));
    }
  }
  return bytes;
}

}  // namespace tutti::training

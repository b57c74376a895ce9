#include "collectives/gpu/copy_calls.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "base/mix_bits.h"

namespace tutti::gpu {

namespace {

constexpr size_t kWordBytes = 128;  // separate cache lines, since different ranks write them

// stop() writes a value this far ahead of every awaited one, modulo 2^32, to end all waits.
constexpr uint32_t kAhead = 1u << 30;

size_t signal_bytes(int ranks) { return static_cast<size_t>(ranks) * kWordBytes; }

uint32_t* word(std::byte* signals, int of) {
  return reinterpret_cast<uint32_t*>(signals + static_cast<size_t>(of) * kWordBytes);
}

// The buffer that must be in a window.
struct Target {
  const void* data;
  size_t bytes;
};

Target target_of(const Request& request) {
  if (request.collective == Collective::gather) return {request.input.data, request.input.bytes()};
  return {request.output.data, request.output.bytes()};
}

std::byte* block_at(const Buffer& buffer, size_t block_bytes, int rank) {
  return static_cast<std::byte*>(buffer.data) + block_bytes * static_cast<size_t>(rank);
}

const std::byte* block_at(const ConstBuffer& buffer, size_t block_bytes, int rank) {
  return static_cast<const std::byte*>(buffer.data) + block_bytes * static_cast<size_t>(rank);
}

bool some_share_a_context(std::span<const cuda::ExportedMemory> of_ranks) {
  for (size_t a = 0; a < of_ranks.size(); ++a) {
    for (size_t b = 0; b < a; ++b) {
      if (of_ranks[a].process == of_ranks[b].process && of_ranks[a].device == of_ranks[b].device) {
        return true;
      }
    }
  }
  return false;
}

}  // namespace

CopyCalls::CopyCalls(int rank, int ranks, const cuda::Context& context,
                     std::shared_ptr<Windows> windows, Meet meet)
    : rank_(rank),
      ranks_(ranks),
      context_(context),
      windows_(std::move(windows)),
      meet_(std::move(meet)),
      own_stream_(context),
      signals_(context, signal_bytes(ranks)),
      signals_of_(static_cast<size_t>(ranks)),
      order_(context) {
  const cuda::CurrentContext current(context_);
  cuda::fill_async(signals_.data(), std::byte{0}, signal_bytes(ranks), own_stream_.handle());
  cuda::synchronize(own_stream_.handle());
}

bool CopyCalls::connect(const Exchange& exchange) {
  const cuda::CurrentContext current(context_);
  const std::vector<std::byte> all_bytes =
      exchange(std::as_bytes(std::span(&signals_.exported(), 1)));
  std::vector<cuda::ExportedMemory> all(static_cast<size_t>(ranks_));
  std::memcpy(all.data(), all_bytes.data(), all_bytes.size());
  if (some_share_a_context(all)) return false;
  Agreement agreement(exchange);
  agreement.attempt([&] {
    for (int peer = 0; peer < ranks_; ++peer) {
      if (peer == rank_) continue;
      imported_.emplace_back(context_, all[static_cast<size_t>(peer)]);
      signals_of_[static_cast<size_t>(peer)] = imported_.back().data();
    }
  });
  agreement.require("cannot access the signals of all other ranks");
  signals_of_[static_cast<size_t>(rank_)] = signals_.data();
  return true;
}

// ---- words

void CopyCalls::signal_done(int peer, cuda::CUstream stream) {
  std::byte* const signals = signals_of_[static_cast<size_t>(peer)];
  cuda::write_word(stream, word(signals, rank_), calls_.load());
}

void CopyCalls::await_done(int peer, cuda::CUstream stream) {
  cuda::wait_for_word(stream, word(signals_.data(), peer), calls_.load());
}

// ---- calls

std::byte* CopyCalls::window_of(int peer, const void* own, size_t bytes) const {
  return windows_->at(own, bytes, peer);
}

bool CopyCalls::can(const Request& request, cuda::CUstream stream) const {
  const Collective c = request.collective;
  const bool moves = c == Collective::all_gather || c == Collective::all_to_all ||
                     c == Collective::scatter || c == Collective::gather;
  if (!moves || request.uneven || cuda::is_captured(stream)) return false;
  const bool is_in_place = request.input.data != nullptr && request.output.data != nullptr &&
                           request.input.data == request.output.data;
  if (c == Collective::all_to_all && is_in_place) return false;
  const auto [data, bytes] = target_of(request);
  return bytes > 0 && window_of(rank_, data, bytes) != nullptr;
}

// Returns a hash of everything that ranks must agree on, including the locations in their windows.
uint64_t CopyCalls::signature_of(const Request& request) const {
  const auto [data, bytes] = target_of(request);
  uint64_t signature = kGolden;
  for (const uint64_t part :
       {static_cast<uint64_t>(request.collective), static_cast<uint64_t>(request.root),
        static_cast<uint64_t>(request.dtype()), uint64_t{bytes}, windows_->place_of(data, bytes)}) {
    signature = mix_bits(signature ^ part);
  }
  return signature;
}

void CopyCalls::run(const Request& request, cuda::CUstream stream) {
  const cuda::CurrentContext current(context_);
  order_.begin(stream);
  ++calls_;
  meet_(signature_of(request), stream);
  switch (request.collective) {
    case Collective::scatter:
      scatter(request, stream);
      break;
    case Collective::gather:
      gather(request, stream);
      break;
    default:
      push(request, stream);
  }
  order_.end(stream);
}

// Copies this rank's blocks into the outputs of all ranks. Each rank begins with its successor, so
// that no GPU receives all blocks at once.
void CopyCalls::push(const Request& request, cuda::CUstream stream) {
  const bool same_for_all = request.collective == Collective::all_gather;
  const size_t block = request.output.bytes() / static_cast<size_t>(ranks_);
  const auto source = [&](int peer) {
    return same_for_all ? block_at(request.input, 0, 0) : block_at(request.input, block, peer);
  };
  std::byte* const own = block_at(request.output, block, rank_);
  if (source(rank_) != own) cuda::copy_async(own, source(rank_), block, stream);
  for (int i = 1; i < ranks_; ++i) {
    const int peer = (rank_ + i) % ranks_;
    std::byte* const output = window_of(peer, request.output.data, request.output.bytes());
    cuda::copy_async(output + block * static_cast<size_t>(rank_), source(peer), block, stream);
    signal_done(peer, stream);
  }
  for (int peer = 0; peer < ranks_; ++peer) {
    if (peer != rank_) await_done(peer, stream);
  }
}

void CopyCalls::scatter(const Request& request, cuda::CUstream stream) {
  if (rank_ != request.root) return await_done(request.root, stream);
  const size_t block = request.output.bytes();
  const std::byte* const own = block_at(request.input, block, rank_);
  if (own != request.output.data) cuda::copy_async(request.output.data, own, block, stream);
  for (int peer = 0; peer < ranks_; ++peer) {
    if (peer == rank_) continue;
    cuda::copy_async(window_of(peer, request.output.data, block),
                     block_at(request.input, block, peer), block, stream);
    signal_done(peer, stream);
  }
}

// The root copies from the other ranks' windows, because only the root has an output.
void CopyCalls::gather(const Request& request, cuda::CUstream stream) {
  if (rank_ != request.root) return await_done(request.root, stream);
  const size_t block = request.input.bytes();
  std::byte* const own = block_at(request.output, block, rank_);
  if (own != request.input.data) cuda::copy_async(own, request.input.data, block, stream);
  for (int peer = 0; peer < ranks_; ++peer) {
    if (peer == rank_) continue;
    cuda::copy_async(block_at(request.output, block, peer),
                     window_of(peer, request.input.data, block), block, stream);
    signal_done(peer, stream);
  }
}

// ---- shutdown

void CopyCalls::drain() {
  const cuda::CurrentContext current(context_);
  const cuda::BesideCaptures beside;
  order_.drain();
}

void CopyCalls::stop() {
  const cuda::CurrentContext current(context_);
  const cuda::BesideCaptures beside;
  const uint32_t ahead = calls_.load() + kAhead;
  for (int rank = 0; rank < ranks_; ++rank) {
    cuda::write_word(own_stream_.handle(), word(signals_.data(), rank), ahead);
  }
}

}  // namespace tutti::gpu

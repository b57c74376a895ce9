#include "collectives/gpu/executor.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "collectives/gpu/kernel_image.h"
#include "collectives/gpu/kernels.h"
#include "collectives/gpu/mailbox.h"

namespace tutti::gpu {

namespace {

constexpr size_t kWordsBytes = 256;
// Byte offset of the word `mismatch`. It is on another cache line than the word `stop`, which all
// blocks poll.
constexpr size_t kMismatchAt = 128;

uint64_t* word(std::byte* at) { return reinterpret_cast<uint64_t*>(at); }

size_t aligned(size_t bytes) { return (bytes + 127) / 128 * 128; }

template <typename Memory>
Memory zeroed(const cuda::Context& context, size_t bytes, cuda::CUstream stream) {
  const cuda::CurrentContext current(context);
  Memory memory(context, bytes);
  cuda::fill_async(memory.data(), std::byte{0}, bytes, stream);
  cuda::synchronize(stream);
  return memory;
}

// Returns the loaded kernels. They are loaded once per context for all communicators.
std::shared_ptr<const cuda::Module> kernels_of(const cuda::Context& context) {
  static std::mutex mutex;
  static std::map<cuda::CUcontext, std::weak_ptr<const cuda::Module>> loaded;
  const std::lock_guard lock(mutex);
  std::weak_ptr<const cuda::Module>& kept = loaded[context.handle()];
  std::shared_ptr<const cuda::Module> module = kept.lock();
  if (!module)
    kept = module = std::make_shared<const cuda::Module>(context, tutti_gpu_kernel_image);
  return module;
}

// Returns the number of threads per block: about one for each vector of a slice, in whole warps,
// and at most `most` and kMostThreads.
unsigned threads_for(const LoweredCall& lowered, size_t element_bytes, int most) {
  constexpr uint64_t kWarp = 32;
  const uint64_t vectors = lowered.launch.slice_elements * element_bytes / sizeof(Vector) + 1;
  const uint64_t wanted = (vectors + kWarp - 1) / kWarp * kWarp;
  const auto limit = static_cast<uint64_t>(std::min<int>(most, kMostThreads));
  return static_cast<unsigned>(std::min(wanted, limit));
}

}  // namespace

Executor::Executor(int rank, int ranks, int device, const MailboxShape& shape)
    : rank_(rank),
      ranks_(ranks),
      shape_(shape),
      context_(device),
      module_(kernels_of(context_)),
      own_stream_(context_),
      words_(context_, kWordsBytes),
      mailboxes_(zeroed<cuda::SharedMemory>(context_, shape.total(ranks), own_stream_.handle())),
      progress_(zeroed<cuda::DeviceMemory>(
          context_, static_cast<size_t>(ranks) * shape.blocks * sizeof(Progress),
          own_stream_.handle())),
      peers_(context_, static_cast<size_t>(ranks) * sizeof(PeerMemory)),
      reached_(static_cast<size_t>(ranks)),
      retiring_(context_),
      windows_(std::make_shared<Windows>(rank, ranks, context_)),
      order_(context_) {
  std::memset(words_.data(), 0, words_.size());
}

void Executor::connect(const Exchange& exchange) {
  const cuda::CurrentContext current(context_);
  Agreement agreement(exchange);
  std::vector<cuda::ExportedMemory> all(static_cast<size_t>(ranks_));
  all[static_cast<size_t>(rank_)] = mailboxes_.exported();
  const std::vector<std::byte> all_bytes =
      exchange(std::as_bytes(std::span(&all[static_cast<size_t>(rank_)], 1)));
  std::memcpy(all.data(), all_bytes.data(), all_bytes.size());
  agreement.attempt([&] {
    for (int peer = 0; peer < ranks_; ++peer) {
      if (peer != rank_) reach(peer, all[static_cast<size_t>(peer)]);
    }
    cuda::copy_async(peers_.data(), reached_.data(), reached_.size() * sizeof(PeerMemory),
                     own_stream_.handle());
    cuda::synchronize(own_stream_.handle());
  });
  agreement.require("cannot access the memory of all other ranks");
}

void Executor::reach(int peer, const cuda::ExportedMemory& theirs) {
  const uint64_t of_a_peer = shape_.blocks * shape_.mailbox_bytes();
  imported_.emplace_back(context_, theirs);
  reached_[static_cast<size_t>(peer)] = {
      .here = mailboxes_.data() + static_cast<uint64_t>(peer) * of_a_peer,
      .there = imported_.back().data() + static_cast<uint64_t>(rank_) * of_a_peer};
}

// Returns memory for tables. The size is rounded up to a power of two, so that later calls can
// reuse it.
cuda::DeviceMemory Executor::memory_for_tables(size_t bytes) {
  std::erase_if(retired_, [this](Retired& retired) {
    if (!retired.ended.is_done()) return false;
    for (const std::shared_ptr<DeviceCall>& call : retired.calls) {
      spare_tables_.emplace(call->tables_.size(), std::move(call->tables_));
    }
    return true;
  });
  const size_t size = std::bit_ceil(bytes);
  const auto spare = spare_tables_.find(size);
  if (spare == spare_tables_.end()) return {context_, size};
  return std::move(spare_tables_.extract(spare).mapped());
}

void Executor::retire(std::vector<std::shared_ptr<DeviceCall>> calls) {
  const auto captured =
      std::ranges::partition(calls, [](const auto& call) { return !call->is_captured(); });
  captured_.insert(captured_.end(), captured.begin(), captured.end());
  calls.erase(captured.begin(), captured.end());
  if (calls.empty()) return;
  const cuda::CurrentContext current(context_);
  const cuda::BesideCaptures beside;
  Retired retired{.ended = cuda::Event(context_), .calls = std::move(calls)};
  order_.begin(retiring_.handle());
  retired.ended.record(retiring_.handle());
  retired_.push_back(std::move(retired));
}

std::shared_ptr<DeviceCall> Executor::prepare(const LoweredCall& lowered, DType dtype) {
  const cuda::CurrentContext current(context_);
  const cuda::BesideCaptures beside;
  const size_t steps = aligned(lowered.steps.size() * sizeof(DeviceStep));
  const size_t parts = aligned(lowered.parts.size() * sizeof(Part));
  const size_t ports = aligned(lowered.ports.size() * sizeof(int32_t));
  const size_t awaited = aligned(lowered.awaited.size() * sizeof(Awaited));
  std::vector<std::byte> tables(steps + parts + ports + awaited + 128);
  const auto put = [&](size_t at, const auto& values) {
    if (!values.empty()) {
      std::memcpy(tables.data() + at, values.data(), values.size() * sizeof(values[0]));
    }
  };
  put(0, lowered.steps);
  put(steps, lowered.parts);
  put(steps + parts, lowered.ports);
  put(steps + parts + ports, lowered.awaited);
  std::shared_ptr<DeviceCall> call(
      new DeviceCall(memory_for_tables(tables.size())));  // NOLINT: private constructor
  std::byte* const at = call->tables_.data();
  cuda::copy_async(at, tables.data(), tables.size(), own_stream_.handle());
  cuda::synchronize(own_stream_.handle());

  call->function_ = module_->function(kernel_name(dtype).c_str());
  call->grid_ = {.blocks = lowered.blocks,
                 .threads = threads_for(lowered, size_of(dtype),
                                        cuda::function_info(call->function_).most_threads),
                 .shared_bytes = static_cast<unsigned>(
                     shared_bytes(lowered.ports.size(), lowered.launch.lend_count))};
  call->launch_ = lowered.launch;
  call->lends_ = lowered.lends;
  Launch& launch = call->launch_;
  launch.steps = reinterpret_cast<const DeviceStep*>(at);
  launch.parts = reinterpret_cast<const Part*>(at + steps);
  launch.ports = reinterpret_cast<const int32_t*>(at + steps + parts);
  launch.awaited = reinterpret_cast<const Awaited*>(at + steps + parts + ports);
  launch.peers = reinterpret_cast<const PeerMemory*>(peers_.data());
  launch.progress = reinterpret_cast<Progress*>(progress_.data());
  launch.stop = word(words_.device_data());
  launch.mismatch = word(words_.device_data() + kMismatchAt);
  grow_scratch(launch.scratch_bytes * lowered.blocks);
  launch.scratch = scratch_.empty() ? nullptr : scratch_.back().data();
  return call;
}

void Executor::grow_scratch(size_t bytes) {
  if (bytes == 0 || (!scratch_.empty() && scratch_.back().size() >= bytes)) return;
  scratch_.emplace_back(context_, std::max(bytes, size_t{1} << 20));
}

void Executor::launch(DeviceCall& call, const std::byte* input, std::byte* output,
                      cuda::CUstream stream, const LentBuffers& lent) {
  const cuda::CurrentContext current(context_);
  order_.begin(stream);
  call.is_captured_ = call.is_captured_ || cuda::is_captured(stream);
  Launch launch = call.launch_;
  launch.input = input;
  launch.output = output;
  launch.lent = lent;
  cuda::launch(call.function_, call.grid_, stream, launch);
  order_.end(stream);
}

void Executor::drain() {
  const cuda::CurrentContext current(context_);
  const cuda::BesideCaptures beside;
  order_.drain();
}

void Executor::stop() { std::atomic_ref(*word(words_.data())).store(1, std::memory_order_release); }

uint64_t Executor::mismatch() const {
  return std::atomic_ref(*word(words_.data() + kMismatchAt)).load(std::memory_order_acquire);
}

}  // namespace tutti::gpu

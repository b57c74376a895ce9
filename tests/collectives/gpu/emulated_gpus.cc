#include "tests/collectives/gpu/emulated_gpus.h"

#include <atomic>
#include <cstring>
#include <latch>
#include <thread>
#include <utility>

#include "base/deadline.h"
#include "collectives/gpu/kernels.h"
#include "collectives/gpu/lower.h"
#include "tests/collectives/gpu/ready_call.h"
#include "tests/support/host_gpu/kernels.h"
#include "tests/support/multicast_members.h"

namespace tutti::testing {

using gpu::LoweredCall;

namespace {

// Buffers of the current call on all ranks, which are the members of its multicast addresses. A
// multicast address refers to the same offset in each buffer.
const std::vector<std::byte*>* members_of_input;
const std::vector<std::byte*>* members_of_output;
size_t bytes_of_input;
size_t bytes_of_output;

}  // namespace

EmulatedGpus::EmulatedGpus(int ranks, const gpu::MailboxShape& shape)
    : ranks_(ranks), shape_(shape), words_(static_cast<size_t>(ranks)) {
  const auto count = static_cast<size_t>(ranks);
  for (size_t rank = 0; rank < count; ++rank) {
    mailboxes_.emplace_back(shape.total(ranks) / sizeof(Memory) + 1);
    progress_.emplace_back(count * shape.blocks);
  }
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<gpu::PeerMemory> peers;
    for (int peer = 0; peer < ranks; ++peer) {
      peers.push_back({.here = mailbox(rank, peer), .there = mailbox(peer, rank)});
    }
    peers_.push_back(std::move(peers));
  }
}

void EmulatedGpus::start_at(uint64_t sequence) {
  for (int rank = 0; rank < ranks_; ++rank) {
    for (gpu::Progress& progress : progress_[static_cast<size_t>(rank)]) {
      for (int protocol = 0; protocol < gpu::kProtocols; ++protocol) {
        progress.sent[protocol] = progress.received[protocol] = sequence;
      }
    }
    for (int peer = 0; peer < ranks_; ++peer) {
      for (uint32_t block = 0; block < shape_.blocks; ++block) {
        auto* const words =
            reinterpret_cast<gpu::Mailbox*>(mailbox(rank, peer) + block * shape_.mailbox_bytes());
        words->published = sequence;
        for (uint64_t& consumed : words->consumed) consumed = sequence;
      }
    }
  }
}

void EmulatedGpus::stop(int rank) {
  std::atomic_ref(*words_[static_cast<size_t>(rank)].stop).store(1);
}

bool EmulatedGpus::run(const Algorithm& algorithm, std::vector<Request> requests,
                       const GpuSetting& setting) {
  note_buffers(requests);
  std::latch all_ended(ranks_);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < ranks_; ++rank) {
    ranks.emplace_back([&, rank] {
      run_rank(rank, algorithm, std::move(requests[static_cast<size_t>(rank)]), setting);
      all_ended.count_down();
    });
  }
  const Deadline deadline = Deadline::after(setting.patience);
  while (!all_ended.try_wait() && !deadline.passed()) std::this_thread::yield();
  if (!all_ended.try_wait()) {
    for (int rank = 0; rank < ranks_; ++rank) stop(rank);
  }
  for (std::thread& rank : ranks) rank.join();
  bool ended = true;
  for (const Words& words : words_) ended &= *words.stop == 0;
  return ended;
}

void EmulatedGpus::note_buffers(const std::vector<Request>& requests) {
  inputs_.clear();
  outputs_.clear();
  for (const Request& request : requests) {
    const void* const input = request.input.data;
    inputs_.push_back(static_cast<std::byte*>(const_cast<void*>(input)));
    outputs_.push_back(static_cast<std::byte*>(request.output.data));
  }
  members_of_input = &inputs_;
  members_of_output = &outputs_;
  bytes_of_input = requests[0].input.bytes();
  bytes_of_output = requests[0].output.bytes();
}

void EmulatedGpus::run_rank(int rank, const Algorithm& algorithm, Request request,
                            const GpuSetting& setting) {
  const size_t input_bytes = request.input.bytes();
  const ReadyCall call(rank, ranks_, algorithm, std::move(request), shape_, setting.protocol,
                       setting.blocks, setting.lends, setting.joins);
  const LoweredCall& lowered = call.lowered;
  const auto self = static_cast<size_t>(rank);
  std::vector<Memory> scratch(lowered.blocks * lowered.launch.scratch_bytes / sizeof(Memory) + 1);
  gpu::Launch launch = lowered.launch;
  launch.steps = lowered.steps.data();
  launch.parts = lowered.parts.data();
  launch.ports = lowered.ports.data();
  launch.awaited = lowered.awaited.data();
  launch.peers = peers_[self].data();
  launch.progress = progress_[self].data();
  launch.input = call.input;
  launch.output = call.output;
  launch.lent = {.input = {.windows = inputs_.data()}, .output = {.windows = outputs_.data()}};
  if (setting.by_switch) {
    launch.lent.multicast_input = inputs_[0];
    launch.lent.multicast_output = outputs_[0];
  }
  launch.scratch = reinterpret_cast<std::byte*>(scratch.data());
  launch.stop = words_[self].stop.get();
  launch.mismatch = words_[self].mismatch.get();
  const host_gpu::Grid grid{
      .blocks = lowered.blocks,
      .threads = setting.threads,
      .seed = setting.seed * 64 + self,
      .shared_bytes = gpu::shared_bytes(lowered.ports.size(), lowered.launch.lend_count)};
  void* parameters[] = {&launch};
  const host_gpu::NamedKernel* const kernel =
      kernel_ != nullptr ? kernel_ : host_gpu::find_kernel(gpu::kernel_name(call.dtype));
  host_gpu::run(grid, *kernel, parameters);
  if (setting.overwrites_inputs) std::memset(inputs_[self], 0x55, input_bytes);
}

}  // namespace tutti::testing

// Implements tests/support/multicast_members.h for ranks without a driver.
extern "C" size_t cuFakeMulticastMembers(const void* address, size_t bytes, void** members,
                                         size_t) {
  using namespace tutti::testing;  // NOLINT
  const auto* const at = static_cast<const std::byte*>(address);
  const auto lies_in = [&](const std::byte* start, size_t size) {
    return at >= start && at + bytes <= start + size;
  };
  const bool is_input = lies_in((*members_of_input)[0], bytes_of_input);
  if (!is_input && !lies_in((*members_of_output)[0], bytes_of_output)) return 0;
  const std::vector<std::byte*>& starts = is_input ? *members_of_input : *members_of_output;
  for (size_t rank = 0; rank < starts.size(); ++rank)
    members[rank] = starts[rank] + (at - starts[0]);
  return starts.size();
}

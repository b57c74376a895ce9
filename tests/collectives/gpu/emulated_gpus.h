// Runs a communicator's ranks as GPUs that are emulated by host threads (tests/support/host_gpu).
// All ranks can access each other's memory. Mailboxes persist between calls.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "collectives/gpu/call.h"
#include "collectives/program/algorithm.h"
#include "collectives/request.h"
#include "tests/support/host_gpu/grid.h"

namespace tutti::testing {

// Options of a call.
struct GpuSetting {
  gpu::Protocol protocol = gpu::Protocol::simple;
  uint32_t blocks = 1;  // maximum number of blocks
  unsigned threads = 7;
  bool lends = false;      // lends messages, as if all buffers were in windows
  bool joins = false;      // uses joint steps, in which a rank accesses all ranks' buffers at once
  bool by_switch = false;  // sums use multicast addresses
  bool overwrites_inputs = false;  // overwrites a rank's input as soon as its kernel has ended
  uint64_t seed = 1;
  std::chrono::milliseconds patience{60'000};  // after this time, all ranks are stopped
};

class EmulatedGpus {
 public:
  EmulatedGpus(int ranks, const gpu::MailboxShape& shape);

  // Runs one call; requests[r] is the request of rank r. Returns false if a rank was stopped.
  bool run(const Algorithm& algorithm, std::vector<Request> requests, const GpuSetting& setting);

  // Uses this kernel instead of the one in the table for the type.
  void use(const host_gpu::NamedKernel* kernel) { kernel_ = kernel; }
  // Begins as if `sequence` messages had been sent before.
  void start_at(uint64_t sequence);
  // Stops the kernel of `rank`, even while it waits.
  void stop(int rank);
  // Returns 0, or 1 + the peer whose message did not match the call of `rank`.
  uint64_t mismatch(int rank) const { return *words_[static_cast<size_t>(rank)].mismatch; }

 private:
  struct alignas(128) Memory {
    std::byte bytes[128];
  };
  struct Words {
    std::unique_ptr<uint64_t> stop = std::make_unique<uint64_t>(0);
    std::unique_ptr<uint64_t> mismatch = std::make_unique<uint64_t>(0);
  };

  std::byte* mailbox(int owner, int peer) {
    const size_t bytes = shape_.blocks * shape_.mailbox_bytes();
    return reinterpret_cast<std::byte*>(mailboxes_[static_cast<size_t>(owner)].data()) +
           static_cast<size_t>(peer) * bytes;
  }
  void run_rank(int rank, const Algorithm& algorithm, Request request, const GpuSetting& setting);
  void note_buffers(const std::vector<Request>& requests);

  const int ranks_;
  const gpu::MailboxShape shape_;
  const host_gpu::NamedKernel* kernel_ = nullptr;
  std::vector<std::vector<Memory>> mailboxes_;        // by rank
  std::vector<std::vector<gpu::PeerMemory>> peers_;   // by rank, then peer
  std::vector<std::vector<gpu::Progress>> progress_;  // by rank, then peer and block
  std::vector<Words> words_;
  // The current call's buffers, by rank.
  std::vector<std::byte*> inputs_;
  std::vector<std::byte*> outputs_;
};

}  // namespace tutti::testing

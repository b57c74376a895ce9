#include "bench/pairs.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <utility>

#include "base/buffer.h"
#include "base/deadline.h"
#include "base/median.h"

namespace tutti::bench {

namespace {

using std::chrono::milliseconds;

constexpr int kMostPings = 40;
constexpr milliseconds kPingFor{200};
constexpr uint64_t kFirstBytes = 64 << 10;
constexpr uint64_t kMostBytes = 4 << 20;
// shortest transfer whose bandwidth counts, except that of kMostBytes
constexpr int64_t kLongEnough_ns = 20'000'000;
constexpr size_t kRepeats = 3;
constexpr milliseconds kSendFor{1000};

// Makes round trips with `peer`; each message indicates whether another round trip follows. Returns
// half of the median time of a round trip, in microseconds, on the leading rank, and 0 on the
// other.
double ping(Communicator& comm, int peer, bool leads) {
  std::vector<double> halves;
  const Deadline deadline = Deadline::after(kPingFor);
  for (uint64_t more = 1; more != 0;) {
    if (!leads) {
      comm.recv(std::span(&more, 1), peer);
      comm.send(std::span<const uint64_t>(&more, 1), peer);
      continue;
    }
    const int64_t begin = now_ns();
    // The first round trip opens the connection.
    more = halves.size() < kMostPings && !(halves.size() > 3 && deadline.passed()) ? 1 : 0;
    comm.send(std::span<const uint64_t>(&more, 1), peer);
    uint64_t back = 0;
    comm.recv(std::span(&back, 1), peer);
    halves.push_back(static_cast<double>(now_ns() - begin) / 2000);
  }
  if (!leads) return 0;
  halves.erase(halves.begin());
  return median(halves);
}

// Increases the message size until a transfer takes long enough (shorter ones may fit into the
// network's buffers), and then repeats it. Returns the median bandwidth in GB/s.
double send_for_speed(Communicator& comm, int to, std::vector<std::byte>& buffer) {
  std::vector<double> speeds;
  uint64_t bytes = kFirstBytes;
  const Deadline deadline = Deadline::after(kSendFor);
  while (speeds.size() < kRepeats && !(!speeds.empty() && deadline.passed())) {
    comm.send(std::span<const uint64_t>(&bytes, 1), to);
    const int64_t begin = now_ns();
    comm.send({buffer.data(), bytes, DType::u8}, to);
    uint64_t taken = 0;
    comm.recv(std::span(&taken, 1), to);
    const int64_t spent = now_ns() - begin;
    if (spent >= kLongEnough_ns || bytes >= kMostBytes) {
      speeds.push_back(static_cast<double>(bytes) / static_cast<double>(spent));
    } else {
      bytes *= 4;
    }
  }
  const uint64_t no_more = 0;
  comm.send(std::span(&no_more, 1), to);
  return median(std::move(speeds));
}

void receive_for_speed(Communicator& comm, int from, std::vector<std::byte>& buffer) {
  for (;;) {
    uint64_t bytes = 0;
    comm.recv(std::span(&bytes, 1), from);
    if (bytes == 0) return;
    comm.recv({buffer.data(), std::min(bytes, kMostBytes), DType::u8}, from);
    comm.send(std::span<const uint64_t>(&bytes, 1), from);
  }
}

// Measurements of this rank, indexed by peer; 0: not measured.
struct Measured {
  std::vector<double> latency_us;
  std::vector<double> bandwidth_GBps;
};

Measured measure_own(Communicator& comm, const std::vector<Round>& rounds) {
  const auto p = static_cast<size_t>(comm.size());
  Measured mine{std::vector<double>(p), std::vector<double>(p)};
  std::vector<std::byte> buffer(kMostBytes, std::byte{1});
  for (const Round& round : rounds) {
    comm.barrier();
    for (const auto& [low, high] : round) {
      if (comm.rank() != low && comm.rank() != high) continue;
      const bool leads = comm.rank() == low;
      const int peer = leads ? high : low;
      const auto other = static_cast<size_t>(peer);
      mine.latency_us[other] = ping(comm, peer, leads);
      if (!leads) receive_for_speed(comm, peer, buffer);
      mine.bandwidth_GBps[other] = send_for_speed(comm, peer, buffer);
      if (leads) receive_for_speed(comm, peer, buffer);
    }
  }
  return mine;
}

// Gathers the measurements of all ranks on rank 0.
std::vector<double> gathered(Communicator& comm, const std::vector<double>& mine) {
  const size_t p = mine.size();
  std::vector<double> all(comm.rank() == 0 ? p * p : 0);
  comm.gather({mine.data(), p, DType::f64}, {all.data(), all.size(), DType::f64}, 0);
  return all;
}

}  // namespace

PairTimes measure_pairs(Communicator& comm, const std::vector<Round>& rounds) {
  const Measured mine = measure_own(comm, rounds);
  PairTimes times{.ranks = comm.size()};
  times.latency_us = gathered(comm, mine.latency_us);
  times.GBps = gathered(comm, mine.bandwidth_GBps);
  return comm.rank() == 0 ? times : PairTimes{};
}

}  // namespace tutti::bench

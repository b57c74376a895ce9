// A lower bound for `tutti bench`: the time in which all ranks at once copy the bytes that the
// collective must deliver to them, from memory that another rank has just written. No library can
// be faster.
//
//   floor_peer SOCKET-NAME RANKS
//
// The bytes to copy are those of a rank's output (output_parts) that come from other ranks:
//
//   all_reduce             the whole buffer, from the previous rank (rank 0: from the last one)
//   reduce                 on the root: the whole buffer, from the previous rank
//   reduce_scatter         the rank's own block, from the previous rank
//   scan, exscan           the whole buffer, from the previous rank; on rank 0 nothing
//   broadcast              the whole buffer, from the root; on the root nothing
//   scatter                the rank's own block, from the root; on the root nothing
//   all_gather             every other rank's block
//   gather                 on the root: every other rank's block
//   all_to_all             from every other rank, the block for this rank
//
// For up to 32 bytes, and for barrier, each rank instead writes one cache line, with the bytes and
// a sequence number, and waits for the next rank's line.
#include <sched.h>
#include <sys/mman.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "bench/peers/peer_program.h"
#include "topology/host.h"

namespace tutti::bench {

namespace {

constexpr uint64_t kLineBytes = 32;  // maximum bytes of payload in a line

// 128 bytes, because processors fetch cache lines in pairs.
struct alignas(128) Line {
  std::array<std::byte, kLineBytes> payload;
  std::atomic<uint64_t> sequence;
};

// A shared-memory mapping of all ranks.
class Mapping {
 public:
  Mapping(const Fd& file, size_t bytes) : bytes_(std::max<size_t>(bytes, 1)) {
    // All ranks pass the same size.
    if (::ftruncate(file.get(), static_cast<off_t>(bytes_)) == 0) {
      base_ = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
    }
    if (base_ == MAP_FAILED) throw system_error(cat("sharing ", bytes_, " bytes"), errno);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() { ::munmap(base_, bytes_); }

  template <typename T>
  T* at(size_t offset) const {
    return reinterpret_cast<T*>(static_cast<std::byte*>(base_) + offset);
  }

 private:
  const size_t bytes_;
  void* base_ = MAP_FAILED;
};

Fd shared_memory() {
  Fd file(::memfd_create("floor", MFD_CLOEXEC));
  if (!file) throw system_error("memfd_create", errno);
  return file;
}

// State that is created before the ranks start.
struct Shared {
  explicit Shared(int ranks)
      : ranks(ranks),
        host(load_host()),
        crowded(ranks > host.allowed_cores()),
        data(shared_memory()),
        lines(shared_memory(), sizeof(Line) * 2 * ranks) {}

  Line& flag(int rank) const { return lines.at<Line>(0)[rank]; }
  Line& line(int rank) const { return lines.at<Line>(0)[ranks + rank]; }

  const int ranks;
  const HostTopology host;
  const bool crowded;
  const Fd data;
  const Mapping lines;
};

struct Copy {
  std::byte* to;
  const std::byte* from;
  size_t bytes;
};

class FloorRank {
 public:
  FloorRank(const Shared& shared, int rank) : shared_(shared), rank_(rank) {}

  // Runs an order. Returns the times of the slowest rank.
  std::vector<double> run(const Order& order);

 private:
  void barrier();
  void exchange(const void* payload, size_t bytes, void* output);
  std::vector<Copy> copies(const Layout& layout, const Mapping& mapping, size_t stride,
                           void* output) const;
  void wait_for(const Line& line, uint64_t sequence) const;

  const Shared& shared_;
  const int rank_;
  uint64_t barriers_ = 0;
  uint64_t exchanges_ = 0;
};

void FloorRank::wait_for(const Line& line, uint64_t sequence) const {
  while (line.sequence.load(std::memory_order_acquire) < sequence) {
    if (shared_.crowded) ::sched_yield();
  }
}

void FloorRank::barrier() {
  shared_.flag(rank_).sequence.store(++barriers_, std::memory_order_release);
  for (int i = 1; i < shared_.ranks; ++i) {
    wait_for(shared_.flag((rank_ + i) % shared_.ranks), barriers_);
  }
}

void FloorRank::exchange(const void* payload, size_t bytes, void* output) {
  Line& mine = shared_.line(rank_);
  std::memcpy(mine.payload.data(), payload, bytes);
  mine.sequence.store(++exchanges_, std::memory_order_release);
  const Line& theirs = shared_.line((rank_ + 1) % shared_.ranks);
  wait_for(theirs, exchanges_);
  std::memcpy(output, theirs.payload.data(), bytes);
}

std::vector<Copy> FloorRank::copies(const Layout& layout, const Mapping& mapping, size_t stride,
                                    void* output) const {
  std::vector<Copy> list;
  auto* to = static_cast<std::byte*>(output);
  for (const Part& part : output_parts(layout, rank_)) {
    // For a reduction, copies the data of the previous one of the ranks whose inputs are reduced.
    const int from = part.combined == 0 ? part.rank : (rank_ + part.combined - 1) % part.combined;
    const size_t bytes = part.count * sizeof(float);
    if (from != rank_) {
      list.push_back(
          {to, mapping.at<std::byte>(from * stride) + part.first * sizeof(float), bytes});
    }
    to += bytes;
  }
  return list;
}

std::vector<double> FloorRank::run(const Order& order) {
  const Layout& layout = order.layout;
  size_t stride = order.timed * sizeof(double);
  for (int rank = 0; rank < layout.ranks; ++rank) {
    stride = std::max(stride, layout.inputs(rank) * sizeof(float));
  }
  stride = (stride + 4095) / 4096 * 4096;
  barrier();  // no rank reads the old data any more
  const Mapping mapping(shared_.data, layout.ranks * stride);
  Buffers buffers(layout, rank_);
  const size_t input_bytes = buffers.pristine.size() * sizeof(float);
  void* const input = mapping.at<void>(rank_ * stride);
  const auto rewrite = [&] {
    barrier();  // no rank copies the old data any more
    if (input_bytes > 0) std::memcpy(input, buffers.pristine.data(), input_bytes);
  };
  const std::vector<Copy> list = copies(layout, mapping, stride, buffers.output.data());
  const uint64_t total = layout.total() * sizeof(float);
  std::vector<double> times;
  if (layout.collective == Collective::barrier || (total > 0 && total <= kLineBytes)) {
    std::array<std::byte, kLineBytes> output;
    times = time_calls(
        order, rewrite, [&] { barrier(); }, [&] { exchange(input, total, output.data()); });
  } else {
    times = time_calls(
        order, rewrite, [&] { barrier(); },
        [&] {
          for (const Copy& copy : list) std::memcpy(copy.to, copy.from, copy.bytes);
        });
  }
  barrier();
  std::ranges::copy(times, mapping.at<double>(rank_ * stride));
  barrier();
  for (int rank = 0; rank < layout.ranks; ++rank) {
    const double* theirs = mapping.at<double>(rank * stride);
    for (size_t i = 0; i < times.size(); ++i) times[i] = std::max(times[i], theirs[i]);
  }
  return times;
}

}  // namespace

}  // namespace tutti::bench

int main(int argc, char** argv) {
  using namespace tutti::bench;
  const int ranks = argc == 3 ? std::atoi(argv[2]) : 0;
  if (ranks < 1) return 2;
  const Shared shared(ranks);
  return run_ranks(ranks, tutti::bind_local_ranks(shared.host, ranks), [&](int rank) {
    Orders orders(argv[1], rank, ranks);
    FloorRank floor(shared, rank);
    while (const std::optional<Order> order = orders.next()) {
      const std::vector<double> times = floor.run(*order);
      if (rank == 0) orders.reply(times);
    }
  });
}

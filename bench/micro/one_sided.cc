// Times one-sided calls between two ranks, for bench/micro/one_sided_beside.
//
//   tutti run -n 2 -- one_sided [--floor | --messages | --send | --computing |
//   --computing-messages]
//
// --floor: instead of calls, times plain copies and sums in the mapped memory. --messages: the
// window's memory is not shared. --send: instead of put and flush, times messages of the same
// lengths, each answered by an empty message. --computing: shows how long rank 0 waits for rank 1,
// which computes for a second without a call (TUTTI_PROGRESS_THREAD=1).
// --computing-messages: the same, but the window's memory is not shared.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <thread>
#include <vector>

#include "base/dtype.h"
#include "bench/micro/one_sided_times.h"
#include "collectives/communicator.h"
#include "collectives/one_sided/window.h"

namespace {

using tutti::bench::kLargestPart;

// Times messages; the receiver waits only inside its calls.
void time_sends(tutti::Communicator& world) {
  std::vector<std::byte> memory(kLargestPart);
  if (world.rank() == 0) {
    tutti::bench::time_calls("send", [&](size_t bytes) {
      world.send({memory.data(), bytes, tutti::DType::u8}, 1);
      world.recv({nullptr, 0, tutti::DType::u8}, 1);
    });
    world.send({nullptr, 0, tutti::DType::u8}, 1, {.tag = 1});
    return;
  }
  while (true) {
    const tutti::MessageInfo info = world.await_message(0, tutti::kAnyTag);
    world.recv({memory.data(), info.count, tutti::DType::u8}, 0, {.tag = info.tag});
    if (info.tag == 1) return;
    world.send({nullptr, 0, tutti::DType::u8}, 0);
  }
}

// Times plain accesses to the mapped memory of rank 1.
void time_floor(std::byte* part, std::byte* own) {
  tutti::bench::time_calls("put", [&](size_t bytes) {
    std::memcpy(part, own, bytes);
    std::atomic_thread_fence(std::memory_order_seq_cst);
  });
  tutti::bench::time_calls("get", [&](size_t bytes) { std::memcpy(own, part, bytes); });
  tutti::bench::time_calls("accumulate", [&](size_t bytes) {
    auto* to = reinterpret_cast<float*>(part);
    const auto* from = reinterpret_cast<const float*>(own);
    for (size_t i = 0; i < bytes / sizeof(float); ++i) to[i] += from[i];
    std::atomic_thread_fence(std::memory_order_seq_cst);
  });
}

void time_windows(tutti::Communicator& world, bool shared, bool floor) {
  std::vector<std::byte> plain(shared ? 0 : kLargestPart);
  tutti::Window window =
      shared ? tutti::Window::allocate(world, kLargestPart) : tutti::Window(world, plain);
  std::memset(window.memory().data(), 1, kLargestPart);
  std::vector<std::byte> own(kLargestPart, std::byte{2});
  window.fence();
  if (world.rank() == 0 && floor) {
    time_floor(window.mapped(1).data(), own.data());
  } else if (world.rank() == 0) {
    tutti::bench::time_calls("put", [&](size_t bytes) {
      window.put({own.data(), bytes, tutti::DType::u8}, 1, 0);
      window.flush(1);
    });
    tutti::bench::time_calls("get", [&](size_t bytes) {
      window.get({own.data(), bytes, tutti::DType::u8}, 1, 0);
    });
    tutti::bench::time_calls("accumulate", [&](size_t bytes) {
      window.accumulate({own.data(), bytes / 4, tutti::DType::f32}, 1, 0, tutti::ReduceOp::sum);
      window.flush(1);
    });
  }
  world.barrier();
  window.free();
}

// Computes for `time` without a call and returns the amount of work done.
double computed_in(std::chrono::seconds time) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point end = Clock::now() + time;
  volatile double value = 1;
  double rounds = 0;
  for (; Clock::now() < end; ++rounds) {
    for (int i = 0; i < 1000; ++i) value = value * 1.0000001;
  }
  return rounds;
}

// Makes rank 1 compute while rank 0 reads 4 KiB every 100 us. Prints rank 0's wait times, and the
// work of rank 1 relative to an undisturbed run.
void time_while_computing(tutti::Communicator& world, bool shared) {
  constexpr size_t kBytes = 4096;
  constexpr std::chrono::seconds kLong{1};
  std::vector<std::byte> plain(shared ? 0 : kBytes);
  tutti::Window window =
      shared ? tutti::Window::allocate(world, kBytes) : tutti::Window(world, plain);
  window.fence();
  if (world.rank() == 1) {
    const double undisturbed = computed_in(kLong);
    window.fence();
    const double asked = computed_in(kLong);
    std::printf("rank 1 computes %.3f of what it does when nobody asks\n", asked / undisturbed);
    window.free();
    return;
  }
  window.fence();
  std::vector<double> waits;  // in milliseconds
  std::vector<std::byte> own(kBytes);
  using Clock = std::chrono::steady_clock;
  const Clock::time_point end = Clock::now() + std::chrono::milliseconds(900);
  while (Clock::now() < end) {
    const Clock::time_point start = Clock::now();
    window.get({own.data(), kBytes, tutti::DType::u8}, 1, 0);
    waits.push_back(std::chrono::duration<double, std::milli>(Clock::now() - start).count());
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  std::sort(waits.begin(), waits.end());
  std::printf("%zu gets: median %.4f ms, worst %.4f ms\n", waits.size(), waits[waits.size() / 2],
              waits.back());
  window.free();
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view mode = argc > 1 ? argv[1] : "";
  tutti::Communicator world = tutti::Communicator::init();
  if (mode == "--send") {
    time_sends(world);
  } else if (mode == "--computing" || mode == "--computing-messages") {
    time_while_computing(world, mode == "--computing");
  } else {
    time_windows(world, mode != "--messages", mode == "--floor");
  }
}

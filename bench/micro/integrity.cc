// All-reduces and messages of two ranks over TCP, by one communicator that verifies hashes and by
// one that does not, call by call in turn: what else runs on the machine slows both alike.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <span>
#include <vector>

#include "base/median.h"
#include "base/reduce.h"
#include "base/settings.h"
#include "collectives/communicator.h"

namespace tutti {
namespace {

constexpr size_t kLargest = 64 << 20;
constexpr size_t kBytesOfASize = size_t{1} << 30;
constexpr int kMostCalls = 2000;

using Call = std::function<void(Communicator&, std::span<float>)>;

Communicator with_integrity(Communicator& world, const char* value) {
  settings().set("TUTTI_INTEGRITY", value);
  return world.duplicate();
}

double time_us(const std::function<void()>& call) {
  const auto begin = std::chrono::steady_clock::now();
  call();
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin)
      .count();
}

void all_reduce(Communicator& comm, std::span<float> values) { comm.all_reduce(values); }

// There and back.
void ping_pong(Communicator& comm, std::span<float> values) {
  const Buffer buffer = buffer_of(values);
  if (comm.rank() == 0) comm.send(as_const(buffer), 1);
  comm.recv(buffer, 1 - comm.rank());
  if (comm.rank() == 1) comm.send(as_const(buffer), 0);
}

void measure(const char* name, const Call& call, Communicator& off, Communicator& on,
             std::span<float> values) {
  std::vector<double> off_us;
  std::vector<double> on_us;
  std::vector<double> ratios;
  const int calls = static_cast<int>(
      std::clamp<size_t>(kBytesOfASize / (values.size_bytes() + (64 << 10)), 20, kMostCalls));
  for (int i = 0; i < calls; ++i) {
    off.barrier();
    off_us.push_back(time_us([&] { call(off, values); }));
    on.barrier();
    on_us.push_back(time_us([&] { call(on, values); }));
    ratios.push_back(on_us.back() / off_us.back());
  }
  if (off.rank() != 0) return;
  const double without = median(off_us);
  const double with = median(on_us);
  std::printf("%-10s %9zu B  off %9.1f us  on %9.1f us  on/off %5.3f  median of pairs %5.3f\n",
              name, values.size_bytes(), without, with, with / without, median(ratios));
  std::fflush(stdout);
}

void run() {
  settings().set("TUTTI_TRANSPORT", "tcp");
  Communicator world = Communicator::init();
  Communicator off = with_integrity(world, "off");
  Communicator on = with_integrity(world, "on");
  if (world.rank() == 0) {
    std::printf("hashes by %s\n",
                name(std::min(selected_instruction_set(), InstructionSet::avx2)).data());
  }
  std::vector<float> values(kLargest / sizeof(float));
  for (size_t bytes = 8; bytes <= kLargest; bytes *= bytes == 8 ? 128 : 4) {
    const std::span<float> some = std::span(values).first(bytes / sizeof(float));
    measure("all_reduce", all_reduce, off, on, some);
    measure("send, recv", ping_pong, off, on, some);
  }
}

}  // namespace
}  // namespace tutti

int main() {
  tutti::run();
  return 0;
}

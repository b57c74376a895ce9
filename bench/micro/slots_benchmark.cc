// Measures a message through shared memory, by payload bytes: one rank writes it; the other finds,
// reads and releases it. One thread does both, so no line moves between caches and only the work
// itself is measured.
#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "transport/shm/region.h"
#include "transport/shm/shm_transport.h"

namespace tutti {
namespace {

constexpr int kRanks = 2;
constexpr int kLane = 0;
constexpr int kCredit = 2;

void send_and_receive(benchmark::State& state) {
  const shm::Geometry geometry(kRanks, kRanks);
  const Fd memory = shm::Region::create(geometry);
  const std::shared_ptr<shm::Region> region = shm::Region::map(memory, geometry);
  ShmTransport sender(0, region, geometry);
  ShmTransport receiver(1, region, geometry);

  const auto bytes = static_cast<size_t>(state.range(0));
  const std::vector<std::byte> payload(bytes, std::byte{1});
  std::vector<std::byte> received(bytes);
  MessageHeader header{.bytes = static_cast<uint32_t>(bytes)};
  for (auto _ : state) {
    ++header.call;
    const bool sent = sender.write(1, kLane, header, payload, kCredit);
    const MessageHeader* found = receiver.front(0, kLane);
    if (!sent || found == nullptr || found->call != header.call ||
        !receiver.read(0, kLane, received, Store::cached)) {
      state.SkipWithError("the message was not received");
      break;
    }
    receiver.release(0, kLane);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(bytes));
}
BENCHMARK(send_and_receive)->Arg(8)->Arg(1 << 10)->Arg(32 << 10);

}  // namespace
}  // namespace tutti

// Measures by message size: one rank's part of an all-reduce when the other rank's message has
// already arrived (hot_path.cc counts its instructions); the same part as a prepared call; and the
// look-up of the algorithm for a size.
#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/ticks.h"
#include "bench/micro/pair.h"
#include "collectives/cost/imagined_machine.h"
#include "collectives/cost/planner.h"

namespace tutti::bench {
namespace {

// Times the second rank's part, after the first rank has sent its message. One thread drives both
// ranks, so each rank must be able to send its whole message without waiting.
template <typename MakeCall>
void time_second_rank(benchmark::State& state, MakeCall make_call) {
  auto [first, second] = make_pair_of_ranks();
  const size_t count = static_cast<size_t>(state.range(0)) / sizeof(float);
  std::vector<float> values(count, 1);
  std::vector<float> others(count, 2);
  std::vector<float> sum(count);
  std::vector<float> other_sum(count);
  auto timed =
      make_call(second, Request::all_reduce(as_const(buffer_of(std::span(others))),
                                            buffer_of(std::span(other_sum)), ReduceOp::sum));
  Prepared peer = first.prepare(Request::all_reduce(as_const(buffer_of(std::span(values))),
                                                    buffer_of(std::span(sum)), ReduceOp::sum));
  for (auto _ : state) {
    Work work = peer.start();
    const Ticks start = ticks();
    timed();
    const Ticks end = ticks();
    work.wait();
    state.SetIterationTime(1e-9 * static_cast<double>(nanoseconds_between(start, end)));
  }
  if (sum.back() != 3 || other_sum.back() != 3) state.SkipWithError("the sum is wrong");
}

void call(benchmark::State& state) {
  time_second_rank(state, [](Communicator& rank, const Request& request) {
    return [&rank, request] { rank.all_reduce(request.input, request.output, request.op); };
  });
}
BENCHMARK(call)->UseManualTime()->Arg(8)->Arg(1 << 10);

void prepared_call(benchmark::State& state) {
  time_second_rank(state, [](Communicator& rank, const Request& request) {
    return [prepared = rank.prepare(request)]() mutable { prepared.run(); };
  });
}
BENCHMARK(prepared_call)->UseManualTime()->Arg(8)->Arg(1 << 10);

void choose_of_known_size(benchmark::State& state) {
  constexpr int kRanks = 2;
  Planner planner({.ranks = kRanks}, imagined_machine(Hosts::equal(kRanks, kRanks), /*shm=*/true,
                                                      PathClass::tcp, CostModel::defaults()));
  const CallToPlan wanted{.collective = Collective::all_reduce,
                          .bytes = static_cast<uint64_t>(state.range(0))};
  planner.choose(wanted);
  for (auto _ : state) benchmark::DoNotOptimize(&planner.choose(wanted));
}
BENCHMARK(choose_of_known_size)->Arg(8)->Arg(1 << 20);

}  // namespace
}  // namespace tutti::bench

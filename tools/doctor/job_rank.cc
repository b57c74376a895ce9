// Runs a rank of the doctor's test job.
#include <iostream>
#include <map>

#include "base/text.h"
#include "bench/measure.h"
#include "bench/pairs.h"
#include "collectives/communicator.h"
#include "tools/doctor/job_check.h"

namespace tutti::tool {

namespace {

constexpr uint64_t kAnswerBytes = 8192;  // bytes of each collective with known results

// Runs the collectives and adds the names of those with wrong results on any rank.
void try_answers(Communicator& comm, JobResult& result) {
  const auto answer = [&](bench::Case c) {
    c.bytes = kAnswerBytes;
    bench::Measurement measurement(comm, c);
    measurement.run(0, 1);
    const uint64_t wrong = measurement.count_wrong();
    ++result.cases;
    if (wrong == 0) return;
    result.wrong.push_back(cat(name(c.collective), " of ", name(c.dtype), ", ", name(c.op), ": ",
                               wrong, " elements are wrong"));
  };
  for (const DType dtype : kAllDTypes) {
    for (const ReduceOp op : kAllReduceOps) {
      if (supports(op, dtype)) answer({.dtype = dtype, .op = op});
    }
  }
  for (const Collective collective : kCollectivesWithAlgorithms) {
    if (collective != Collective::all_reduce && collective != Collective::barrier) {
      answer({.collective = collective});
    }
  }
}

void measure_links(Communicator& comm, const std::vector<Host>& hosts, JobResult& result) {
  std::vector<std::string> host_of;
  for (const Host& host : hosts) {
    host_of.insert(host_of.end(), static_cast<size_t>(host.slots), host.name);
  }
  const std::vector<Round> rounds = rounds_of_pairs(ranks_of(hosts));
  const bench::PairTimes times = bench::measure_pairs(comm, rounds);
  if (comm.rank() != 0) return;
  for (const Round& round : rounds) {
    for (const auto& [low, high] : round) {
      const auto a = static_cast<size_t>(low);
      const auto b = static_cast<size_t>(high);
      const double latency = times.latency(low, high);  // mean of the latencies in both directions
      result.links.push_back(
          {low, high, host_of[a], host_of[b], latency, times.bandwidth(low, high)});
      result.links.push_back(
          {high, low, host_of[b], host_of[a], latency, times.bandwidth(high, low)});
    }
  }
}

}  // namespace

int run_doctor_rank(const std::vector<Host>& dealt) {
  Communicator comm = Communicator::init();
  JobResult result;
  result.transport = comm.transport();
  try_answers(comm, result);
  measure_links(comm, dealt.empty() ? with_ranks(comm.size(), {}) : dealt, result);
  if (comm.rank() == 0) std::cout << to_json(result).dump() << '\n';
  return 0;
}

}  // namespace tutti::tool

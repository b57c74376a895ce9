#include "tools/tutti/topo/measure.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <iterator>
#include <map>
#include <utility>

#include "base/buffer.h"
#include "base/error.h"
#include "base/median.h"
#include "base/text.h"
#include "bench/pairs.h"
#include "collectives/communicator.h"
#include "tools/launcher/captured.h"
#include "tools/launcher/remote_shell.h"

namespace tutti::tool {

namespace {

constexpr std::chrono::minutes kMeasureWithin(60);
constexpr const char* kMeasured = "tutti topo measured: ";  // prefix of rank 0's line

// Returns one round per pair, so that pairs do not disturb each other.
std::vector<bench::Round> pair_by_pair(int ranks) {
  std::vector<bench::Round> rounds;
  for (int low = 0; low < ranks; ++low) {
    for (int high = low + 1; high < ranks; ++high) rounds.push_back({{low, high}});
  }
  return rounds;
}

// Returns one round of all neighbours (0 and 1, 2 and 3, ...), whose concurrent transfers share
// links.
bench::Round all_at_once(int ranks) {
  bench::Round round;
  for (int low = 0; low + 1 < ranks; low += 2) round.emplace_back(low, low + 1);
  return round;
}

std::vector<MeasuredPair> pairs_of(const bench::PairTimes& times,
                                   const std::vector<bench::Round>& rounds) {
  std::vector<MeasuredPair> pairs;
  for (const bench::Round& round : rounds) {
    for (const auto& [low, high] : round) {
      for (const auto& [from, to] : {std::pair(low, high), std::pair(high, low)}) {
        pairs.push_back({from, to, times.latency(from, to), times.bandwidth(from, to)});
      }
    }
  }
  return pairs;
}

std::vector<MeasuredPair> pairs_from(const Json& list) {
  std::vector<MeasuredPair> pairs;
  for (const Json& pair : list) {
    pairs.push_back({pair["from"].get<int>(), pair["to"].get<int>(),
                     pair["latency_us"].get<double>(), pair["bandwidth_GBps"].get<double>()});
  }
  return pairs;
}

std::string matrix(const MeasuredRanks& measured, double MeasuredPair::*what, const char* title) {
  const size_t p = measured.host_of.size();
  std::vector<double> cells(p * p);
  for (const MeasuredPair& pair : measured.pairs) {
    cells[static_cast<size_t>(pair.from) * p + static_cast<size_t>(pair.to)] = pair.*what;
  }
  std::string text = cat(title, "\n     ");
  char cell[32];
  const auto add = [&](const char* format, auto value) {
    std::snprintf(cell, sizeof cell, format, value);
    text += cell;
  };
  for (size_t to = 0; to < p; ++to) add(" %8zu", to);
  for (size_t from = 0; from < p; ++from) {
    add("\n%5zu", from);
    for (size_t to = 0; to < p; ++to) {
      if (from == to) {
        add(" %8s", "X");
      } else {
        add(" %8.2f", cells[from * p + to]);
      }
    }
  }
  return text + '\n';
}

}  // namespace

std::vector<std::string> names_of_hosts(Communicator& comm) {
  struct Host {
    char name[192];
    char network[64];
  };
  Host own{};
  ::gethostname(own.name, sizeof own.name - 1);
  if (::readlink("/proc/self/ns/net", own.network, sizeof own.network - 1) < 0) own.network[0] = 0;
  std::vector<Host> all(static_cast<size_t>(comm.size()));
  comm.all_gather({&own, sizeof own, DType::u8}, {all.data(), sizeof own * all.size(), DType::u8});
  std::map<std::string, std::vector<std::string>> networks;  // key: name
  std::vector<std::string> names;
  for (const Host& host : all) {
    std::vector<std::string>& known = networks[host.name];
    const auto place = std::ranges::find(known, host.network) - known.begin();
    if (place == std::ssize(known)) known.emplace_back(host.network);
    names.push_back(place == 0 ? host.name : cat(host.name, '#', place + 1));
  }
  return names;
}

Json to_json(const std::vector<MeasuredPair>& pairs) {
  Json list = Json::array();
  for (const MeasuredPair& pair : pairs) {
    list.push_back({{"from", pair.from},
                    {"to", pair.to},
                    {"latency_us", pair.latency_us},
                    {"bandwidth_GBps", pair.GBps}});
  }
  return list;
}

int run_measuring_rank() {
  Communicator comm = Communicator::init();
  const std::vector<bench::Round> rounds = pair_by_pair(comm.size());
  const bench::Round together = all_at_once(comm.size());
  const std::vector<std::string> hosts = names_of_hosts(comm);
  const bench::PairTimes alone = bench::measure_pairs(comm, rounds);
  const bench::PairTimes at_once = bench::measure_pairs(comm, {together});
  if (comm.rank() != 0) return 0;
  const Json result = {{"transport", comm.transport()},
                       {"hosts", hosts},
                       {"pairs", to_json(pairs_of(alone, rounds))},
                       {"together", to_json(pairs_of(at_once, {together}))}};
  std::cout << kMeasured << result.dump() << '\n';
  return 0;
}

MeasuredRanks measure_ranks(int ranks, const std::vector<Host>& hosts) {
  ChildSpec spec;
  spec.command = {this_program(), "run", "--no-prefix", "-n", cat(ranks)};
  if (!hosts.empty()) spec.command.insert(spec.command.end(), {"--hosts", to_text(hosts)});
  spec.command.insert(spec.command.end(), {"--", this_program(), "topo", "--measure-rank"});
  const Captured job = run_captured(spec, kMeasureWithin);
  for (const std::string& line : split(job.out, '\n')) {
    if (!line.starts_with(kMeasured)) continue;
    const Json result = Json::parse(line.substr(std::string_view(kMeasured).size()));
    return {.transport = result["transport"].get<std::string>(),
            .host_of = result["hosts"].get<std::vector<std::string>>(),
            .pairs = pairs_from(result["pairs"]),
            .together = pairs_from(result["together"])};
  }
  throw Error(
      ErrorCode::unsupported,
      cat("measuring with ", ranks, " ranks ",
          job.in_time ? cat("exited with code ", job.code) : "took too long"),
      {.cause = cat("output of the ranks:\n", last_words(job.err.empty() ? job.out : job.err))});
}

std::string to_text(const MeasuredRanks& measured) {
  std::string text =
      cat(matrix(measured, &MeasuredPair::latency_us, "latency, us (half of a round trip)"), '\n',
          matrix(measured, &MeasuredPair::GBps, "bandwidth, GB/s, from row to column"));
  if (measured.together.size() < 4) return text;
  std::vector<double> left;
  for (const MeasuredPair& both : measured.together) {
    const auto alone = std::ranges::find_if(measured.pairs, [&](const MeasuredPair& pair) {
      return pair.from == both.from && pair.to == both.to;
    });
    left.push_back(both.GBps / alone->GBps);
  }
  std::ranges::sort(left);
  char line[160];
  std::snprintf(
      line, sizeof line,
      "all neighbours concurrently: %.2f of the bandwidth of a single pair (%.2f to %.2f)\n",
      median(left), left.front(), left.back());
  return text + '\n' + line;
}

}  // namespace tutti::tool

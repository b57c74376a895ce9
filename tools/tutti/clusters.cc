#include "tools/tutti/clusters.h"

#include <cstdio>
#include <string_view>

#include "base/json.h"
#include "base/text.h"
#include "collectives/program/bus_factor.h"
#include "tools/tutti/commands.h"

namespace tutti::tool {

namespace {

// Returns the bus bandwidth on the cluster's ranks, in GB/s.
double busbw(const ClusterQuestion& q, double bytes, double us) {
  return bytes / us * 1e-3 * bus_factor(q.collective, q.cluster.ranks());
}

std::string title(const ClusterQuestion& q) {
  const tutti::Cluster& c = q.cluster;
  return cat(name(q.collective), " on ", q.text, ": ", c.ranks(), " GPUs, ", c.hosts,
             c.hosts == 1 ? " host of " : " hosts of ", c.gpus, "\nparameters: ", c.source, '\n');
}

std::string text_of(const ClusterCandidate& candidate) {
  return cat(candidate.algorithm, ", ", name(candidate.protocol));
}

Json to_json(const ClusterQuestion& q, double bytes, const ClusterPrediction& prediction) {
  const ClusterCandidate& chosen = prediction.candidates.front();
  return {{"bytes", static_cast<uint64_t>(bytes)},
          {"algorithm", chosen.algorithm},
          {"protocol", name(chosen.protocol)},
          {"time_us", prediction.time_us},
          {"time_us_low", prediction.interval_us.low},
          {"time_us_high", prediction.interval_us.high},
          {"algbw_GBps", bytes / prediction.time_us * 1e-3},
          {"busbw_GBps", busbw(q, bytes, prediction.time_us)}};
}

Json head_of(const ClusterQuestion& q) {
  return {
      {"collective", name(q.collective)}, {"topology", q.text},       {"cluster", q.text},
      {"ranks", q.cluster.ranks()},       {"hosts", q.cluster.hosts}, {"source", q.cluster.source}};
}

void add_members(const Json& from, Json& to) {
  for (const Json::Member& member : from.items()) to[member.name] = member.value;
}

}  // namespace

int simulate_on_cluster(const ClusterQuestion& q) {
  Json results = Json::array();
  std::printf("%s%14s  %-14s %12s %12s %12s %12s %12s\n", title(q).c_str(), "bytes", "algorithm",
              "time us", "low us", "high us", "algbw GB/s", "busbw GB/s");
  for (const double bytes : q.bytes) {
    const ClusterPrediction prediction = predict(q.cluster, q.collective, bytes);
    std::printf("%14.0f  %-14s %12.2f %12.2f %12.2f %12.3f %12.3f\n", bytes,
                text_of(prediction.candidates.front()).c_str(), prediction.time_us,
                prediction.interval_us.low, prediction.interval_us.high,
                bytes / prediction.time_us * 1e-3, busbw(q, bytes, prediction.time_us));
    results.push_back(to_json(q, bytes, prediction));
  }
  std::printf("NCCL's algorithms, predicted; %s.\n", kIntervalMeaning);
  write_results(q.json, head_of(q), results);
  return 0;
}

int explain_on_cluster(const ClusterQuestion& q) {
  const double bytes = q.bytes.front();
  const ClusterPrediction prediction = predict(q.cluster, q.collective, bytes);
  Json document = head_of(q);
  add_members(to_json(q, bytes, prediction), document);
  document["chosen"] = prediction.candidates.front().algorithm;
  document["algorithms"] = Json::array();
  std::printf("%s\n", title(q).c_str());
  for (const ClusterCandidate& candidate : prediction.candidates) {
    const double bandwidth = busbw(q, bytes, candidate.time_us());
    std::printf("%s %-14s %12.2f us  = launch and steps %10.2f  bytes %12.2f  busbw %.3f GB/s\n",
                &candidate == &prediction.candidates.front() ? "  >" : "   ",
                text_of(candidate).c_str(), candidate.time_us(), candidate.steps_us,
                candidate.bytes_us, bandwidth);
    document["algorithms"].push_back({{"algorithm", candidate.algorithm},
                                      {"protocol", name(candidate.protocol)},
                                      {"time_us", candidate.time_us()},
                                      {"steps_us", candidate.steps_us},
                                      {"bytes_us", candidate.bytes_us},
                                      {"busbw_GBps", bandwidth}});
  }
  std::printf("\n%.2f us, from %.2f to %.2f: %s.\n", prediction.time_us, prediction.interval_us.low,
              prediction.interval_us.high, kIntervalMeaning);
  if (!q.json.empty()) write_file(q.json, document.dump(2) + "\n");
  return 0;
}

}  // namespace tutti::tool

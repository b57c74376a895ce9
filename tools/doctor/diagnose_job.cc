// Diagnoses the test job's results.
#include <algorithm>
#include <cstdio>
#include <set>

#include "base/median.h"
#include "base/text.h"
#include "tools/doctor/diagnose.h"

namespace tutti::tool {

namespace {

using Findings = std::vector<Finding>;
using Hosts = std::vector<HostFacts>;

// links below this fraction of the bandwidth of similar links are reported
constexpr double kSlowerThanOthers = 0.5;
// links above this multiple of the latency of similar links are reported
constexpr double kLaterThanOthers = 3;
constexpr double kNoticeable_us = 20;  // in microseconds; lower latencies are not reported
// A single stream uses only part of a fast card's bandwidth, but every machine reaches this
// bandwidth.
constexpr double kEveryStream_GBps = 1.25;
constexpr double kPartOfSpeed = 0.2;
constexpr double kAnyNetwork_GBps = 0.0125;  // 100 Mbit/s in GB/s, for cards of unknown speed
constexpr size_t kEnoughForMedian = 4;

// Returns the typical value of similar links: the median, or the best of a few.
double typical(std::vector<double> values, bool more_is_better) {
  if (values.empty()) return 0;
  if (values.size() >= kEnoughForMedian) return median(values);
  return more_is_better ? *std::ranges::max_element(values) : *std::ranges::min_element(values);
}

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, value < 10 ? "%.3g" : "%.0f", value);
  return text;
}

std::string place(const Link& link) {
  return cat("rank ", link.from, " (", link.from_host, ") to rank ", link.to, " (", link.to_host,
             ")");
}

const HostFacts* host_named(const Hosts& hosts, const std::string& name) {
  const auto found = std::ranges::find(hosts, name, &HostFacts::name);
  return found == hosts.end() ? nullptr : &*found;
}

// Returns the card's speed in GB/s, or 0 if it is unknown.
double speed_of_card(const HostFacts* host) {
  if (host == nullptr || host->rails.empty()) return 0;
  const auto found =
      std::ranges::find(host->interfaces, host->rails.front().interface, &Interface::name);
  return found == host->interfaces.end() ? 0 : static_cast<double>(found->megabits) / 8000;
}

void check_speed(const Hosts& hosts, const Link& link, double usual, Findings& findings) {
  const bool between = link.from_host != link.to_host;
  const double one = speed_of_card(host_named(hosts, link.from_host));
  const double other = speed_of_card(host_named(hosts, link.to_host));
  const double card = one > 0 && other > 0 ? std::min(one, other) : std::max(one, other);
  const double expected =
      card > 0 ? std::min(card, kEveryStream_GBps) * kPartOfSpeed : kAnyNetwork_GBps;
  const std::string has = cat("a slow link: ", number(link.bandwidth_GBps * 1000), " MB/s, ");
  Finding finding{.check = check::kLinks, .severity = Severity::warning, .where = place(link)};
  if (link.bandwidth_GBps < usual * kSlowerThanOthers) {
    finding.what = cat(has, "but similar links have ", number(usual * 1000));
  } else if (between && link.bandwidth_GBps < expected) {
    finding.what = cat(has, card > 0 ? cat("over cards of ", number(card * 8), " Gbit/s")
                                     : "which is less than any current network");
  } else {
    return;
  }
  finding.cause = between ? "a cable or port that fell back to a lower speed, a rate limit, other "
                            "traffic, or the wrong interface"
                          : "the ranks share a core, or other programs keep it busy";
  finding.remedy = between ? "compare `ethtool INTERFACE` and `ip -s link` on both hosts; select "
                             "another network with TUTTI_INTERFACE"
                           : "check which other programs run on that host";
  findings.push_back(finding);
}

void check_latency(const Link& link, double usual, Findings& findings) {
  if (link.latency_us < kNoticeable_us || link.latency_us <= usual * kLaterThanOthers) return;
  findings.push_back(
      {check::kLinks, Severity::warning,
       cat("a latency of ", number(link.latency_us), " us, but similar links have ", number(usual)),
       place(link), "a longer network path, a busy link or a busy core",
       "check the load of both hosts and the path between them (tracepath)"});
}

void check_links(const Hosts& hosts, const std::vector<Link>& links, Findings& findings) {
  // hosts whose ranks share cores, so that their times are unreliable
  std::set<std::string> crowded;
  for (const HostFacts& host : hosts) {
    if (host.ranks > host.cores) crowded.insert(host.name);
  }
  for (const bool between : {false, true}) {
    std::vector<const Link*> kind;
    std::vector<double> bandwidths;
    std::vector<double> latencies;
    for (const Link& link : links) {
      if ((link.from_host != link.to_host) != between) continue;
      if (!between && crowded.contains(link.from_host)) continue;
      kind.push_back(&link);
      bandwidths.push_back(link.bandwidth_GBps);
      latencies.push_back(link.latency_us);
    }
    for (const Link* link : kind) {
      check_speed(hosts, *link, typical(bandwidths, true), findings);
      check_latency(*link, typical(latencies, false), findings);
    }
  }
}

}  // namespace

Findings diagnose_job(const Hosts& hosts, const JobResult& result) {
  Findings findings;
  if (!result.ran) {
    findings.push_back({check::kJob, Severity::error, cat("the test job failed: ", result.problem),
                        "the ranks named in the message", "",
                        "see its message; try `tutti run ... -- tutti bench all_reduce`"});
    return findings;
  }
  for (const std::string& wrong : result.wrong) {
    findings.push_back({check::kAnswers, Severity::error, wrong, "all ranks",
                        "faulty memory, a faulty network card, or a bug in Tutti",
                        "try TUTTI_TRANSPORT=tcp and TUTTI_CPU=baseline, and test the memory"});
  }
  check_links(hosts, result.links, findings);
  return findings;
}

bool rules_out_a_job(const Findings& findings) {
  static const std::set<std::string> kNeeded = {check::kHosts, check::kVersions,   check::kSettings,
                                                check::kReach, check::kInterfaces, check::kMtu};
  return std::ranges::any_of(findings, [](const Finding& finding) {
    return finding.severity == Severity::error && kNeeded.contains(finding.check);
  });
}

}  // namespace tutti::tool

#include "tools/doctor/job_check.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/json.h"
#include "base/settings.h"
#include "base/text.h"
#include "tools/launcher/captured.h"
#include "tools/launcher/remote_shell.h"

namespace tutti::tool {

namespace {

using std::chrono::milliseconds;

constexpr milliseconds kJobWithin{120000};
constexpr milliseconds kAndForEachRank{200};
// Timeout in seconds of calls and of the start, shorter than the settings' defaults because each
// call does little.
constexpr const char* kCallWithin = "30";
// Limits on rounds; n - 1 rounds cover all pairs of n hosts.
constexpr int kMostRoundsBetween = 64;
constexpr int kMostRoundsWithin = 16;

// Returns all pairs in rounds, by the circle method of round-robin tournaments: one player is
// fixed, and the others rotate.
std::vector<Round> tournament(int players, int most_rounds) {
  const int even = players + players % 2;
  std::vector<Round> rounds;
  for (int turn = 0; turn < std::min(even - 1, most_rounds); ++turn) {
    Round& round = rounds.emplace_back();
    const auto seat = [&](int i) { return i == 0 ? 0 : 1 + (i - 1 + turn) % (even - 1); };
    for (int i = 0; i < even / 2; ++i) {
      const auto [low, high] = std::minmax({seat(i), seat(even - 1 - i)});
      if (high < players) round.emplace_back(low, high);
    }
  }
  return rounds;
}

std::optional<JobResult> result_in(const std::string& output) {
  for (const std::string& line : split(output, '\n')) {
    try {
      const Json json = Json::parse(line);
      if (json.is_object() && json.contains("links")) return job_result_from_json(json);
    } catch (const Error&) {  // output of another program
    }
  }
  return std::nullopt;
}

}  // namespace

std::vector<Host> with_ranks(int ranks, const std::vector<Host>& hosts) {
  const std::vector<Host> on = hosts.empty() ? std::vector<Host>{{.name = "this host"}} : hosts;
  const std::vector<std::vector<int>> dealt = deal_ranks(ranks, on, MapBy::slot);
  std::vector<Host> taken;
  for (size_t i = 0; i < on.size(); ++i) {
    if (!dealt[i].empty()) taken.push_back({on[i].name, static_cast<int>(dealt[i].size())});
  }
  return taken;
}

std::vector<int> ranks_of(const std::vector<Host>& dealt) {
  std::vector<int> ranks;
  for (const Host& host : dealt) ranks.push_back(host.slots);
  return ranks;
}

std::vector<Round> rounds_of_pairs(const std::vector<int>& ranks_of_hosts) {
  std::vector<int> first = {0};
  for (const int ranks : ranks_of_hosts) first.push_back(first.back() + ranks);
  std::vector<Round> rounds =
      tournament(static_cast<int>(ranks_of_hosts.size()), kMostRoundsBetween);
  for (Round& round : rounds) {
    for (auto& [low, high] : round) {
      low = first[static_cast<size_t>(low)];
      high = first[static_cast<size_t>(high)];
    }
  }
  const size_t between = rounds.size();
  for (size_t host = 0; host < ranks_of_hosts.size(); ++host) {
    const std::vector<Round> within = tournament(ranks_of_hosts[host], kMostRoundsWithin);
    if (rounds.size() < between + within.size()) rounds.resize(between + within.size());
    for (size_t i = 0; i < within.size(); ++i) {
      for (const auto& [low, high] : within[i]) {
        rounds[between + i].emplace_back(first[host] + low, first[host] + high);
      }
    }
  }
  std::erase_if(rounds, [](const Round& round) { return round.empty(); });
  return rounds;
}

JobResult run_job(int ranks, const std::vector<Host>& dealt) {
  ChildSpec spec;
  spec.command = {this_program(), "run", "--no-prefix", "-n", cat(ranks)};
  if (!dealt.empty()) spec.command.insert(spec.command.end(), {"--hosts", to_text(dealt)});
  spec.command.insert(spec.command.end(), {"--", this_program(), "doctor-rank"});
  if (!dealt.empty()) spec.command.push_back(to_text(dealt));
  // Cleared, because the launcher defines the rendezvous. A rendezvous file is for jobs without
  // `tutti run`.
  spec.environment["TUTTI_RENDEZVOUS"] = "";
  for (const char* name : {"TUTTI_TIMEOUT", "TUTTI_INIT_TIMEOUT"}) {
    if (settings().value(name).origin == "default") spec.environment[name] = kCallWithin;
  }
  const milliseconds within = kJobWithin + kAndForEachRank * ranks;
  const Captured job = run_captured(spec, within);
  const std::string errors = last_words(job.err);
  if (!job.in_time) {
    return {.problem = cat("it did not finish within ", within.count() / 1000, " s\n", errors)};
  }
  const std::optional<JobResult> result = result_in(job.out);
  if (job.code == 0 && result) return *result;
  return {.problem = errors.empty() ? cat("it exited with code ", job.code) : errors};
}

}  // namespace tutti::tool

#include "tools/doctor/job_check.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <optional>

#include "base/deadline.h"
#include "base/error.h"
#include "base/json.h"
#include "base/settings.h"
#include "base/text.h"
#include "tools/launcher/child.h"
#include "tools/launcher/remote_shell.h"

namespace tutti::tool {

namespace {

using std::chrono::milliseconds;

constexpr milliseconds kFarewell{5000};
constexpr milliseconds kJobWithin{120000};
constexpr milliseconds kAndForEachRank{200};
// Of calls and of the start; shorter than the settings' defaults, as little is done in each.
constexpr const char* kCallWithin = "30";
constexpr size_t kMostShown = 1500;
// Of a group of n, n - 1 rounds are all pairs.
constexpr int kMostRoundsBetween = 64;
constexpr int kMostRoundsWithin = 16;

// Everybody with everybody in rounds, as a chess tournament has it: one stays, the others turn.
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

// The last of what it said on standard error.
std::string last_words(std::string text) {
  while (text.ends_with('\n')) text.pop_back();
  if (text.size() <= kMostShown) return text;
  text.erase(0, text.size() - kMostShown);
  return "..." + text.substr(std::min(text.find('\n'), text.size()));
}

std::optional<JobResult> result_in(const std::string& output) {
  for (const std::string& line : split(output, '\n')) {
    try {
      const Json json = Json::parse(line);
      if (json.is_object() && json.contains("links")) return job_result_from_json(json);
    } catch (const Error&) {  // words of something else
    }
  }
  return std::nullopt;
}

// Both to their ends. False when the time is up.
bool read_both(Fd& out, Fd& err, std::string& output, std::string& errors,
               const Deadline& deadline) {
  while (out || err) {
    pollfd ready[] = {{out.get(), POLLIN, 0}, {err.get(), POLLIN, 0}};
    ::poll(ready, 2, static_cast<int>(deadline.remaining().count()));
    if (deadline.passed()) return false;
    for (Fd* fd : {&out, &err}) {
      if (ready[fd == &out ? 0 : 1].revents == 0) continue;
      char block[4096];
      const ssize_t got = ::read(fd->get(), block, sizeof block);
      if (got > 0) (fd == &out ? output : errors).append(block, static_cast<size_t>(got));
      if (got == 0 || (got < 0 && errno != EINTR)) fd->reset();
    }
  }
  return true;
}

std::string joined(const std::vector<Host>& dealt) {
  std::string text;
  for (const Host& host : dealt) {
    const bool is_ipv6 = host.name.find(':') != std::string::npos;
    text += cat(text.empty() ? "" : ",", is_ipv6 ? cat("[", host.name, "]") : host.name, ":",
                host.slots);
  }
  return text;
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
  if (!dealt.empty()) spec.command.insert(spec.command.end(), {"--hosts", joined(dealt)});
  spec.command.insert(spec.command.end(), {"--", this_program(), "doctor-rank"});
  if (!dealt.empty()) spec.command.push_back(joined(dealt));
  // The ranks meet as the launcher says; a file is for jobs that are started otherwise.
  spec.environment["TUTTI_RENDEZVOUS"] = "";
  for (const char* name : {"TUTTI_TIMEOUT", "TUTTI_INIT_TIMEOUT"}) {
    if (settings().value(name).origin == "default") spec.environment[name] = kCallWithin;
  }
  Pipe out = make_pipe();
  Pipe err = make_pipe();
  spec.out = out.write.get();
  spec.err = err.write.get();
  spec.die_with_parent = true;
  const pid_t pid = start_child(spec);
  out.write.reset();
  err.write.reset();
  std::string output;
  std::string errors;
  const milliseconds within = kJobWithin + kAndForEachRank * ranks;
  if (!read_both(out.read, err.read, output, errors, Deadline::after(within))) {
    ::kill(pid, SIGKILL);  // then its guard and its agents end the ranks
    wait_for_child(pid, kFarewell);
    return {.problem =
                cat("it did not end within ", within.count() / 1000, " s\n", last_words(errors))};
  }
  const int code = wait_for_child(pid, kFarewell);
  const std::optional<JobResult> result = result_in(output);
  if (code == 0 && result) return *result;
  errors = last_words(errors);
  return {.problem = errors.empty() ? cat("it ended with code ", code) : errors};
}

}  // namespace tutti::tool

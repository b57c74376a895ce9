#include "tools/doctor/gather.h"

#include <fcntl.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <limits>

#include "base/deadline.h"
#include "base/error.h"
#include "base/settings.h"
#include "base/text.h"
#include "tools/doctor/local.h"
#include "tools/doctor/wall_clock.h"
#include "tools/launcher/child.h"
#include "tools/launcher/remote_shell.h"
#include "transport/bootstrap/handshake/handshake.h"

namespace tutti::tool {

namespace {

using std::chrono::milliseconds;

constexpr milliseconds kFarewell{1000};
constexpr size_t kMostSaid = 1000;  // characters of a remote shell's output that are shown
constexpr int kLooksAtClock = 8;
constexpr milliseconds kClockAnswersWithin{2000};
// Time limit of one batch of attempts (reach.h).
constexpr milliseconds kReachWithin{25000};

std::optional<Json> answer_in(const std::string& line) {
  try {
    Json json = Json::parse(line);
    if (json.is_object() && json.contains("answer")) return json;
  } catch (const Error&) {  // not a line of the doctor's process
  }
  return std::nullopt;
}

}  // namespace

HostLink::HostLink(const std::string& host) : host_(host) {
  Pipe to = make_pipe();
  Pipe from = make_pipe();
  ChildSpec spec;
  spec.command = host.empty() ? std::vector<std::string>{this_program(), "doctor-host"}
                              : remote_command(host, {"doctor-host"});
  spec.in = to.read.get();
  spec.out = from.write.get();
  spec.err = from.write.get();  // the remote shell writes its errors to this pipe
  spec.die_with_parent = true;
  pid_ = start_child(spec);
  to_ = std::move(to.write);
  // A large pipe, so that a host that does not read its question does not block the others.
  ::fcntl(to_.get(), F_SETPIPE_SZ, 1 << 20);
  from_ = std::move(from.read);
  lines_ = LineReader(from_.get());
}

HostLink::~HostLink() {
  to_.reset();
  from_.reset();
  if (pid_ >= 0) wait_for_child(pid_, kFarewell);
}

void HostLink::ask(const Json& question) {
  answer_.reset();
  // Ignores a failed send: the end of the host's output reports it.
  send_line(to_.get(), question);
}

std::optional<Json> HostLink::read() {
  const bool open = lines_.read([this](const std::string& line) {
    if (auto answer = answer_in(line)) {
      answer_ = std::move(answer);
    } else if (said_.size() < kMostSaid) {
      said_ += line + "\n";
    }
  });
  if (open) return answer_;
  from_.reset();
  to_.reset();
  const int code = wait_for_child(pid_, kFarewell);
  pid_ = -1;
  problem_ = cat("`", host_.empty() ? "tutti doctor-host" : settings().get_string("TUTTI_RSH"),
                 "` ended with code ", code);
  while (said_.ends_with('\n')) said_.pop_back();
  if (!said_.empty()) problem_ += cat("; its output: ", said_);
  return std::nullopt;
}

void HostLink::give_up(const std::string& why) {
  problem_ = why;
  while (said_.ends_with('\n')) said_.pop_back();
  if (!said_.empty()) problem_ += cat("; its output: ", said_);
  from_.reset();
  to_.reset();
}

Hosts::Hosts(const GatherOptions& options)
    : options_(options), nonce_(bootstrap::to_hex(bootstrap::random_nonce())) {
  const std::vector<std::string> names =
      options.hosts.empty() ? std::vector<std::string>{""} : options.hosts;
  for (size_t i = 0; i < names.size(); ++i) {
    links_.push_back(std::make_unique<HostLink>(names[i]));
    facts_.push_back({.name = names[i], .ranks = options.ranks[i]});
  }
}

void Hosts::ask_all(const std::function<std::optional<Json>(size_t host)>& question,
                    const std::function<void(size_t host, const Json& answer)>& take,
                    milliseconds patience) {
  std::vector<size_t> waiting;
  for (size_t i = 0; i < links_.size(); ++i) {
    if (!links_[i]->alive()) continue;
    if (const std::optional<Json> words = question(i)) {
      links_[i]->ask(*words);
      waiting.push_back(i);
    }
  }
  const Deadline deadline = Deadline::after(patience);
  while (!waiting.empty() && !deadline.passed()) {
    std::vector<pollfd> ready;
    for (const size_t host : waiting) ready.push_back({links_[host]->fd(), POLLIN, 0});
    if (::poll(ready.data(), ready.size(), static_cast<int>(deadline.remaining().count())) < 0) {
      continue;  // interrupted by a signal
    }
    std::vector<size_t> still;
    for (size_t i = 0; i < waiting.size(); ++i) {
      HostLink& link = *links_[waiting[i]];
      const std::optional<Json> answer = ready[i].revents == 0 ? std::nullopt : link.read();
      if (answer) {
        take(waiting[i], *answer);
      } else if (link.alive()) {
        still.push_back(waiting[i]);
      }
    }
    waiting = still;
  }
  for (const size_t host : waiting) {
    links_[host]->give_up(cat("did not answer within ", patience.count() / 1000, " s"));
  }
  for (size_t i = 0; i < links_.size(); ++i) facts_[i].problem = links_[i]->problem();
}

const std::vector<HostFacts>& Hosts::look() {
  const Json environment(settings_to_hand_on());
  ask_all(
      [&](size_t i) {
        return Json{{"do", "facts"},
                    {"name", facts_[i].name},
                    {"ranks", facts_[i].ranks},
                    {"nonce", nonce_},
                    {"environment", environment}};
      },
      [&](size_t i, const Json& answer) {
        try {
          facts_[i] = facts_from_json(answer);
        } catch (const Error& error) {
          links_[i]->give_up(cat("another version of Tutti answers there: ", error.what()));
        }
      },
      options_.patience);
  for (size_t i = 0; i < links_.size(); ++i) compare_clocks(i);
  return facts_;
}

// Measures the clock's offset as NTP does: the shortest of several round trips is the most exact
// one, and its error is at most half of its duration.
void Hosts::compare_clocks(size_t host) {
  double shortest = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kLooksAtClock; ++i) {
    int64_t before = 0;
    ask_all(
        [&](size_t other) -> std::optional<Json> {
          if (other != host) return std::nullopt;
          before = wall_clock_ns();
          return Json{{"do", "clock"}};
        },
        [&](size_t, const Json& answer) {
          const int64_t after = wall_clock_ns();
          const double trip = static_cast<double>(after - before) * 1e-9;
          if (trip >= shortest) return;
          shortest = trip;
          const auto there = answer.at("ns").get<int64_t>();
          facts_[host].clock_offset = static_cast<double>(there - before) * 1e-9 - trip / 2;
          facts_[host].clock_error = trip / 2;
        },
        kClockAnswersWithin);
  }
}

// Asks all hosts to listen. Rank 0's host comes first, because the others listen on the address
// that routes to it.
void Hosts::listen() {
  const auto take = [&](size_t i, const Json& answer) {
    facts_[i].rail_problem = answer.at("problem").get<std::string>();
    for (const Json& rail : answer.at("rails")) facts_[i].rails.push_back(rail_from_json(rail));
  };
  const auto question = [&](size_t i, const std::string& towards, uint16_t port) {
    return Json{{"do", "listen"}, {"host", facts_[i].name}, {"towards", towards}, {"port", port}};
  };
  ask_all(
      [&](size_t i) -> std::optional<Json> {
        if (i != 0) return std::nullopt;
        return question(i, "", options_.port);
      },
      take, options_.patience);
  const std::string towards = facts_[0].rails.empty() ? "" : facts_[0].rails[0].address;
  ask_all(
      [&](size_t i) -> std::optional<Json> {
        if (i == 0) return std::nullopt;
        return question(i, towards, 0);
      },
      take, options_.patience);
}

std::vector<Reach> Hosts::reach() {
  listen();
  std::vector<Reach> reaches;
  size_t most_targets = 1;
  const auto targets_of = [&](size_t from) {
    Json targets = Json::array();
    for (size_t to = 0; to < facts_.size(); ++to) {
      const size_t rails = std::min(facts_[from].rails.size(), facts_[to].rails.size());
      for (size_t rail = 0; to != from && rail < rails; ++rail) {
        // With several rails, each attempt starts at the rail's own address, like Tutti's
        // connections.
        const std::string own = rails > 1 ? facts_[from].rails[rail].address : "";
        targets.push_back({{"host", to},
                           {"rail", rail},
                           {"there", to_json(facts_[to].rails[rail])},
                           {"own", own}});
      }
    }
    most_targets = std::max(most_targets, targets.size());
    return targets;
  };
  std::vector<Json> targets;
  for (size_t i = 0; i < facts_.size(); ++i) targets.push_back(targets_of(i));
  ask_all(
      [&](size_t i) {
        return Json{{"do", "reach"}, {"from", i}, {"targets", targets[i]}};
      },
      [&](size_t, const Json& answer) {
        for (const Json& one : answer.at("reaches")) reaches.push_back(reach_from_json(one));
      },
      kReachWithin * static_cast<int>(1 + most_targets / 32));
  return reaches;
}

}  // namespace tutti::tool

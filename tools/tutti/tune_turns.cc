#include "tools/tutti/tune_turns.h"

#include <algorithm>
#include <iostream>
#include <string_view>

#include "base/error.h"
#include "base/text.h"
#include "tools/launcher/captured.h"
#include "tools/launcher/remote_shell.h"

namespace tutti::tool {
namespace {

using bench::Observation;

constexpr int kTimes = 3;
constexpr std::chrono::minutes kWithin(60);

// Returns the lines that begin with the name of a collective. Libraries and remote shells may have
// printed the others.
std::string lines_of_ranks(const std::string& output) {
  std::string lines;
  for (const std::string& line : split(output, '\n')) {
    if (parse_collective(line.substr(0, line.find(' ')))) lines += line + '\n';
  }
  return lines;
}

}  // namespace

std::vector<Turn> turns_of(const std::vector<Host>& named, bool check, int cores) {
  std::vector<Host> first;
  if (!named.empty()) first = {{.name = named[0].name}};
  std::vector<Host> both = first;
  if (named.size() > 1) {
    both = {{.name = named[0].name, .slots = 1}, {.name = named[1].name, .slots = 1}};
  }
  std::vector<Host> shared = both;
  for (Host& host : shared) host.slots = 2;
  std::vector<Turn> turns = {{.what = "shm", .hosts = first}, {.what = "tcp", .hosts = both}};
  if (!check) {
    turns.push_back({.what = kCrowd, .ranks = std::max(4, 2 * cores), .hosts = first});
  }
  if (both.size() > 1) {
    turns.push_back({.what = "shm+tcp", .ranks = 4, .hosts = shared});
    for (const std::string fabric : {"ucx", "ofi"}) {
      turns.push_back({.what = fabric, .hosts = both, .is_optional = true});
      turns.push_back(
          {.what = cat(kShared, fabric), .ranks = 4, .hosts = shared, .is_optional = true});
    }
  }
  return turns;
}

std::string output_of(const Turn& turn, bool check, std::chrono::nanoseconds within) {
  ChildSpec spec;
  spec.command = {this_program(), "run", "--no-prefix", "-n", std::to_string(turn.ranks)};
  if (!turn.hosts.empty()) {
    spec.command.insert(spec.command.end(), {"--hosts", to_text(turn.hosts)});
  }
  spec.command.insert(spec.command.end(), {"--", this_program(), "tune", "--measure", turn.what});
  const std::chrono::duration<double> seconds = std::min<std::chrono::nanoseconds>(within, kWithin);
  spec.command.push_back(cat("--within=", seconds.count()));
  if (check) spec.command.emplace_back("--check");
  const Captured job = run_captured(spec, kWithin);
  if (!job.in_time || job.code != 0) {
    throw Error(
        ErrorCode::unsupported,
        cat("measuring ", turn.what, " with ", turn.ranks, " ranks ",
            job.in_time ? cat("exited with code ", job.code) : "took too long"),
        {.cause = cat("output of the ranks:\n", last_words(job.err.empty() ? job.out : job.err))});
  }
  return job.out;
}

namespace {

std::vector<Observation> measured(const Turn& turn, bool check, std::chrono::nanoseconds within) {
  std::vector<Observation> observations =
      bench::read(lines_of_ranks(output_of(turn, check, within)));
  for (Observation& o : observations)
    o.hosts = std::max<int>(1, static_cast<int>(turn.hosts.size()));
  return observations;
}

}  // namespace

void TuneTurns::run() {
  for (int time = 1; time <= kTimes; ++time) {
    for (size_t i = 0; i < turns_.size(); ++i) {
      if (StopSignals::requested() != 0) return;
      if (time == 1 || !found_[i].observations.empty()) run(i, time);
    }
  }
}

void TuneTurns::run(size_t i, int time) {
  const Turn& turn = turns_[i];
  Found& found = found_[i];
  std::chrono::nanoseconds share = std::chrono::nanoseconds::max();
  std::string until;
  if (within_ != std::chrono::nanoseconds::max()) {
    // Time that earlier turns did not use is divided among later ones. In the first round no turn
    // is skipped.
    const auto rest = static_cast<int64_t>(turns_.size() - i);
    share = std::max<std::chrono::nanoseconds>(left() / rest, std::chrono::seconds(1));
    if (time > 1 && left() < found.took) return;
    until = cat(", at most ", std::max<int64_t>(1, left() / std::chrono::seconds(1)), " s left");
  }
  std::cerr << cat("measuring ", turn.what, " on ", turn.ranks, " ranks (", time, " of ", kTimes,
                   until, ")\n");
  const Clock::time_point start = Clock::now();
  try {
    const std::vector<Observation> now = measured(turn, check_, share);
    if (!found.observations.empty() && now.size() != found.observations.size()) {
      throw Error(ErrorCode::unsupported, "the measurement was interrupted");
    }
    bench::keep_least(found.observations, now);
  } catch (const Error& error) {
    if (StopSignals::requested() != 0) return;
    if (!turn.is_optional) throw;
    if (time == 1) std::cerr << turn.what << " is skipped: " << error.what() << '\n';
  }
  found.took = Clock::now() - start;
}

std::vector<Observation> TuneTurns::observations(size_t turn) const {
  std::vector<Observation> all = found_[turn].observations;
  std::erase_if(all, [](const Observation& o) { return o.seconds == 0; });
  return all;
}

std::vector<Observation> TuneTurns::observations() const {
  std::vector<Observation> all;
  for (size_t i = 0; i < turns_.size(); ++i) {
    const std::vector<Observation> more = observations(i);
    all.insert(all.end(), more.begin(), more.end());
  }
  return all;
}

}  // namespace tutti::tool

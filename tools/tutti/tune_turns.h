// The jobs that `tutti tune` starts to time calls, and in which order.
#pragma once

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "base/deadline.h"
#include "bench/tune.h"
#include "tools/launcher/hosts.h"
#include "tools/tutti/stop_signals.h"

namespace tutti::tool {

// What a turn asks its ranks for, besides a class of paths.
inline constexpr const char* kCrowd = "crowd";       // more ranks than cores, over shared memory
inline constexpr std::string_view kShared = "shm+";  // several ranks a host, which share its card
inline constexpr const char* kGpus = "gpus";
inline constexpr const char* kHost = "host";  // what it is, and where it looks for its numbers

// A job that times calls.
struct Turn {
  std::string what;  // a class of paths, or a crowd
  int ranks = 2;
  std::vector<Host> hosts;   // empty: this one
  bool is_optional = false;  // it may be that it cannot be had
};

// The first host tells what a host is like, with the second what lies between hosts.
std::vector<Turn> turns_of(const std::vector<Host>& named, bool check, int cores);

// What the ranks of a turn say. Throws Error(unsupported) where they fail.
std::string output_of(const Turn& turn, bool check,
                      std::chrono::nanoseconds within = std::chrono::hours(1));

// Each turn several times, since others may keep the machine busy meanwhile.
class TuneTurns {
 public:
  // `within`: all of it, or forever: then each turn is done three times.
  TuneTurns(std::vector<Turn> turns, bool check, std::chrono::nanoseconds within)
      : turns_(std::move(turns)), check_(check), within_(within), found_(turns_.size()) {}

  // Until all is done, the time is over, or somebody interrupts it: what was measured is kept.
  // Throws Error where a turn that must be had cannot be.
  void run();

  // Of a turn; empty where it cannot be had here.
  std::vector<bench::Observation> observations(size_t turn) const;
  std::vector<bench::Observation> observations() const;

 private:
  struct Found {
    std::vector<bench::Observation> observations;
    std::chrono::nanoseconds took{0};  // the last time
  };

  void run(size_t i, int time);
  std::chrono::nanoseconds left() const { return begin_ + within_ - Clock::now(); }

  const std::vector<Turn> turns_;
  const bool check_;
  const std::chrono::nanoseconds within_;
  std::vector<Found> found_;  // by turn
  const Clock::time_point begin_ = Clock::now();
  const StopSignals signals_;
};

}  // namespace tutti::tool

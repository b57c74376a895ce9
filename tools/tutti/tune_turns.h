// Starts the jobs of `tutti tune` that time calls, and determines their order.
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

// Names of measurements that are not path classes.
inline constexpr const char* kCrowd = "crowd";       // more ranks than cores, over shared memory
inline constexpr std::string_view kShared = "shm+";  // several ranks per host, which share its card
inline constexpr const char* kGpus = "gpus";
inline constexpr const char* kHost = "host";  // description of the host and its costs file

// A job that times calls.
struct Turn {
  std::string what;  // a path class, or one of the names above
  int ranks = 2;
  std::vector<Host> hosts;   // empty: this host
  bool is_optional = false;  // true if it may be unavailable
};

// Returns the turns. The first host is measured alone, and the first two hosts together for the
// paths between hosts. `check`: also time all algorithms.
std::vector<Turn> turns_of(const std::vector<Host>& named, bool check, int cores);

// Runs a turn and returns its ranks' output. Throws Error(unsupported) if they fail.
std::string output_of(const Turn& turn, bool check,
                      std::chrono::nanoseconds within = std::chrono::hours(1));

// Runs each turn several times, because other load may disturb single measurements.
class TuneTurns {
 public:
  // Prepares the turns. `within`: total time limit. Each turn runs three times, except repetitions
  // for which too little time is left.
  TuneTurns(std::vector<Turn> turns, bool check, std::chrono::nanoseconds within)
      : turns_(std::move(turns)), check_(check), within_(within), found_(turns_.size()) {}

  // Runs until all turns are done, the time has passed, or the user interrupts; measurements so far
  // are kept. Throws Error if a required turn is unavailable.
  void run();

  // Returns the observations of a turn; empty if it is unavailable on these hosts.
  std::vector<bench::Observation> observations(size_t turn) const;
  std::vector<bench::Observation> observations() const;

 private:
  struct Found {
    std::vector<bench::Observation> observations;
    std::chrono::nanoseconds took{0};  // duration of the last run
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

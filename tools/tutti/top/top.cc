// tutti top: shows the ranks and stragglers of a running job.
#include <sys/ioctl.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cmath>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/deadline.h"
#include "base/error.h"
#include "base/text.h"
#include "tools/tutti/commands.h"
#include "tools/tutti/stop_signals.h"
#include "tools/tutti/top/jobs.h"
#include "tools/tutti/top/report.h"
#include "tools/tutti/top/view.h"
#include "transport/bootstrap/membership/watch.h"

namespace tutti::tool {

namespace {

using bootstrap::JobWatch;
using bootstrap::RankState;
using bootstrap::RankStatus;

// Some addresses may belong to stopped ranks, so all are tried with a short timeout first.
constexpr std::array<std::chrono::seconds, 2> kTimesToConnect = {std::chrono::seconds(1),
                                                                 std::chrono::seconds(5)};

struct TopOptions {
  std::string job;
  std::string report;
  bool json = false;
  bool once = false;
  double every = 1;
};

// Queries one rank of the job, or another one if that rank has ended.
class WatchedJob {
 public:
  explicit WatchedJob(const JobPlace& place) : key_(place.key) {
    std::optional<Error> problem;
    for (const std::chrono::seconds time : kTimesToConnect) {
      for (const bootstrap::SocketAddress& address : place.addresses) {
        try {
          watch_.emplace(address, key_, Deadline::after(time));
          return;
        } catch (const Error& error) {
          problem = error;
        }
      }
    }
    if (problem) throw *problem;
  }

  // Returns the state of the ranks; nothing if the job has ended.
  std::optional<std::vector<RankStatus>> look() {
    for (;;) {
      try {
        std::vector<RankStatus> sights = watch_->look();
        known_ = sights;
        return sights;
      } catch (const Error&) {
        if (!watch_from_another()) return std::nullopt;
      }
    }
  }

 private:
  bool watch_from_another() {
    for (RankStatus& rank : known_) {
      if (rank.state != RankState::answers) continue;
      rank.state = RankState::silent;  // a silent rank is asked only once
      try {
        watch_.emplace(bootstrap::resolve(rank.address, rank.port).front(), key_,
                       Deadline::after(kTimesToConnect.back()));
        return true;
      } catch (const Error&) {  // the loop tries the next address
      }
    }
    return false;
  }

  const std::string key_;
  std::optional<JobWatch> watch_;
  std::vector<RankStatus> known_;
};

size_t rows_of_terminal() {
  constexpr size_t kOtherLines = 5;
  winsize window{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) != 0 || window.ws_row <= kOtherLines) return 20;
  return window.ws_row - kOtherLines;
}

void show(const JobView& view, bool json) {
  if (json) {
    std::cout << to_json(view).dump(-1, Json::BadText::replace) << '\n' << std::flush;
  } else if (::isatty(STDOUT_FILENO) != 0) {
    std::cout << "\033[H\033[J" << to_text(view, rows_of_terminal()) << std::flush;
  } else {
    std::cout << to_text(view, view.ranks.size()) << '\n' << std::flush;
  }
}

// Waits for `seconds`. Returns false on a request to stop.
bool pause(double seconds) {
  constexpr std::chrono::milliseconds kLook{50};
  const Deadline deadline = Deadline::after(duration_of(seconds));
  while (!deadline.passed() && StopSignals::requested() == 0) {
    std::this_thread::sleep_for(deadline.remaining(kLook));
  }
  return StopSignals::requested() == 0;
}

int watch(const TopOptions& options) {
  WatchedJob job(find_running_job(options.job));
  const StopSignals signals;
  std::optional<std::vector<RankStatus>> before = job.look();
  Clock::time_point last = Clock::now();
  while (before && pause(options.every)) {
    std::optional<std::vector<RankStatus>> now = job.look();
    if (!now) break;
    const Clock::time_point moment = Clock::now();
    show(compare(*before, *now, std::chrono::duration<double>(moment - last).count()),
         options.json);
    if (options.once) return 0;
    before = std::move(now);
    last = moment;
  }
  if (StopSignals::requested() != 0) return 0;
  std::cerr << "tutti: the job has ended\n";
  return options.once ? 1 : 0;
}

}  // namespace

void add_top(CommandLine& line) {
  const auto options = std::make_shared<TopOptions>();
  Command command =
      line.add("top", "show the activity of a running job's ranks and its stragglers");
  command
      .add_option("--job", options->job,
                  "job, given as HOST:PORT of one of its ranks or as the pid of a rank on this "
                  "host (default: the only running job)")
      .type_name("JOB");
  command.add_flag("--json", options->json, "print one JSON object per line instead of a table");
  command.add_flag("--once", options->once, "exit after the first table");
  command.add_option("--every", options->every, "time between tables, in seconds")
      .between(0.05, 86400)
      .show_default();
  command
      .add_option("--report", options->report,
                  "analyze the reports that an aborted job wrote to this directory (TUTTI_REPORT) "
                  "instead of a running job")
      .type_name("DIR");
  command.footer(
      "Examples:\n"
      "  tutti top\n"
      "  TUTTI_TOKEN_FILE=secret tutti top --job node1:29500 --json --once\n"
      "  tutti top --report reports");
  command.runs([options] {
    return options->report.empty() ? watch(*options) : show_report(options->report, options->json);
  });
}

}  // namespace tutti::tool

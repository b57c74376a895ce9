// tutti tune: measures what messages and bytes cost on this machine, for the choice of algorithms.
#include "bench/tune.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/settings.h"
#include "base/text.h"
#include "collectives/communicator.h"
#include "collectives/cost/cost_model.h"
#include "tools/launcher/launcher.h"
#include "tools/tutti/commands.h"

namespace tutti::tool {

namespace {

using bench::Observation;

struct Options {
  bool check = false;
  std::string json;
  std::string measure;  // what the ranks that this command starts shall time
  std::string output;
};

// What is to become a file: nobody reads half of it, and that it can be written is known early.
class Draft {
 public:
  explicit Draft(std::string file) : file_(std::move(file)), draft_(cat(file_, '.', ::getpid())) {
    const std::filesystem::path parent = std::filesystem::path(file_).parent_path();
    std::error_code failed;  // then write_file() says so
    if (!parent.empty()) std::filesystem::create_directories(parent, failed);
    write_file(draft_, "");
  }
  Draft(const Draft&) = delete;
  Draft& operator=(const Draft&) = delete;
  ~Draft() {
    std::error_code gone;
    std::filesystem::remove(draft_, gone);
  }
  void finish(const std::string& text) {
    write_file(draft_, text);
    std::filesystem::rename(draft_, file_);
  }

 private:
  std::string file_;
  std::string draft_;
};

// On one of the ranks.
int measure(const Options& options) {
  settings().set("TUTTI_TRANSPORT",
                 options.measure.find("tcp") != std::string::npos ? "tcp" : "shm");
  Communicator comm = Communicator::init();
  const bool shm = comm.transport() == "shm";
  std::vector<Observation> observations = options.check ? bench::all_observations(comm.size(), shm)
                                          : options.measure == "crowd"
                                              ? bench::crowd_observations(comm.size())
                                              : bench::pair_observations(shm);
  bench::measure(comm, observations);
  if (comm.rank() == 0) write_file(options.output, bench::write(observations));
  return 0;
}

// Starts ranks that measure, and returns what they found.
std::vector<Observation> measured(const std::string& what, int ranks) {
  const std::string path =
      (std::filesystem::temp_directory_path() / cat("tutti-tune-", ::getpid())).string();
  const int code = launch_self(ranks, {"--measure", what, "--output", path});
  if (code != 0) {
    throw Error(ErrorCode::unsupported, cat("measuring ", what, " with ", ranks, " ranks failed"),
                {.cause = "see what the ranks say above"});
  }
  const std::vector<Observation> observations = bench::read(read_file(path));
  std::filesystem::remove(path);
  return observations;
}

// The least of a few turns: a machine that is shared with others is slow at times, never too fast.
std::vector<Observation> measured_calmly(const std::string& what, int ranks) {
  constexpr int kTurns = 3;
  std::vector<Observation> least;
  for (int turn = 0; turn < kTurns; ++turn) {
    std::fprintf(stderr, "measuring: %s, %d ranks, turn %d of %d\n", what.c_str(), ranks, turn + 1,
                 kTurns);
    const std::vector<Observation> now = measured(what, ranks);
    if (least.empty()) least = now;
    for (size_t i = 0; i < now.size(); ++i) {
      least[i].seconds = std::min(least[i].seconds, now[i].seconds);
    }
  }
  return least;
}

struct Errors {
  double median = 0;
  double ninetieth = 0;
};

Errors errors_of(const std::vector<Observation>& observations, const CostModel& model,
                 bool printed) {
  std::vector<double> errors;
  for (const Observation& o : observations) {
    const double predicted = bench::predict(o, model);
    errors.push_back(std::abs(predicted / o.seconds - 1));
    if (!printed) continue;
    std::printf("%-15s %-24s %-4s %10lu %12.2f %12.2f %7.0f%%\n",
                std::string(name(o.collective)).c_str(), o.algorithm.c_str(), o.shm ? "shm" : "tcp",
                static_cast<unsigned long>(o.bytes), o.seconds * 1e6, predicted * 1e6,
                100 * (predicted / o.seconds - 1));
  }
  std::ranges::sort(errors);
  const auto at = [&](double part) {
    return errors[static_cast<size_t>(part * static_cast<double>(errors.size() - 1))];
  };
  return {.median = at(0.5), .ninetieth = at(0.9)};
}

int check() {
  const CostModel model = load_cost_model();
  std::printf("%-15s %-24s %-4s %10s %12s %12s %8s\n", "collective", "algorithm", "", "bytes",
              "measured us", "predicted us", "error");
  std::string summary;
  for (const char* transport : {"shm", "tcp"}) {
    const Errors errors = errors_of(measured_calmly(transport, 2), model, true);
    summary += cat("# ", transport, ", 2 ranks: median error ", std::lround(100 * errors.median),
                   "%, 90th percentile ", std::lround(100 * errors.ninetieth), "%\n");
  }
  std::fputs(summary.c_str(), stdout);
  return 0;
}

int tune(const Options& options) {
  const std::string path = options.json.empty() ? cost_model_file() : options.json;
  if (path.empty()) {
    throw Error(ErrorCode::invalid_argument, "there is no place to keep what is measured",
                {.cause = "neither XDG_CACHE_HOME nor HOME is set, or TUTTI_TUNE_FILE is none",
                 .remedy = "name a file with --json, and set TUTTI_TUNE_FILE to it"});
  }
  Draft file(path);
  CostModel model = CostModel::defaults();
  std::vector<Observation> all;
  for (const auto& [what, ranks] : {std::pair<const char*, int>{"shm", 2},
                                    {"tcp", 2},
                                    {"crowd", std::max(4, 2 * model.cores)}}) {
    const std::vector<Observation> more = measured_calmly(what, ranks);
    all.insert(all.end(), more.begin(), more.end());
  }
  model = bench::fit(model, all);
  file.finish(to_json(model) + "\n");
  const Errors errors = errors_of(all, model, false);
  std::printf("%zu calls measured; the numbers that fit them (median error %ld%%) are in %s\n",
              all.size(), std::lround(100 * errors.median), path.c_str());
  return 0;
}

int run(const Options& options) {
  if (!options.measure.empty()) return measure(options);
  return options.check ? check() : tune(options);
}

}  // namespace

void add_tune(CommandLine& line) {
  const auto o = std::make_shared<Options>();
  Command command =
      line.add("tune", "measure this machine, so that the choice of algorithms fits it");
  command.add_option("--json", o->json, "keep the numbers here, not in the user's cache folder");
  command.add_flag("--check", o->check, "compare predicted with measured times instead");
  command.add_option("--measure", o->measure).group("");
  command.add_option("--output", o->output).group("");
  command.footer(
      "Rank 0 of a job reads the numbers and tells them to all. Without them defaults are used.\n"
      "Example:\n"
      "  tutti tune && tutti explain all_reduce -n 2 --bytes 1M");
  command.runs([o] { return run(*o); });
}

}  // namespace tutti::tool

// tutti tune: measures the costs of messages and bytes on this machine, for the choice of
// algorithms.
#include "bench/tune.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "base/cuda/device.h"
#include "base/deadline.h"
#include "base/error.h"
#include "base/median.h"
#include "base/settings.h"
#include "base/text.h"
#include "bench/gpu_tune.h"
#include "collectives/communicator.h"
#include "collectives/cost/cost_model.h"
#include "collectives/cost/gpu_costs.h"
#include "tools/launcher/captured.h"
#include "tools/tutti/clusters.h"
#include "tools/tutti/commands.h"
#include "tools/tutti/exclude.h"
#include "tools/tutti/host_options.h"
#include "tools/tutti/named.h"
#include "tools/tutti/tune_turns.h"
#include "transport/path_class.h"

namespace tutti::tool {

namespace {

using bench::Observation;

struct TuneOptions {
  bool check = false;
  std::string json;
  HostOptions places;
  std::string device = "host";
  std::string measure;  // hidden option: calls that a rank of this command times
  double within = 0;    // hidden option: time limit in seconds
  bool thorough = false;
  FitOptions fit;
};

// A temporary file that atomically replaces its target.
class Draft {
 public:
  explicit Draft(std::string file) : file_(std::move(file)), draft_(cat(file_, '.', ::getpid())) {
    const std::filesystem::path parent = std::filesystem::path(file_).parent_path();
    std::error_code failed;  // write_file() reports the failure
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

constexpr std::chrono::seconds kUsual(25);  // usual time limit; the fit takes a few more seconds

// Runs on each rank: times calls between GPUs.
int measure_gpus() {
  Communicator comm = Communicator::init();
  std::vector<bench::GpuObservation> observations = bench::gpu_observations(comm.size());
  bench::measure(comm, observations);
  if (comm.rank() == 0) std::cout << bench::write(observations);
  return 0;
}

// Runs on each rank: times calls between processors.
int measure(const TuneOptions& options) {
  if (options.measure == kHost) {
    std::cout << cat(kHost, ' ', CostModel::defaults().cores, ' ', cost_model_file(), '\n');
    return 0;
  }
  if (options.measure == kGpus) return measure_gpus();
  const bool shared = options.measure.starts_with(kShared);
  const std::string by = options.measure.substr(shared ? kShared.size() : 0);
  const PathClass path = parse_path_class(by).value_or(PathClass::shm);
  settings().set("TUTTI_TRANSPORT", cat(shared ? "shm+" : "", name(path)));
  Communicator comm = Communicator::init();
  std::vector<Observation> observations = options.check ? bench::all_observations(comm.size(), path)
                                          : options.measure == kCrowd
                                              ? bench::crowd_observations(comm.size())
                                          : shared ? bench::shared_observations(path)
                                                   : bench::pair_observations(path);
  bench::measure(comm, observations, duration_of(options.within));
  if (comm.rank() == 0) std::cout << bench::write(observations);
  return 0;
}

// A host that measures: its number of cores, and the file in which its ranks look for costs.
struct MeasuredHost {
  int cores = CostModel::defaults().cores;
  std::string file = cost_model_file();
};

MeasuredHost place_of(const std::vector<Host>& named) {
  if (named.empty()) return {};
  const Turn turn{.what = kHost, .ranks = 1, .hosts = {{.name = named[0].name}}};
  const std::string output = output_of(turn, false);
  for (const std::string& line : split(output, '\n')) {
    std::istringstream words(line);
    std::string word;
    MeasuredHost place;
    if (words >> word >> place.cores && word == kHost) {
      place.file.clear();  // stays empty if the host has no place for the file
      std::getline(words >> std::ws, place.file);
      return place;
    }
  }
  throw Error(ErrorCode::unsupported, cat(named[0].name, " did not report its description"),
              {.cause = cat("its output: ", last_words(output)),
               .remedy = cat("try `tutti doctor --hosts ", named[0].name, "`")});
}

struct Errors {
  double median = 0;
  double ninetieth = 0;
  double in_interval = 0;  // fraction of the calls whose time is in the predicted interval
};

Errors errors_of(const std::vector<Observation>& observations, const CostModel& model,
                 bool printed) {
  std::vector<double> errors;
  size_t inside = 0;
  for (const Observation& o : observations) {
    const double predicted = bench::predict(o, model);
    errors.push_back(std::abs(predicted / o.seconds - 1));
    const Interval interval = model.errors.around(predicted, static_cast<double>(o.bytes));
    if (interval.low <= o.seconds && o.seconds <= interval.high) ++inside;
    if (!printed) continue;
    std::printf("%-15s %-24s %-4s %10lu %12.2f %12.2f %7.0f%%\n",
                std::string(name(o.collective)).c_str(), o.algorithm.c_str(),
                std::string(name(o.path)).c_str(), static_cast<unsigned long>(o.bytes),
                o.seconds * 1e6, predicted * 1e6, 100 * (predicted / o.seconds - 1));
  }
  return {.median = percentile(errors, 0.5),
          .ninetieth = percentile(errors, 0.9),
          .in_interval = static_cast<double>(inside) / static_cast<double>(errors.size())};
}

int check(const TuneOptions& options) {
  const CostModel model = load_cost_model();
  const std::vector<Turn> turns = turns_of(find_hosts(options.places), true, model.cores);
  std::printf("%-15s %-24s %-4s %10s %12s %12s %8s\n", "collective", "algorithm", "", "bytes",
              "measured us", "predicted us", "error");
  std::string summary;
  TuneTurns jobs(turns, true, std::chrono::nanoseconds::max());
  jobs.run();
  for (size_t i = 0; i < turns.size(); ++i) {
    const Turn& turn = turns[i];
    const std::vector<Observation> observations = jobs.observations(i);
    if (observations.empty()) continue;
    const Errors errors = errors_of(observations, model, true);
    summary += cat("# ", turn.what, ", ", turn.ranks, " ranks: median error ",
                   std::lround(100 * errors.median), "%, 90th percentile ",
                   std::lround(100 * errors.ninetieth), "%, ",
                   std::lround(100 * errors.in_interval), "% in their intervals\n");
  }
  std::fputs(summary.c_str(), stdout);
  return 0;
}

int tune(const TuneOptions& options) {
  const std::vector<Host> named = find_hosts(options.places);
  const MeasuredHost place = place_of(named);
  const std::string path = options.json.empty() ? place.file : options.json;
  if (path.empty()) {
    throw Error(ErrorCode::invalid_argument, "there is no file for the measured costs",
                {.cause = "neither XDG_CACHE_HOME nor HOME is set, or TUTTI_TUNE_FILE is none",
                 .remedy = "use --json FILE, and set TUTTI_TUNE_FILE to that file"});
  }
  CostModel model = CostModel::defaults();
  model.cores = place.cores;
  model.gpus = load_cost_model().gpus;  // costs of GPUs, which are measured separately
  static_cast<void>(Draft(path));       // fails early if the file cannot be written
  TuneTurns jobs(turns_of(named, false, model.cores), false,
                 options.thorough ? std::chrono::nanoseconds::max() : kUsual);
  jobs.run();
  const std::vector<Observation> all = jobs.observations();
  const int stopped_by = StopSignals::requested();
  if (all.empty())
    throw Error(ErrorCode::unsupported, "nothing was measured, so nothing is stored",
                {.remedy = "run `tutti tune` again without an interrupt"});
  if (stopped_by != 0) std::cerr << "interrupted: the measurements so far are kept\n";
  model = bench::fit(model, all);
  model.errors = bench::errors_left(all, model);
  Draft(path).finish(to_json(model) + "\n");
  const Errors errors = errors_of(all, model, false);
  std::printf("%zu calls measured; the fitted costs (median error %ld%%) are in %s\n", all.size(),
              std::lround(100 * errors.median), path.c_str());
  if (const auto quicker = fabrics_quicker_than_tcp(model)) {
    const PathClass best = quicker->empty() ? PathClass::tcp : quicker->front();
    std::printf("between hosts TUTTI_TRANSPORT=auto uses %s\n", std::string(name(best)).c_str());
  }
  return stopped_by == 0 ? 0 : 128 + stopped_by;
}

// Measures the costs of this host's GPU class; other costs do not change.
int tune_gpus(const TuneOptions& options) {
  constexpr int kMostGpus = 8;
  const std::string path = options.json.empty() ? cost_model_file() : options.json;
  if (path.empty()) {
    throw Error(ErrorCode::invalid_argument, "there is no file for the measured costs",
                {.remedy = "use --json FILE, and set TUTTI_TUNE_FILE to that file"});
  }
  const int gpus = std::min(cuda::device_count(), kMostGpus);
  if (gpus < 2) {
    throw Error(ErrorCode::unsupported,
                cat("there are ", gpus, " GPUs, but measuring requires at least two"),
                {.cause = "this host has no more GPUs, or CUDA_VISIBLE_DEVICES hides them",
                 .remedy = "check nvidia-smi and CUDA_VISIBLE_DEVICES"});
  }
  const std::string gpu(gpu_class_for(cuda::device_info(0).name));
  CostModel model = load_cost_model();
  static_cast<void>(Draft(path));  // fails early if the file cannot be written
  std::cerr << cat("measuring: ", gpus, " GPUs of class ", gpu, '\n');
  std::vector<bench::GpuObservation> observations =
      bench::read_gpu_observations(output_of({.what = kGpus, .ranks = gpus}, false));
  std::erase_if(observations, [](const bench::GpuObservation& o) { return o.seconds == 0; });
  if (observations.empty())
    throw Error(ErrorCode::unsupported, "the ranks reported no measurements");
  model.gpus.erase(gpu);  // start from the published numbers
  const GpuCosts costs = bench::fit(gpu_costs(model, gpu), observations);
  model.gpus[gpu] = costs;
  Draft(path).finish(to_json(model) + "\n");
  std::vector<double> errors;
  for (const bench::GpuObservation& o : observations) {
    errors.push_back(std::abs(bench::predict(o, costs) / o.seconds - 1));
  }
  std::ranges::sort(errors);
  std::printf("%zu calls measured; the fitted costs of class %s (median error %ld%%) are in %s\n",
              observations.size(), gpu.c_str(), std::lround(100 * errors[errors.size() / 2]),
              path.c_str());
  return 0;
}

int run(const Command& command, TuneOptions& options) {
  for (const char* option : {"--cluster", "--collective"}) {
    if (options.fit.table.empty() && command.count(option) > 0) {
      throw UsageError(cat(option, " requires --fit"));
    }
  }
  if (!options.fit.table.empty()) {
    options.fit.json = options.json;
    return fit_cluster(options.fit);
  }
  if (!options.measure.empty()) return measure(options);
  if (options.check) exclude(command, "--check", {"--json", "--thorough"});
  if (options.device == "cuda") {
    exclude(command, "--device cuda", {"--check", "--hosts", "--hostfile", "--thorough"});
    return tune_gpus(options);
  }
  return options.check ? check(options) : tune(options);
}

}  // namespace

void add_tune(CommandLine& line) {
  const auto o = std::make_shared<TuneOptions>();
  Command command = line.add("tune", "measure this machine to calibrate the choice of algorithms");
  command
      .add_option("--json", o->json,
                  "file for the measured costs (default: a file in the user's cache folder)")
      .type_name("FILE");
  command
      .add_option("--fit", o->fit.table,
                  "fit a cluster's parameters to this table (nccl-tests output or CSV) instead of "
                  "measuring, and write the parameters to the --json file or next to the table")
      .type_name("TABLE");
  command
      .add_option("--cluster", o->fit.cluster,
                  "with --fit: cluster from whose parameters the fit starts, as in `tutti simulate "
                  "--cluster`; numbers of hosts and GPUs that the table lacks are taken from this "
                  "cluster")
      .type_name("CLUSTER");
  command
      .add_option("--collective", o->fit.collective,
                  "with --fit: the collective that was measured, if the table does not name it")
      .suggest(collective_names());
  add_host_options(command, o->places);
  command.add_flag("--check", o->check,
                   "compare predicted with measured times instead of calibrating");
  command
      .add_option("--device", o->device,
                  "what to measure: host (this machine's processors and networks) or cuda (up to 8 "
                  "GPUs of this host)")
      .one_of({"host", "cuda"})
      .show_default();
  command.add_flag("--thorough", o->thorough,
                   "measure everything three times, which takes minutes (default: as many "
                   "measurements as fit into 30 s)");
  command.add_option("--measure", o->measure).group("");
  command.add_option("--within", o->within, "").group("");
  command.footer(
      "Tuning takes half a minute; Ctrl-C ends it and keeps the measurements so far.\n"
      "Rank 0 of a job reads the costs and sends them to all ranks. Without measured costs, "
      "default\n"
      "costs are used.\n"
      "With two hosts, TCP, UCX and libfabric are measured between them if available, and\n"
      "TUTTI_TRANSPORT=auto then uses the fastest; all hosts of a job need the same file "
      "(TUTTI_TUNE_FILE).\n"
      "Examples:\n"
      "  tutti tune && tutti explain all_reduce -n 2 --bytes 1M\n"
      "  tutti tune --hosts node1,node2\n"
      "  tutti tune --device cuda && tutti explain all_reduce -n 8 --gpu h100\n"
      "  tutti tune --fit all_reduce.log --cluster p5 --json ours.json\n"
      "  tutti simulate all_reduce --cluster ours.json -n 256 --bytes 1M,1G");
  command.runs([command, o] { return run(command, *o); });
}

}  // namespace tutti::tool

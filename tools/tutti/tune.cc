// tutti tune: measures what messages and bytes cost on this machine, for the choice of algorithms.
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

#include "base/error.h"
#include "base/settings.h"
#include "base/text.h"
#include "bench/gpu_tune.h"
#include "collectives/communicator.h"
#include "collectives/cost/cost_model.h"
#include "collectives/cost/gpu_costs.h"
#include "tools/launcher/captured.h"
#include "tools/launcher/remote_shell.h"
#include "tools/tutti/commands.h"
#include "tools/tutti/host_options.h"
#include "transport/cuda/device.h"
#include "transport/path_class.h"

namespace tutti::tool {

namespace {

using bench::Observation;

struct Options {
  bool check = false;
  std::string json;
  HostOptions places;
  std::string device = "host";
  std::string measure;  // what the ranks that this command starts shall time
};

// What is to become a file: nobody reads half of it.
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

constexpr const char* kCrowd = "crowd";       // more ranks than cores, over shared memory
constexpr std::string_view kShared = "shm+";  // several ranks a host, which share its card
constexpr const char* kGpus = "gpus";
constexpr const char* kHost = "host";  // what it is, and where it looks for its numbers
constexpr std::chrono::minutes kWithin(60);

// On one of the ranks.
int measure_gpus() {
  Communicator comm = Communicator::init();
  std::vector<bench::GpuObservation> observations = bench::gpu_observations(comm.size());
  bench::measure(comm, observations);
  if (comm.rank() == 0) std::cout << bench::write(observations);
  return 0;
}

// Likewise.
int measure(const Options& options) {
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
  bench::measure(comm, observations);
  if (comm.rank() == 0) std::cout << bench::write(observations);
  return 0;
}

// A job that times calls.
struct Turn {
  std::string what;  // a class of paths, or a crowd
  int ranks = 2;
  std::vector<Host> hosts;   // empty: this one
  bool is_optional = false;  // it may be that it cannot be had
};

// The first host tells what a host is like, with the second what lies between hosts.
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

// Without what a library or a remote shell has to say.
std::string lines_of_ranks(const std::string& output) {
  std::string lines;
  for (const std::string& line : split(output, '\n')) {
    if (parse_collective(line.substr(0, line.find(' ')))) lines += line + '\n';
  }
  return lines;
}

// What the ranks of a turn say.
std::string output_of(const Turn& turn, bool check) {
  ChildSpec spec;
  spec.command = {this_program(), "run", "--no-prefix", "-n", std::to_string(turn.ranks)};
  if (!turn.hosts.empty()) {
    spec.command.insert(spec.command.end(), {"--hosts", to_text(turn.hosts)});
  }
  spec.command.insert(spec.command.end(), {"--", this_program(), "tune", "--measure", turn.what});
  if (check) spec.command.emplace_back("--check");
  const Captured job = run_captured(spec, kWithin);
  if (!job.in_time || job.code != 0) {
    throw Error(
        ErrorCode::unsupported,
        cat("measuring ", turn.what, " with ", turn.ranks, " ranks ",
            job.in_time ? cat("ended with code ", job.code) : "took too long"),
        {.cause = cat("the ranks said:\n", last_words(job.err.empty() ? job.out : job.err))});
  }
  return job.out;
}

std::vector<Observation> measured(const Turn& turn, bool check) {
  std::vector<Observation> observations = bench::read(lines_of_ranks(output_of(turn, check)));
  for (Observation& o : observations)
    o.hosts = std::max<int>(1, static_cast<int>(turn.hosts.size()));
  return observations;
}

// A host that measures: how many cores it has, and where its ranks look for the numbers.
struct Place {
  int cores = CostModel::defaults().cores;
  std::string file = cost_model_file();
};

Place place_of(const std::vector<Host>& named) {
  if (named.empty()) return {};
  const Turn turn{.what = kHost, .ranks = 1, .hosts = {{.name = named[0].name}}};
  const std::string output = output_of(turn, false);
  for (const std::string& line : split(output, '\n')) {
    std::istringstream words(line);
    std::string word;
    Place place;
    if (words >> word >> place.cores && word == kHost) {
      place.file.clear();  // and stays so where the host has no place for it
      std::getline(words >> std::ws, place.file);
      return place;
    }
  }
  throw Error(ErrorCode::unsupported, cat(named[0].name, " did not say what it is"),
              {.cause = cat("it said: ", last_words(output))});
}

// The least of a few times: a machine that is shared with others is slow at times, never too fast.
// Nothing where it cannot be had at all.
std::vector<Observation> measured_calmly(const Turn& turn, bool check) {
  constexpr int kTimes = 3;
  std::vector<Observation> least;
  for (int time = 0; time < kTimes; ++time) {
    std::cerr << cat("measuring: ", turn.what, ", ", turn.ranks, " ranks, ", time + 1, " of ",
                     kTimes, " times\n");
    try {
      const std::vector<Observation> now = measured(turn, check);
      if (least.empty()) least = now;
      if (now.size() != least.size()) throw Error(ErrorCode::unsupported, "it was cut short");
      for (size_t i = 0; i < now.size(); ++i) {
        least[i].seconds = std::min(least[i].seconds, now[i].seconds);
      }
    } catch (const Error& error) {
      if (!turn.is_optional) throw;
      if (least.empty()) std::cerr << turn.what << " is left out: " << error.what() << '\n';
      break;
    }
  }
  std::erase_if(least, [](const Observation& o) { return o.seconds == 0; });
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
                std::string(name(o.collective)).c_str(), o.algorithm.c_str(),
                std::string(name(o.path)).c_str(), static_cast<unsigned long>(o.bytes),
                o.seconds * 1e6, predicted * 1e6, 100 * (predicted / o.seconds - 1));
  }
  std::ranges::sort(errors);
  const auto at = [&](double part) {
    return errors[static_cast<size_t>(part * static_cast<double>(errors.size() - 1))];
  };
  return {.median = at(0.5), .ninetieth = at(0.9)};
}

int check(const Options& options) {
  const CostModel model = load_cost_model();
  const std::vector<Turn> turns = turns_of(find_hosts(options.places), true, model.cores);
  std::printf("%-15s %-24s %-4s %10s %12s %12s %8s\n", "collective", "algorithm", "", "bytes",
              "measured us", "predicted us", "error");
  std::string summary;
  for (const Turn& turn : turns) {
    const std::vector<Observation> observations = measured_calmly(turn, true);
    if (observations.empty()) continue;
    const Errors errors = errors_of(observations, model, true);
    summary += cat("# ", turn.what, ", ", turn.ranks, " ranks: median error ",
                   std::lround(100 * errors.median), "%, 90th percentile ",
                   std::lround(100 * errors.ninetieth), "%\n");
  }
  std::fputs(summary.c_str(), stdout);
  return 0;
}

int tune(const Options& options) {
  const std::vector<Host> named = find_hosts(options.places);
  const Place place = place_of(named);
  const std::string path = options.json.empty() ? place.file : options.json;
  if (path.empty()) {
    throw Error(ErrorCode::invalid_argument, "there is no place to keep what is measured",
                {.cause = "neither XDG_CACHE_HOME nor HOME is set, or TUTTI_TUNE_FILE is none",
                 .remedy = "name a file with --json, and set TUTTI_TUNE_FILE to it"});
  }
  CostModel model = CostModel::defaults();
  model.cores = place.cores;
  model.gpus = load_cost_model().gpus;  // which are measured apart
  const std::vector<Turn> turns = turns_of(named, false, model.cores);
  static_cast<void>(Draft(path));  // that it can be written is known early
  std::vector<Observation> all;
  for (const Turn& turn : turns) {
    const std::vector<Observation> more = measured_calmly(turn, false);
    all.insert(all.end(), more.begin(), more.end());
  }
  model = bench::fit(model, all);
  Draft(path).finish(to_json(model) + "\n");
  const Errors errors = errors_of(all, model, false);
  std::printf("%zu calls measured; the numbers that fit them (median error %ld%%) are in %s\n",
              all.size(), std::lround(100 * errors.median), path.c_str());
  if (const auto quicker = fabrics_quicker_than_tcp(model)) {
    const PathClass best = quicker->empty() ? PathClass::tcp : quicker->front();
    std::printf("between hosts TUTTI_TRANSPORT=auto takes %s\n", std::string(name(best)).c_str());
  }
  return 0;
}

// The numbers of this host's class of GPUs anew, beside the others that calls take now.
int tune_gpus(const Options& options) {
  constexpr int kMostGpus = 8;
  const std::string path = options.json.empty() ? cost_model_file() : options.json;
  if (path.empty()) {
    throw Error(ErrorCode::invalid_argument, "there is no place to keep what is measured",
                {.remedy = "name a file with --json, and set TUTTI_TUNE_FILE to it"});
  }
  const int gpus = std::min(cuda::device_count(), kMostGpus);
  if (gpus < 2) {
    throw Error(ErrorCode::unsupported, cat("there are ", gpus, " GPUs to measure between"),
                {.cause = "this host has no more, or CUDA_VISIBLE_DEVICES hides them"});
  }
  const std::string gpu(gpu_class_for(cuda::device_info(0).name));
  CostModel model = load_cost_model();
  static_cast<void>(Draft(path));  // that it can be written is known early
  std::cerr << cat("measuring: ", gpus, " GPUs of class ", gpu, '\n');
  std::vector<bench::GpuObservation> observations =
      bench::read_gpu_observations(output_of({.what = kGpus, .ranks = gpus}, false));
  std::erase_if(observations, [](const bench::GpuObservation& o) { return o.seconds == 0; });
  if (observations.empty()) throw Error(ErrorCode::unsupported, "the ranks measured nothing");
  model.gpus.erase(gpu);  // begin with what was published
  const GpuCosts costs = bench::fit(gpu_costs(model, gpu), observations);
  model.gpus[gpu] = costs;
  Draft(path).finish(to_json(model) + "\n");
  std::vector<double> errors;
  for (const bench::GpuObservation& o : observations) {
    errors.push_back(std::abs(bench::predict(o, costs) / o.seconds - 1));
  }
  std::ranges::sort(errors);
  std::printf(
      "%zu calls measured; the numbers of class %s that fit them (median error %ld%%) are in "
      "%s\n",
      observations.size(), gpu.c_str(), std::lround(100 * errors[errors.size() / 2]), path.c_str());
  return 0;
}

int run(const Options& options) {
  if (!options.measure.empty()) return measure(options);
  if (options.device == "cuda") return tune_gpus(options);
  return options.check ? check(options) : tune(options);
}

}  // namespace

void add_tune(CommandLine& line) {
  const auto o = std::make_shared<Options>();
  Command command =
      line.add("tune", "measure this machine, so that the choice of algorithms fits it");
  command.add_option("--json", o->json, "keep the numbers here, not in the user's cache folder");
  add_host_options(command, o->places);
  command.add_flag("--check", o->check, "compare predicted with measured times instead");
  command
      .add_option("--device", o->device,
                  "what to measure: host, or cuda (up to 8 GPUs of this host)")
      .one_of({"host", "cuda"})
      .show_default();
  command.add_option("--measure", o->measure).group("");
  command.footer(
      "Rank 0 of a job reads the numbers and tells them to all. Without them defaults are used.\n"
      "With two hosts TCP, UCX and libfabric are measured between them, as far as they are there,\n"
      "and TUTTI_TRANSPORT=auto then takes the quickest; all hosts of a job want the same file "
      "(TUTTI_TUNE_FILE).\n"
      "Examples:\n"
      "  tutti tune && tutti explain all_reduce -n 2 --bytes 1M\n"
      "  tutti tune --hosts node1,node2\n"
      "  tutti tune --device cuda && tutti explain all_reduce -n 8 --gpu h100");
  command.runs([o] { return run(*o); });
}

}  // namespace tutti::tool

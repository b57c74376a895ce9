// tutti simulate: what a collective takes on a network that nobody here owns, in virtual time.
#include "collectives/simulate/simulate.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "bench/measure.h"
#include "collectives/interchange/resolve.h"
#include "collectives/simulate/candidates.h"
#include "tools/tutti/collective_option.h"
#include "tools/tutti/commands.h"
#include "topology/layout.h"
#include "topology/networks/load_network.h"
#include "topology/units.h"

namespace tutti::tool {

namespace {

// Steps over all ranks: of one algorithm that is named, and of those that are tried for `auto`.
constexpr int64_t kMostSteps = 40'000'000;
constexpr int64_t kMostStepsInSlices = 400'000'000;
constexpr int64_t kMostStepsTried = 2'000'000;
constexpr int kFewRanks = 128;
constexpr int kManyRanks = 10'000;
constexpr int kMostAsOne = 64;  // ranks of a host that are compared, to be played as one
constexpr int64_t kMostWorkTried = 20'000'000;

struct Options {
  std::string collective;
  std::string topology;
  std::optional<int> ranks;
  std::vector<std::string> bytes = {"64M"};
  std::string algorithm = "auto";
  int root = 0;
  int slices = 1;
  std::vector<std::string> fail;
  std::vector<std::string> slow;
  std::vector<std::string> stragglers;
  double jitter = 0;
  uint64_t seed = 0;
  double overhead_us = 0;
  std::string reduce_bandwidth;
  bool every_rank = false;
  std::string json;
};

struct Row {
  const Algorithm* algorithm = nullptr;
  double bytes = 0;
  SimulationResult result;
  int32_t alike = 1;
  bool is_best = false;  // of those for these bytes
  double algbw = 0;
  double busbw = 0;
};

[[noreturn]] void refuse(const std::string& what, const std::string& remedy) {
  throw Error(ErrorCode::invalid_argument, what, {.remedy = remedy});
}

double number_in(std::string_view text, const std::string& option, double least) {
  double value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = status == std::errc{} && end == text.data() + text.size();
  if (whole && std::isfinite(value) && value >= least) return value;
  refuse(cat(option, ": '", text, "' is no number of at least ", least), "see --help");
}

// "WHAT:NUMBER"
std::pair<std::string, double> parse_pair(const std::string& text, const std::string& option,
                                          double least) {
  const size_t colon = text.rfind(':');
  if (colon == text.npos) refuse(cat(option, " ", text, " has no ':'"), "see --help");
  return {text.substr(0, colon),
          number_in(std::string_view(text).substr(colon + 1), option, least)};
}

// "3" or "rank3"
std::optional<int> parse_rank(std::string_view text, int ranks) {
  if (text.starts_with("rank")) text.remove_prefix(4);
  int rank = -1;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), rank);
  if (status != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  if (rank >= 0 && rank < ranks) return rank;
  refuse(cat("there is no rank ", rank), cat("ranks are 0 to ", ranks - 1));
}

void show_progress(const std::string& what, double part) {
  if (::isatty(STDERR_FILENO) == 0) return;
  std::cerr << cat("\r\033[K", what, part < 0 ? "" : cat(": ", std::lround(100 * part), "%"));
}
void end_progress() {
  if (::isatty(STDERR_FILENO) != 0) std::cerr << "\r\033[K";
}

class Play {
 public:
  explicit Play(const Options& options) : o_(options) {
    collective_ = collective_named(o_.collective);
    for (const std::string& text : o_.bytes) {
      sizes_.push_back(collective_ == Collective::barrier ? 0 : parse_bytes(text));
    }
    network_ = load_network(o_.topology, o_.ranks);
    ranks_ = o_.ranks.value_or(network_->ranks());
    if (ranks_ > network_->ranks()) {
      refuse(cat("the network has room for ", network_->ranks(), " ranks, not for ", ranks_),
             "give a larger one, or fewer --ranks");
    }
    if (o_.root < 0 || o_.root >= ranks_) {
      refuse(cat("--root ", o_.root, " is not in 0 to ", ranks_ - 1), "give one of the ranks");
    }
    shape_ = {.ranks = ranks_, .root = o_.root, .layout = Layout::of(network_->places(ranks_))};
    take_troubles();
  }

  int run() {
    for (const double bytes : sizes_) run(bytes);
    end_progress();
    print();
    write_json();
    return 0;
  }

 private:
  void take_troubles() {
    for (const std::string& what : o_.fail) {
      if (const std::optional<int> rank = parse_rank(what, ranks_)) {
        simulation_.failed_ranks.push_back(*rank);
      } else {
        for (const int link : network_->links_named(what)) network_->fail(link);
      }
    }
    for (const std::string& text : o_.slow) {
      const auto [what, factor] = parse_pair(text, "--slow", 1);
      for (const int link : network_->links_named(what)) network_->slow(link, factor);
    }
    for (const std::string& text : o_.stragglers) {
      const auto [what, late] = parse_pair(text, "--straggler", 0);
      const std::optional<int> rank = parse_rank(what, ranks_);
      if (!rank) refuse(cat("--straggler: '", what, "' is no rank"), "write it as RANK:US");
      for (const auto& [other, its] : simulation_.stragglers) {
        if (other == *rank)
          refuse(cat("--straggler: rank ", *rank, " is given twice"), "give it once");
      }
      simulation_.stragglers.emplace_back(*rank, late);
    }
    simulation_.slices = o_.slices;
    simulation_.overhead_us = o_.overhead_us;
    simulation_.jitter = o_.jitter / 100;
    simulation_.seed = o_.seed;
    if (!o_.reduce_bandwidth.empty()) {
      simulation_.reduce_GBps = parse_bandwidth(o_.reduce_bandwidth);
    }
  }

  // What makes ranks of one host different.
  bool is_even() const {
    return o_.fail.empty() && o_.slow.empty() && o_.stragglers.empty() && o_.jitter == 0 &&
           !o_.every_rank;
  }

  bool tries_several() const { return o_.algorithm == "all" || o_.algorithm == "auto"; }

  // Algorithms are tried until they take longer than the best so far.
  void run(double bytes) {
    const size_t first = rows_.size();
    double least = std::numeric_limits<double>::infinity();
    const bool all = o_.algorithm == "all";
    for (const Algorithm* algorithm : algorithms(bytes)) {
      try {
        const Row row =
            play(*algorithm, bytes, all ? std::numeric_limits<double>::infinity() : least);
        if (std::isfinite(row.result.time_us)) rows_.push_back(row);
        least = std::min(least, row.result.time_us);
      } catch (const Error& error) {  // one that is too long is not tried
        if (error.code() != ErrorCode::unsupported || !tries_several()) throw;
      }
    }
    if (rows_.size() == first) {
      throw Error(ErrorCode::unsupported,
                  cat("none of the algorithms for ", name(collective_), " is quickly tried on ",
                      ranks_, " ranks"),
                  {.cause = "their messages share links in too many ways",
                   .remedy = "name one with --algorithm, which is played however long it takes"});
    }
    const auto time = [](const Row& row) { return row.result.time_us; };
    const auto rows =
        std::ranges::subrange(rows_.begin() + static_cast<ptrdiff_t>(first), rows_.end());
    std::ranges::stable_sort(rows, {}, time);
    rows_[first].is_best = true;
    if (!all) rows_.resize(first + 1);
  }

  std::vector<const Algorithm*> algorithms(double bytes) {
    const bool all = o_.algorithm == "all";
    if (!all && o_.algorithm != "auto") return {&resolve_algorithm(collective_, o_.algorithm)};
    show_progress("looking for algorithms", -1);
    const auto candidates = simulation_candidates(collective_, shape_, bytes, *network_,
                                                  std::max(kMostStepsTried, int64_t{200} * ranks_));
    std::vector<const Algorithm*> chosen;
    const size_t most = all || ranks_ <= kFewRanks ? candidates.size()
                        : ranks_ <= kManyRanks     ? 4
                                                   : 2;
    for (const SimulationCandidate& candidate : candidates) {
      if (!candidate.excluded.empty()) continue;
      if (chosen.size() == most) break;
      chosen.push_back(candidate.algorithm);
    }
    if (!chosen.empty()) return chosen;
    std::string reasons;
    for (const SimulationCandidate& candidate : candidates) {
      reasons +=
          cat(reasons.empty() ? "" : "; ", candidate.algorithm->name, ": ", candidate.excluded);
    }
    throw Error(ErrorCode::unsupported,
                cat("no algorithm for ", name(collective_), " can be tried on ", ranks_, " ranks"),
                {.cause = reasons, .remedy = "name one with --algorithm, or take fewer ranks"});
  }

  Row play(const Algorithm& algorithm, double bytes, double give_up) {
    const Schedule& schedule = schedule_of(algorithm);
    if (int64_t{schedule.steps()} * o_.slices > kMostStepsInSlices) {
      refuse(cat(algorithm.name, " has ", schedule.steps(), " steps, too many for ", o_.slices,
                 " slices"),
             "take fewer --slices, or fewer ranks");
    }
    SimulationOptions options = simulation_;
    options.bytes = bytes;
    options.give_up_us = give_up;
    if (o_.algorithm == "auto") options.most_work = kMostWorkTried;
    options.progress = [&](double part) { show_progress(cat("playing ", algorithm.name), part); };
    Row row;
    row.algorithm = &algorithm;
    row.bytes = bytes;
    row.alike = schedule.alike;
    row.result = simulate(schedule, *network_, options);
    if (row.result.time_us > 0) row.algbw = bytes / row.result.time_us * 1e-3;
    row.busbw = row.algbw * bench::bus_factor(collective_, ranks_);
    return row;
  }

  // Kept for the next size, where only one is used.
  const Schedule& schedule_of(const Algorithm& algorithm) {
    if (made_for_ == &algorithm) return schedule_;
    ScheduleOptions options{.most_steps = kMostSteps};
    const int host = network_->alike_group_size();
    if (is_even() && host <= kMostAsOne && ranks_ % host == 0) options.alike = host;
    options.progress = [&](double part) { show_progress(cat("making ", algorithm.name), part); };
    made_for_ = nullptr;
    schedule_ = make_schedule(algorithm, shape_, options);
    made_for_ = &algorithm;
    return schedule_;
  }

  void print() const {
    const std::string groups = to_text(shape_.layout);
    std::printf("%s on %s: %d ranks%s, %zu links\n", o_.collective.c_str(), o_.topology.c_str(),
                ranks_, groups.empty() ? "" : cat(", in ", groups).c_str(),
                network_->graph().links().size());
    std::printf("%14s  %-28s %14s %12s %12s %12s  %s\n", "bytes", "algorithm", "time us",
                "algbw GB/s", "busbw GB/s", "messages", "busiest link");
    for (const Row& row : rows_) {
      const SimulationResult& result = row.result;
      const std::string busiest = result.busiest ? cat(network_->name(*result.busiest), " (",
                                                       std::lround(100 * result.busiest_part), "%)")
                                                 : "-";
      std::printf("%14.0f %c%-28s %14.2f %12.3f %12.3f %12lld  %s\n", row.bytes,
                  row.is_best && o_.algorithm == "all" ? '>' : ' ', row.algorithm->name.c_str(),
                  result.time_us, row.algbw, row.busbw, static_cast<long long>(result.messages),
                  busiest.c_str());
    }
    const bool as_one = std::ranges::any_of(rows_, [](const Row& row) { return row.alike > 1; });
    if (!as_one) return;
    std::printf("Ranks of a host do alike and were played as one (--every-rank plays each).\n");
  }

  Json to_json(const Row& row) const {
    const SimulationResult& result = row.result;
    Json json = {{"bytes", static_cast<uint64_t>(row.bytes)},
                 {"algorithm", row.algorithm->name},
                 {"time_us", result.time_us},
                 {"algbw_GBps", row.algbw},
                 {"busbw_GBps", row.busbw},
                 {"messages", result.messages},
                 {"bytes_sent", result.bytes_sent},
                 {"first_rank_us", result.first_us},
                 {"last_rank", result.last_rank},
                 {"ranks_as_one", row.alike},
                 {"best", row.is_best}};
    if (result.busiest) {
      json["busiest_link"] = network_->name(*result.busiest);
      json["busiest_link_use"] = result.busiest_part;
    }
    return json;
  }

  // What was found for the first size is at the top, too.
  void write_json() const {
    if (o_.json.empty()) return;
    Json document = {{"collective", o_.collective}, {"topology", o_.topology}, {"ranks", ranks_}};
    const Json first = to_json(rows_[0]);
    for (const Json::Member& member : first.items()) document[member.name] = member.value;
    document["results"] = Json::array();
    for (const Row& row : rows_) document["results"].push_back(to_json(row));
    write_file(o_.json, document.dump(2) + "\n");
  }

  const Options& o_;
  Collective collective_ = Collective::all_reduce;
  std::vector<double> sizes_;
  std::unique_ptr<Network> network_;
  int ranks_ = 1;
  Shape shape_;
  SimulationOptions simulation_;
  Schedule schedule_;
  const Algorithm* made_for_ = nullptr;
  std::vector<Row> rows_;
};

constexpr char kFooter[] =
    "Networks: a file (ASTRA-sim's analytical .yml, htsim's .topo, ns-3's topology.txt, Slurm's\n"
    "topology.conf) or a description, the innermost part first:\n"
    "  switch:8  ring:8  full:8  mesh:4x4  torus:4x4x4  dragonfly:groups=9,routers=4,hosts=2\n"
    "  switch:8,bandwidth=400GB/s,latency=250ns;ring:4,bandwidth=400Gbps,latency=1us\n"
    "  fat-tree:k=16  fat-tree:hosts=12500,per-leaf=32,gpus=8  rail:hosts=32,gpus=8\n"
    "Bandwidths are GB/s without a unit, latencies us; both are of one link.\n\n"
    "Examples:\n"
    "  tutti simulate all_reduce --topology switch:8 --bytes 1M,64M --algorithm all\n"
    "  tutti simulate all_reduce --topology fat-tree:hosts=12500,gpus=8 --algorithm hierarchical\n"
    "  tutti simulate all_gather --topology torus:4x4 --slow host0-host1:10 --straggler 3:50\n"
    "  tutti simulate all_reduce --topology fat-tree:hosts=64 --fail leaf0-spine3 --jitter 5 "
    "--seed 1";

}  // namespace

void add_simulate(CommandLine& line) {
  const auto o = std::make_shared<Options>();
  Command command = line.add(
      "simulate", "what a collective takes on a network, up to 100 000 ranks, in virtual time");
  command.add_option("collective", o->collective, "all_reduce, all_gather, ...").required();
  command.add_option("--topology", o->topology, "a file, or a description: see below").required();
  command.add_option("-n,--ranks", o->ranks, "ranks; without: as many as the network has room for")
      .between(1, 1 << 20);
  command.add_option("--bytes", o->bytes, "sizes, as `tutti bench` counts them: 1K,1M,64M")
      .separated_by_commas()
      .show_default();
  command
      .add_option("--algorithm", o->algorithm, "a name, hierarchical(A,B,C), FILE.xml, auto or all")
      .show_default();
  command.add_option("--root", o->root, "of a collective that has one").show_default();
  command.add_option("--slices", o->slices, "send each chunk in so many pieces, which overlap")
      .between(1, 65536)
      .show_default();
  command
      .add_option("--fail", o->fail,
                  "a link (leaf0-spine1, link7), all links of a node (spine1), "
                  "or a rank (3); repeat for several")
      .type_name("LINK|RANK")
      .one_each_time();
  command.add_option("--slow", o->slow, "a link, or all of a node, that much slower")
      .type_name("LINK:FACTOR")
      .one_each_time();
  command.add_option("--straggler", o->stragglers, "a rank that begins late")
      .type_name("RANK:US")
      .one_each_time();
  command.add_option("--jitter", o->jitter, "each message varies by up to so many percent")
      .between(0, 100);
  command.add_option("--seed", o->seed, "of the jitter").show_default();
  command.add_option("--overhead", o->overhead_us, "of a processor, us for each message sent")
      .show_default();
  command.add_option("--reduce-bandwidth", o->reduce_bandwidth,
                     "of a processor that reduces and copies, GB/s; without: no time");
  command.add_flag("--every-rank", o->every_rank, "play each rank, also those that do alike");
  command.add_option("--json", o->json, "write the results here").type_name("FILE");
  command.footer(kFooter);
  command.runs([o] { return Play(*o).run(); });
}

}  // namespace tutti::tool

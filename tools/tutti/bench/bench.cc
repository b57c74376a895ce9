// `tutti bench`: times collectives and prints a table in the format of nccl-tests.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/median.h"
#include "base/settings.h"
#include "base/text.h"
#include "bench/measure.h"
#include "bench/neighbours.h"
#include "bench/peers/peer_process.h"
#include "collectives/communicator.h"
#include "collectives/interchange/resolve.h"
#include "collectives/program/algorithm.h"
#include "collectives/program/bus_factor.h"
#include "tools/launcher/launcher.h"
#include "tools/launcher/placement.h"
#include "tools/tutti/bench/options.h"
#include "tools/tutti/bench/report.h"
#include "tools/tutti/commands.h"
#include "tools/tutti/named.h"
#include "training/setup/command_line.h"

namespace tutti::tool {

namespace {

using Peers = std::vector<std::unique_ptr<bench::PeerProcess>>;

// Measurements of one algorithm or one peer.
struct Series {
  std::vector<double> times_us;
  uint64_t wrong = 0;
  std::string digest;
  std::string problem;  // describes digests that differ between rounds or ranks; empty: none do

  void add(const std::vector<double>& more) {
    times_us.insert(times_us.end(), more.begin(), more.end());
  }
};

// Returns the number of timed calls: fewer for larger sizes, so that each size takes a similar
// time.
int iterations_for(const BenchOptions& options, uint64_t bytes) {
  if (options.iterations > 0) return options.iterations;
  const uint64_t calls = (uint64_t{64} << 20) / std::max<uint64_t>(bytes, 1);
  return static_cast<int>(options.all() ? std::clamp<uint64_t>(calls / 5, 2, 40)
                                        : std::clamp<uint64_t>(calls, 5, 200));
}

int rounds_for(const BenchOptions& options) {
  if (options.rounds > 0) return options.rounds;
  return options.peers.empty() && !options.all() ? 1 : 5;
}

// Returns the names of all algorithms that run here; "auto" if none is needed.
std::vector<std::string> algorithms_that_run(bench::Measurement& measurement, Collective c) {
  std::vector<std::string> names;
  measurement.use("auto");
  if (measurement.algorithm().empty()) return {"auto"};
  for (const Algorithm* algorithm : algorithms_for(c)) {
    measurement.use(algorithm->name);
    try {
      names.push_back(measurement.algorithm());
    } catch (const Error& error) {
      if (error.code() != ErrorCode::unsupported) throw;
    }
  }
  return names;
}

void check_digest(const bench::Digest& digest, Series& series) {
  const std::string text = bench::hex(digest.hash);
  if (!series.digest.empty() && text != series.digest) {
    series.problem = "the result differs between rounds of the same call";
  }
  series.digest = text;
  if (digest.other_ranks.empty()) return;
  series.problem = "results differ from rank 0's on rank";
  for (const int rank : digest.other_ranks) series.problem += cat(' ', rank);
}

// Times all rounds. Each round times every algorithm and peer once, so that other load on the
// machine affects all of them equally.
std::vector<Series> time_in_turns(Communicator& comm, bench::Measurement& measurement,
                                  const BenchOptions& options, const bench::Case& c,
                                  const std::vector<std::string>& algorithms, const Peers& peers) {
  const int timed = iterations_for(options, c.bytes);
  const int warm_up = std::min(timed, 5);
  std::vector<Series> series(algorithms.size() + peers.size());
  for (int round = 0; round < rounds_for(options); ++round) {
    for (size_t i = 0; i < algorithms.size(); ++i) {
      measurement.use(algorithms[i]);
      series[i].add(measurement.run(warm_up, timed));
      if (options.digest) check_digest(measurement.digest(), series[i]);
      series[i].wrong += measurement.count_wrong();
    }
    for (size_t i = 0; i < peers.size(); ++i) {
      if (!peers[i]->peer().has(c.collective)) continue;
      series[algorithms.size() + i].add(
          peers[i]->run(c.collective, bench::element_count(c, comm.size()), warm_up, timed));
    }
    // Ranks that run no peer sleep here until the peers have run.
    comm.barrier();
  }
  return series;
}

void check(const Series& series, const bench::Case& c, const std::string& algorithm) {
  if (series.problem.empty()) return;
  throw Error(ErrorCode::internal,
              cat(bench::name(c.collective, c.uneven), " of ", c.bytes, " bytes, algorithm ",
                  algorithm, ": ", series.problem),
              {.cause = "the algorithm sums in a different order on each rank"});
}

std::vector<Series> time_in_place(Communicator& comm, const BenchOptions& options, bench::Case c,
                                  const std::vector<std::string>& algorithms) {
  c.in_place = true;
  bench::Measurement measurement(comm, c);
  return time_in_turns(comm, measurement, options, c, algorithms, {});
}

// Returns the algorithm bandwidth in GB/s.
double algbw(uint64_t bytes, double time_us) {
  return time_us > 0 ? static_cast<double>(bytes) / time_us / 1000 : 0;
}

// Returns the rows of one size; if all algorithms are timed, the fastest first.
std::vector<BenchRow> measure(Communicator& comm, const bench::Case& c, const BenchOptions& options,
                              const Peers& peers) {
  bench::Measurement measurement(comm, c);
  const std::vector<std::string> algorithms =
      options.all() ? algorithms_that_run(measurement, c.collective) : std::vector{c.algorithm};
  measurement.use("auto");
  const std::string choice = options.all() ? measurement.algorithm() : "";
  const std::vector<Series> series =
      time_in_turns(comm, measurement, options, c, algorithms, peers);
  std::vector<Series> in_place;
  if (options.in_place) in_place = time_in_place(comm, options, c, algorithms);
  std::vector<BenchRow> rows;
  for (size_t i = 0; i < algorithms.size(); ++i) {
    BenchRow row;
    row.bytes = bench::real_bytes(c, comm.size());
    row.count = bench::element_count(c, comm.size());
    row.wire_bytes = bench::wire_bytes(c, comm.size());
    measurement.use(algorithms[i]);
    row.algorithm = measurement.algorithm();
    if (row.algorithm.empty()) row.algorithm = algorithms[i] == "auto" ? "none" : algorithms[i];
    check(series[i], c, row.algorithm);
    row.time_us = median(series[i].times_us);
    row.min_us = *std::ranges::min_element(series[i].times_us);
    row.p90_us = percentile(series[i].times_us, 0.9);
    const double factor = bus_factor(c.collective, comm.size());
    row.algbw = algbw(row.bytes, row.time_us);
    row.busbw = row.algbw * factor;
    row.wrong = series[i].wrong;
    row.digest = series[i].digest;
    if (options.in_place) {
      row.in_place_us = median(in_place[i].times_us);
      row.in_place_busbw = algbw(row.bytes, row.in_place_us) * factor;
      row.wrong += in_place[i].wrong;
    }
    row.is_auto = options.all() && row.algorithm == choice;
    for (size_t peer = algorithms.size(); peer < series.size(); ++peer) {
      row.peer_us.emplace_back();
      row.peer_p90_us.emplace_back();
      if (series[peer].times_us.empty()) continue;
      row.peer_us.back() = median(series[peer].times_us);
      row.peer_p90_us.back() = percentile(series[peer].times_us, 0.9);
    }
    rows.push_back(std::move(row));
  }
  std::ranges::sort(rows, {}, &BenchRow::time_us);
  rows.front().is_best = options.all();
  return rows;
}

int run_rank(BenchOptions options, const bench::Case& c) {
  Communicator comm = Communicator::init();
  if (options.ranks > 0 && options.ranks != comm.size()) {
    throw Error(ErrorCode::invalid_argument,
                cat("-n ", options.ranks, ", but the launcher started ", comm.size(), " ranks"),
                {.remedy = "remove -n, or start as many ranks"});
  }
  check_root(c, comm.size());
  if (comm.rank() == 0) options.peers = bench::choose_peers(options.peers, c.on_device);
  std::unique_ptr<BenchReport> report;  // set on rank 0
  if (comm.rank() == 0) report = std::make_unique<BenchReport>(options, c, &comm);
  Peers peers;
  for (const std::string& peer : report ? options.peers : std::vector<std::string>{}) {
    peers.push_back(
        std::make_unique<bench::PeerProcess>(bench::find_peer(peer, c.on_device), comm.size(),
                                             comm.transport() == "tcp" ? "tcp" : "shm"));
  }
  if (report) report->print_header();
  uint64_t wrong = 0;
  for (const uint64_t bytes : parse_sizes(options, c)) {
    bench::Case sized = c;
    sized.bytes = bytes;
    for (const BenchRow& row : measure(comm, sized, options, peers)) {
      wrong += row.wrong;
      if (report) report->add(row);
    }
  }
  if (report) {
    report->finish();
    if (wrong > 0) std::fprintf(stderr, "tutti bench: %lu wrong elements\n", wrong);
  }
  return wrong == 0 ? 0 : 1;
}

void check_in_place(const BenchOptions& options, const bench::Case& c) {
  if (!options.in_place || (bench::runs_in_place(c.collective) && !c.on_device)) return;
  throw Error(
      ErrorCode::unsupported,
      cat("--in-place: ", bench::name(c.collective, c.uneven),
          c.on_device ? " cannot be timed in place with --device cuda" : " has no in-place form"),
      {.remedy = "remove --in-place"});
}

void check_plot(const BenchOptions& options, const bench::Case& c) {
  if (options.plot.empty() || c.collective != Collective::barrier) return;
  throw Error(ErrorCode::invalid_argument, "--plot is not available for barrier, which has no size",
              {.remedy = "remove --plot"});
}

void check_peers(const BenchOptions& options, const bench::Case& c) {
  if (options.peers.empty()) return;
  if (c.uneven || c.collective == Collective::send_recv || c.dtype != DType::f32 ||
      c.op != ReduceOp::sum || c.root != 0) {
    throw Error(ErrorCode::unsupported,
                "--peers supports only --dtype f32, --op sum, --root 0 and equal block sizes, and "
                "not send_recv",
                {.remedy = "remove --peers, or change these options"});
  }
}

// Throws if the algorithm cannot run with this number of ranks on this host.
void check_algorithm(const bench::Case& c, int ranks) {
  if (c.algorithm == "auto" || ranks <= 1) return;
  const Algorithm& algorithm = resolve_algorithm(c.collective, c.algorithm);
  std::string problem = why_unsupported(
      algorithm, {.ranks = ranks, .root = c.root, .layout = layout_of(place_ranks(ranks))});
  if (!problem.empty()) {
    problem = cat("does not run on ", ranks, " ranks: ", problem);
  } else if (c.deterministic && reduces(c.collective) && algorithm.grade < Grade::canonical) {
    problem =
        cat("is graded ", name(algorithm.grade), ", not canonical, so it is not deterministic");
  }
  if (problem.empty()) return;
  throw Error(ErrorCode::unsupported,
              cat(name(c.collective), " algorithm ", algorithm.name, ' ', problem),
              {.remedy = cat("see `tutti bench ", name(c.collective), " --algorithm list`")});
}

void check_shared(const BenchOptions& options) {
  if (!options.is_shared() || options.is_beside) return;
  if (!is_launched() && options.ranks > 1) return;
  throw UsageError("--load and --quota require -n of at least 2, and no launcher");
}

// Starts the ranks and, with --load or --quota, busy processes or a limit of processor time.
int launch_beside(const BenchOptions& options) {
  if (!options.is_shared()) return launch_self({.ranks = options.ranks});
  const bench::BusyProcesses neighbours(options.load);
  std::optional<bench::ProcessorQuota> quota;
  try {
    if (options.quota > 0) quota.emplace(options.quota);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::unsupported) throw;
    std::printf("tutti bench: skipped: --quota: %s\n", error.what());
    return 0;
  }
  return launch_self({.ranks = options.ranks}, {"--beside"});
}

int run(const BenchOptions& options) {
  if (options.algorithm == "list") {
    list_algorithms(options);
    return 0;
  }
  // Reports errors that concern every rank once, before ranks are started.
  const bench::Case c = parse_case(options);
  if (!is_launched()) check_root(c, std::max(1, options.ranks));
  parse_sizes(options, c);
  check_peers(options, c);
  check_in_place(options, c);
  check_plot(options, c);
  check_shared(options);
  if (!options.transport.empty()) settings().set("TUTTI_TRANSPORT", options.transport);
  if (is_launched() || options.ranks <= 1) return run_rank(options, c);
  check_algorithm(c, options.ranks);
  bench::choose_peers(options.peers, c.on_device);
  const BenchReport writable(options, c, nullptr);
  return launch_beside(options);
}

}  // namespace

void add_bench(CommandLine& line) {
  Command bench = line.add("bench", "time a collective and check its results");
  auto o = std::make_shared<BenchOptions>();
  bench
      .add_option("collective", o->collective,
                  "collective to time: all_reduce, all_gather, reduce_scatter, broadcast, reduce, "
                  "gather, scatter, all_to_all, scan, exscan, barrier or send_recv; with uneven "
                  "block sizes: all_gatherv, reduce_scatterv, gatherv, scatterv or all_to_allv")
      .required()
      .suggest(collective_names());
  bench
      .add_option(
          "-n,--ranks", o->ranks,
          "number of ranks to start on this host, if no launcher started ranks (default: 1)")
      .between(1, 1 << 20);
  bench.add_option("--min", o->min, "smallest size in bytes (K, M, G are powers of 1024)")
      .show_default();
  bench.add_option("--max", o->max, "largest size in bytes").show_default();
  bench.add_option("--factor", o->factor, "multiplication factor between sizes").show_default();
  bench.add_option("--dtype", o->dtype, "element type").show_default().suggest(dtype_names());
  bench.add_option("--op", o->op, "reduction operator").show_default().suggest(op_names());
  bench.add_option("--root", o->root, "root rank of broadcast, reduce, gather and scatter")
      .show_default();
  bench
      .add_option(
          "--algorithm", o->algorithm,
          "algorithm: a name, hierarchical(A,B,C), FILE.xml (MSCCL XML), FILE.json (rings written "
          "by tutti topo), auto (chosen by cost), all (each in turn), or list (print the names)")
      .show_default()
      .suggest(algorithm_names());
  bench
      .add_option("--transport", o->transport,
                  "transport: auto, shm, tcp, ucx, ofi, shm+tcp, shm+ucx or shm+ofi (default: "
                  "TUTTI_TRANSPORT)")
      .suggest(transport_names());
  bench
      .add_option(
          "--buffers", o->buffers,
          "buffer memory. user: ordinary allocations; library: memory from "
          "Communicator::allocate(), which peers on the same host read in place; registered: "
          "ordinary memory passed to register_memory(). With --device cuda, library and registered "
          "are windows (Communicator::register_window()) over memory from allocate() or from CUDA")
      .show_default();
  bench.add_option("--device", o->device, "memory that holds the buffers: host or cuda")
      .show_default();
  bench.add_flag("--in-place", o->in_place,
                 "also time in-place calls and print them in separate columns");
  bench.add_flag("--graph", o->graph,
                 "with --device cuda: capture the call in a CUDA graph and time its launches");
  bench.add_flag("--deterministic", o->deterministic,
                 "use only deterministic (canonical) algorithms, as TUTTI_DETERMINISTIC=1 does");
  bench.add_option("--wire", o->wire, "wire format of f32 elements: plain, or a compressed format")
      .type_name("FORMAT")
      .show_default()
      .suggest(wire_names());
  bench.add_flag("--digest", o->digest,
                 "use inputs whose sum depends on the order of summation, and print the SHA-256 of "
                 "the result");
  bench
      .add_option("--peers", o->peers,
                  "libraries to time in alternation with Tutti: openmpi, mpich, gloo, floor (plain "
                  "memory copies), nccl (with --device cuda), or all that are installed")
      .separated_by_commas();
  bench
      .add_option("--rounds", o->rounds,
                  "measurement rounds per size (default: 1; with --peers or --algorithm all: 5)")
      .between(1, 1 << 30);
  bench
      .add_option("--iterations", o->iterations,
                  "timed calls per round (default: depends on the size)")
      .between(1, 1 << 30);
  bench
      .add_option("--load", o->load,
                  "with -n: number of busy processes that compete with the ranks for the cores "
                  "(default: 0)")
      .between(0, 1 << 10);
  bench
      .add_option(
          "--quota", o->quota,
          "with -n: limit on the processor time of all ranks together, in processors (1.5), "
          "which a control group enforces (default: no limit)")
      .between(0.01, 1 << 20);
  bench.add_flag("--beside", o->is_beside)
      .group("");  // hidden: marks the ranks, whose launcher applies --load and --quota
  bench.add_option("--json", o->json, "write the results as JSON to this file").type_name("FILE");
  bench.add_option("--csv", o->csv, "write the table as CSV to this file").type_name("FILE");
  bench
      .add_option("--plot", o->plot,
                  "plot time against size into this .svg or .png file (requires gnuplot)")
      .type_name("FILE");
  bench.footer(
      "Examples:\n"
      "  tutti bench all_reduce -n 2\n"
      "  tutti bench all_reduce -n 2 --min 1M --max 64M --peers openmpi\n"
      "  tutti bench all_reduce -n 2 --peers all --plot all_reduce.svg\n"
      "  tutti bench broadcast -n 8 --algorithm all\n"
      "  tutti bench all_reduce -n 5 --dtype bf16 --digest --deterministic\n"
      "  tutti bench all_reduce -n 4 --transport tcp --wire mx8\n"
      "  tutti run --hosts a,b -n 4 -- tutti bench all_gather --transport tcp --json out.json");
  bench.runs([o] { return run(*o); });
}

}  // namespace tutti::tool

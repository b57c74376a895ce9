// `tutti bench`: the table that everyone in this field reads (as nccl-tests prints it).

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/settings.h"
#include "base/text.h"
#include "bench/measure.h"
#include "bench/peers/peer_process.h"
#include "collectives/algorithm.h"
#include "collectives/communicator.h"
#include "tools/launcher/launcher.h"
#include "tools/tutti/commands.h"

namespace tutti::tool {

namespace {

struct Options {
  std::string collective;
  int ranks = 0;
  std::string min = "8";
  std::string max = "64M";
  int factor = 2;
  std::string dtype = "f32";
  std::string op = "sum";
  std::string algorithm = "auto";
  std::string transport;
  std::vector<std::string> peers;
  int rounds = 0;
  int iterations = 0;
  std::string json;
  std::string csv;
};

struct Row {
  uint64_t bytes = 0;
  uint64_t count = 0;
  std::string algorithm;
  double time_us = 0;
  double min_us = 0;
  double algbw = 0;
  double busbw = 0;
  uint64_t wrong = 0;
  std::vector<double> peer_us;  // medians, in the order of the peers
};

Collective parse_collective(const std::string& text) {
  std::string names;
  for (const Collective collective : kCollectivesWithAlgorithms) {
    if (name(collective) == text) return collective;
    names += cat(names.empty() ? "" : ", ", name(collective));
  }
  throw Error(ErrorCode::invalid_argument, cat("there is no collective '", text, "'"),
              {.remedy = cat("use one of ", names)});
}

bench::Case parse_case(const Options& options) {
  bench::Case c;
  c.collective = parse_collective(options.collective);
  const std::optional<DType> dtype = parse_dtype(options.dtype);
  if (!dtype) {
    throw Error(
        ErrorCode::invalid_argument, cat("there is no dtype '", options.dtype, "'"),
        {.remedy = "use one of i8 i16 i32 i64 u8 u16 u32 u64 f16 bf16 f32 f64 f8e4m3 f8e5m2"});
  }
  const std::optional<ReduceOp> op = parse_reduce_op(options.op);
  if (!op) {
    throw Error(ErrorCode::invalid_argument, cat("there is no reduce op '", options.op, "'"),
                {.remedy = "use one of sum prod min max avg band bor bxor"});
  }
  if (!supports(*op, *dtype)) {
    throw Error(ErrorCode::invalid_argument, cat(options.op, " does not work on ", options.dtype),
                {.cause = "bitwise operators work on integers only"});
  }
  c.dtype = *dtype;
  c.op = *op;
  c.algorithm = options.algorithm;
  if (c.algorithm != "auto") require_algorithm(c.collective, c.algorithm);
  return c;
}

std::vector<uint64_t> parse_sizes(const Options& options, Collective collective) {
  if (collective == Collective::barrier) return {0};
  const uint64_t min = parse_bytes(options.min);
  const uint64_t max = parse_bytes(options.max);
  if (min > max || options.factor < 2) {
    throw Error(ErrorCode::invalid_argument,
                cat("--min ", options.min, " --max ", options.max, " --factor ", options.factor,
                    " names no sizes"),
                {.remedy = "--min must not exceed --max, and --factor must be at least 2"});
  }
  std::vector<uint64_t> sizes;
  for (uint64_t bytes = min; bytes <= max; bytes *= options.factor) {
    sizes.push_back(bytes);
    if (bytes == 0 || bytes > UINT64_MAX / options.factor) break;
  }
  return sizes;
}

int list_algorithms(Collective collective) {
  for (const Algorithm* algorithm : algorithms_for(collective)) {
    std::printf("%-26s %-10s %s\n", algorithm->name.c_str(),
                std::string(name(algorithm->grade)).c_str(), algorithm->source.c_str());
  }
  return 0;
}

// Fewer calls for larger sizes: each size takes about as long.
int iterations_for(const Options& options, uint64_t bytes) {
  if (options.iterations > 0) return options.iterations;
  return static_cast<int>(
      std::clamp<uint64_t>((uint64_t{64} << 20) / std::max<uint64_t>(bytes, 1), 5, 200));
}

Row measure(Communicator& comm, const bench::Case& c, const Options& options,
            const std::vector<std::unique_ptr<bench::PeerProcess>>& peers) {
  bench::Measurement measurement(comm, c);
  const int iterations = iterations_for(options, c.bytes);
  const int rounds = options.rounds > 0 ? options.rounds : (options.peers.empty() ? 1 : 5);
  std::vector<double> times;
  std::vector<std::vector<double>> peer_times(peers.size());
  Row row;
  for (int round = 0; round < rounds; ++round) {
    const std::vector<double> round_times = measurement.run(std::min(iterations, 5), iterations);
    times.insert(times.end(), round_times.begin(), round_times.end());
    row.wrong += measurement.count_wrong();
    for (size_t i = 0; i < peers.size(); ++i) {
      const std::vector<double> theirs =
          peers[i]->run(c.bytes, std::min(iterations, 5), iterations);
      peer_times[i].insert(peer_times[i].end(), theirs.begin(), theirs.end());
    }
    // Whoever waits here sleeps while the peers have their turn.
    comm.barrier();
  }
  row.bytes = bench::real_bytes(c, comm.size());
  row.count = bench::element_count(c, comm.size());
  row.algorithm = measurement.algorithm();
  row.time_us = bench::median(times);
  row.min_us = *std::ranges::min_element(times);
  row.algbw = row.time_us > 0 ? static_cast<double>(row.bytes) / row.time_us / 1000 : 0;
  row.busbw = row.algbw * bench::bus_factor(c.collective, comm.size());
  for (const std::vector<double>& theirs : peer_times) row.peer_us.push_back(bench::median(theirs));
  return row;
}

// A rank that is alone moves nothing; it then has the transport that was asked for.
std::string shown_transport(const Communicator& comm, const Options& options) {
  return comm.size() == 1 && !options.transport.empty() ? options.transport : comm.transport();
}

void print_header(const Communicator& comm, const bench::Case& c, const Options& options) {
  std::printf("# tutti bench %s: %d ranks, %s, %s, transport %s\n",
              std::string(name(c.collective)).c_str(), comm.size(),
              std::string(name(c.dtype)).c_str(), std::string(name(c.op)).c_str(),
              shown_transport(comm, options).c_str());
  std::printf("%12s %12s %6s %-20s %12s %12s %10s %10s %6s", "bytes", "count", "type", "algorithm",
              "time us", "min us", "algbw GB/s", "busbw GB/s", "wrong");
  for (const std::string& peer : options.peers) {
    std::printf(" %12s %7s", (peer + " us").c_str(), "ratio");
  }
  std::printf("\n");
  std::fflush(stdout);
}

void print_row(const Row& row, const bench::Case& c) {
  std::printf("%12lu %12lu %6s %-20s %12.2f %12.2f %10.3f %10.3f %6lu", row.bytes, row.count,
              std::string(name(c.dtype)).c_str(), row.algorithm.c_str(), row.time_us, row.min_us,
              row.algbw, row.busbw, row.wrong);
  for (const double peer : row.peer_us) std::printf(" %12.2f %7.3f", peer, row.time_us / peer);
  std::printf("\n");
  std::fflush(stdout);
}

std::ofstream open_for_writing(const std::string& path) {
  std::ofstream file;
  if (path.empty()) return file;
  errno = 0;
  file.open(path);
  if (!file) {
    throw system_error(cat("cannot write ", path), errno,
                       {.remedy = "name a file in a directory you may write"});
  }
  return file;
}

void finish(std::ofstream& file, const std::string& path) {
  if (!file.flush()) throw system_error(cat("cannot write ", path), errno);
}

void write_json(std::ofstream& file, const Communicator& comm, const bench::Case& c,
                const Options& options, const std::vector<Row>& rows) {
  nlohmann::ordered_json document = {{"collective", name(c.collective)},
                                     {"ranks", comm.size()},
                                     {"dtype", name(c.dtype)},
                                     {"op", name(c.op)},
                                     {"transport", shown_transport(comm, options)},
                                     {"results", nlohmann::ordered_json::array()}};
  for (const Row& row : rows) {
    nlohmann::ordered_json result = {{"bytes", row.bytes},         {"count", row.count},
                                     {"algorithm", row.algorithm}, {"time_us", row.time_us},
                                     {"min_us", row.min_us},       {"algbw_GBps", row.algbw},
                                     {"busbw_GBps", row.busbw},    {"wrong", row.wrong}};
    for (size_t i = 0; i < row.peer_us.size(); ++i) {
      result["peers"][options.peers[i]] = {{"time_us", row.peer_us[i]},
                                           {"ratio", row.time_us / row.peer_us[i]}};
    }
    document["results"].push_back(std::move(result));
  }
  file << document.dump(2) << '\n';
  finish(file, options.json);
}

void write_csv(std::ofstream& file, const Options& options, const std::vector<Row>& rows) {
  file << "bytes,count,algorithm,time_us,min_us,algbw_GBps,busbw_GBps,wrong";
  for (const std::string& peer : options.peers) file << ',' << peer << "_us," << peer << "_ratio";
  file << '\n';
  for (const Row& row : rows) {
    file << row.bytes << ',' << row.count << ',' << row.algorithm << ',' << row.time_us << ','
         << row.min_us << ',' << row.algbw << ',' << row.busbw << ',' << row.wrong;
    for (const double peer : row.peer_us) file << ',' << peer << ',' << row.time_us / peer;
    file << '\n';
  }
  finish(file, options.csv);
}

void print_ratios(const Options& options, const std::vector<Row>& rows) {
  for (size_t i = 0; i < options.peers.size(); ++i) {
    double product = 0;
    double worst = 0;
    for (const Row& row : rows) {
      product += std::log(row.time_us / row.peer_us[i]);
      worst = std::max(worst, row.time_us / row.peer_us[i]);
    }
    std::printf("# time over %s's: geometric mean %.3f, worst %.3f\n", options.peers[i].c_str(),
                std::exp(product / static_cast<double>(rows.size())), worst);
  }
}

int run_rank(const Options& options, const bench::Case& c) {
  Communicator comm = Communicator::init();
  if (options.ranks > 0 && options.ranks != comm.size()) {
    throw Error(ErrorCode::invalid_argument,
                cat("-n ", options.ranks, ", but the launcher started ", comm.size(), " ranks"));
  }
  const bool first = comm.rank() == 0;
  std::ofstream json = open_for_writing(first ? options.json : "");
  std::ofstream csv = open_for_writing(first ? options.csv : "");
  std::vector<std::unique_ptr<bench::PeerProcess>> peers;
  for (const std::string& peer : first ? options.peers : std::vector<std::string>{}) {
    peers.push_back(std::make_unique<bench::PeerProcess>(
        peer, comm.size(), comm.transport() == "tcp" ? "tcp" : "shm"));
  }
  if (first) print_header(comm, c, options);
  std::vector<Row> rows;
  uint64_t wrong = 0;
  for (const uint64_t bytes : parse_sizes(options, c.collective)) {
    bench::Case sized = c;
    sized.bytes = bytes;
    rows.push_back(measure(comm, sized, options, peers));
    wrong += rows.back().wrong;
    if (first) print_row(rows.back(), c);
  }
  if (first) {
    print_ratios(options, rows);
    if (json.is_open()) write_json(json, comm, c, options, rows);
    if (csv.is_open()) write_csv(csv, options, rows);
    if (wrong > 0) std::fprintf(stderr, "tutti bench: %lu wrong elements\n", wrong);
  }
  return wrong == 0 ? 0 : 1;
}

int run(const Options& options) {
  // What is wrong for every rank is said once, before there are any.
  const bench::Case c = parse_case(options);
  parse_sizes(options, c.collective);
  if (!options.transport.empty()) settings().set("TUTTI_TRANSPORT", options.transport);
  if (!options.peers.empty() &&
      (c.collective != Collective::all_reduce || c.dtype != DType::f32 || c.op != ReduceOp::sum)) {
    throw Error(ErrorCode::unsupported, "peers are compared on all_reduce of f32, sum, only");
  }
  if (is_launched()) return run_rank(options, c);
  if (options.ranks <= 1) return run_rank(options, c);
  open_for_writing(options.json);
  open_for_writing(options.csv);
  return launch_self(options.ranks);
}

}  // namespace

void add_bench(CLI::App& app, Action& chosen) {
  CLI::App* bench = app.add_subcommand("bench", "time a collective, with checked data");
  auto o = std::make_shared<Options>();
  bench
      ->add_option("collective", o->collective,
                   "all_reduce, all_gather, reduce_scatter, broadcast, reduce or barrier")
      ->required();
  bench->add_option("-n,--ranks", o->ranks, "ranks to start on this host (without a launcher)")
      ->check(CLI::Range(1, 1 << 20).description(""));
  bench->add_option("--min", o->min, "smallest size in bytes (K, M, G are powers of 1024)")
      ->capture_default_str();
  bench->add_option("--max", o->max, "largest size")->capture_default_str();
  bench->add_option("--factor", o->factor, "from one size to the next")->capture_default_str();
  bench->add_option("--dtype", o->dtype, "element type")->capture_default_str();
  bench->add_option("--op", o->op, "reduction operator")->capture_default_str();
  bench->add_option("--algorithm", o->algorithm, "algorithm by name, auto, or list")
      ->capture_default_str();
  bench->add_option("--transport", o->transport, "auto, shm or tcp");
  bench->add_option("--peers", o->peers, "other libraries to time in turn with Tutti: openmpi")
      ->delimiter(',');
  bench->add_option("--rounds", o->rounds, "turns per size (default: 1, with peers 5)")
      ->check(CLI::Range(1, 1 << 30).description(""));
  bench->add_option("--iterations", o->iterations, "timed calls per turn (default: by size)")
      ->check(CLI::Range(1, 1 << 30).description(""));
  bench->add_option("--json", o->json, "write the results to this file");
  bench->add_option("--csv", o->csv, "write the table to this file");
  bench->footer(
      "Examples:\n"
      "  tutti bench all_reduce -n 2\n"
      "  tutti bench all_reduce -n 2 --min 1M --max 64M --peers openmpi\n"
      "  tutti run --hosts a,b -n 4 -- tutti bench all_gather --transport tcp --json out.json");
  bench->callback([o, &chosen] {
    chosen = [o] {
      if (o->algorithm == "list") return list_algorithms(parse_collective(o->collective));
      return run(*o);
    };
  });
}

}  // namespace tutti::tool

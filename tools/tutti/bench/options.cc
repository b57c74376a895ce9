#include "tools/tutti/bench/options.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <tuple>

#include "base/error.h"
#include "base/settings.h"
#include "base/text.h"
#include "collectives/interchange/msccl_import.h"
#include "collectives/interchange/resolve.h"
#include "collectives/program/algorithm.h"
#include "tools/tutti/named.h"

namespace tutti::tool {

namespace {

// Characters of UTF-8.
size_t width(const std::string& text) {
  return std::ranges::count_if(text, [](char c) { return (c & 0xc0) != 0x80; });
}

// "1-4, 6, 8-10, ...: why not the others", of the numbers of ranks on one host.
std::string where_it_runs(const Algorithm& algorithm) {
  constexpr int kShown = 16;
  constexpr int kLast = 64;
  std::string runs;
  std::string reason;
  int first = 0;
  for (int ranks = 1; ranks <= kLast; ++ranks) {
    const std::string problem = algorithm.supports({.ranks = ranks});
    if (!problem.empty() && reason.empty()) reason = problem;
    if (problem.empty() && first == 0) first = ranks;
    const bool ends = !problem.empty() || ranks == kLast;
    if (!ends || first == 0) continue;
    const int last = problem.empty() ? ranks : ranks - 1;
    if (first <= kShown) {
      runs += cat(runs.empty() ? "" : ", ", first, last > first ? cat('-', last) : "");
    } else if (!runs.ends_with("...")) {
      runs += ", ...";
    }
    first = 0;
  }
  if (reason.empty()) return "any";
  return cat(runs, runs.empty() ? "" : "; ", reason);
}

bench::Buffers parse_buffers(const std::string& text) {
  if (text == "user") return bench::Buffers::user;
  if (text == "library") return bench::Buffers::library;
  if (text == "registered") return bench::Buffers::registered;
  throw Error(ErrorCode::invalid_argument, cat("there are no buffers '", text, "'"),
              {.remedy = "use user, library or registered"});
}

bool is_on_device(const BenchOptions& options, const bench::Case& c) {
  if (options.device == "host" && !options.graph) return false;
  if (options.device == "host") {
    throw Error(ErrorCode::invalid_argument, "--graph without a GPU",
                {.cause = "a graph is what a GPU's stream is captured into",
                 .remedy = "add --device cuda"});
  }
  if (options.device != "cuda") {
    throw Error(ErrorCode::invalid_argument, cat("there is no device '", options.device, "'"),
                {.remedy = "use host or cuda"});
  }
  const std::string with = cat("--device cuda with ");
  if (c.collective == Collective::barrier) {
    throw Error(ErrorCode::unsupported, with + options.collective,
                {.cause = "it does not run on GPUs", .remedy = "use --device host"});
  }
  return true;
}

void check_wire(const bench::Case& c, const BenchOptions& options) {
  if (c.wire == WireFormat::plain) return;
  if (c.dtype != DType::f32) {
    throw Error(ErrorCode::invalid_argument,
                cat("--wire ", options.wire, " with --dtype ", options.dtype),
                {.cause = "only f32 travels in another format", .remedy = "use --dtype f32"});
  }
  if (reduces(c.collective) && c.op == ReduceOp::user) {
    throw Error(ErrorCode::invalid_argument, cat("--wire ", options.wire, " with --op user"),
                {.cause = "an operator of the caller's knows f32 only"});
  }
  if (c.on_device && reduces(c.collective)) {
    throw Error(ErrorCode::unsupported, cat("--wire ", options.wire, " with --device cuda"),
                {.cause = "sums of GPUs' memory that travel in another format are not checked yet",
                 .remedy = "use --device host"});
  }
}

}  // namespace

bench::Case parse_case(const BenchOptions& options) {
  bench::Case c;
  std::tie(c.collective, c.uneven) = any_collective_named(options.collective);
  c.dtype = dtype_named(options.dtype);
  c.op = op_named(options.op);
  c.root = options.root;
  if (reduces(c.collective) && !supports(c.op, c.dtype)) {
    throw Error(ErrorCode::invalid_argument, cat(options.op, " does not work on ", options.dtype),
                {.cause = "bitwise operators work on integers only, minloc and maxloc on pairs "
                          "only, and no other on pairs"});
  }
  c.algorithm = options.all() ? "auto" : options.algorithm;
  if (c.algorithm != "auto") resolve_algorithm(c.collective, c.algorithm);
  c.buffers = parse_buffers(options.buffers);
  c.on_device = is_on_device(options, c);
  c.graph = options.graph;
  c.data = options.digest ? bench::Data::rounding : bench::Data::exact;
  c.wire = wire_named(options.wire);
  check_wire(c, options);
  c.deterministic = options.deterministic || settings().get_bool("TUTTI_DETERMINISTIC");
  return c;
}

void check_root(const bench::Case& c, int ranks) {
  if (c.root != 0 && !has_root(c.collective)) {
    throw Error(ErrorCode::invalid_argument,
                cat("--root ", c.root, ": ", bench::name(c.collective, c.uneven), " has no root"),
                {.remedy = "broadcast, reduce, gather and scatter have one"});
  }
  if (c.root >= 0 && c.root < ranks) return;
  throw Error(ErrorCode::invalid_argument,
              cat("--root ", c.root, " is none of the ", ranks, " ranks"),
              {.remedy = cat("ranks are numbered from 0 to ", ranks - 1)});
}

std::vector<uint64_t> parse_sizes(const BenchOptions& options, const bench::Case& c) {
  if (c.collective == Collective::barrier) return {0};
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

void list_algorithms(const BenchOptions& options) {
  const auto [collective, uneven] = any_collective_named(options.collective);
  load_algorithm_files();
  std::vector<std::array<std::string, 4>> lines;
  std::array<size_t, 4> widths = {};
  const Request request{.collective = collective, .uneven = uneven};
  for (const Algorithm* algorithm : algorithms_for(collective)) {
    if (request.blocks_are_private() && !algorithm->direct) continue;
    lines.push_back({algorithm->name, std::string(name(algorithm->grade)), algorithm->source,
                     where_it_runs(*algorithm)});
    for (size_t i = 0; i < widths.size(); ++i) {
      widths[i] = std::max(widths[i], width(lines.back()[i]));
    }
  }
  if (lines.empty()) std::printf("%s has no algorithms\n", options.collective.c_str());
  for (const auto& line : lines) {
    for (size_t i = 0; i + 1 < line.size(); ++i) {
      std::printf("%s%*s  ", line[i].c_str(), static_cast<int>(widths[i] - width(line[i])), "");
    }
    std::printf("ranks: %s\n", line.back().c_str());
  }
}

}  // namespace tutti::tool

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

// Returns the number of UTF-8 characters.
size_t width(const std::string& text) {
  return std::ranges::count_if(text, [](char c) { return (c & 0xc0) != 0x80; });
}

// Returns the supported numbers of ranks on one host, and the reason why other numbers are not
// supported: "1-4, 6, 8-10, ...; REASON". Returns "any" if up to 64 ranks all numbers are
// supported.
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
  throw Error(ErrorCode::invalid_argument, cat("unknown buffer memory '", text, "'"),
              {.remedy = "use user, library or registered"});
}

bool is_on_device(const BenchOptions& options, const bench::Case& c) {
  if (options.device == "host" && !options.graph) return false;
  if (options.device == "host") {
    throw Error(ErrorCode::invalid_argument, "--graph requires a GPU",
                {.cause = "only calls on a GPU stream can be captured in a graph",
                 .remedy = "add --device cuda"});
  }
  if (options.device != "cuda") {
    throw Error(ErrorCode::invalid_argument, cat("unknown device '", options.device, "'"),
                {.remedy = "use host or cuda"});
  }
  const std::string with = cat("--device cuda with ");
  if (c.collective == Collective::barrier) {
    throw Error(ErrorCode::unsupported, with + options.collective,
                {.cause = "barrier is not implemented for GPUs", .remedy = "use --device host"});
  }
  return true;
}

void check_wire(const bench::Case& c, const BenchOptions& options) {
  if (c.wire == WireFormat::plain) return;
  if (c.dtype != DType::f32) {
    throw Error(ErrorCode::invalid_argument,
                cat("--wire ", options.wire, " with --dtype ", options.dtype),
                {.cause = "wire formats apply to f32 only", .remedy = "use --dtype f32"});
  }
  if (reduces(c.collective) && c.op == ReduceOp::user) {
    throw Error(ErrorCode::invalid_argument, cat("--wire ", options.wire, " with --op user"),
                {.cause = "user operators process elements in f32, not in a wire format",
                 .remedy = "use another --op, or --wire plain"});
  }
  if (c.on_device && reduces(c.collective)) {
    throw Error(ErrorCode::unsupported, cat("--wire ", options.wire, " with --device cuda"),
                {.cause = "the results of GPU reductions in a wire format cannot be checked",
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
    throw Error(ErrorCode::invalid_argument, cat(options.op, " is not defined for ", options.dtype),
                {.cause = "bitwise operators require integers; minloc and maxloc require pairs, "
                          "which no other operator supports",
                 .remedy = "use another --op or --dtype"});
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
                {.remedy = "remove --root, or use broadcast, reduce, gather or scatter"});
  }
  if (c.root >= 0 && c.root < ranks) return;
  throw Error(ErrorCode::invalid_argument,
              cat("--root ", c.root, " is not one of the ", ranks, " ranks"),
              {.remedy = cat("ranks are numbered from 0 to ", ranks - 1)});
}

std::vector<uint64_t> parse_sizes(const BenchOptions& options, const bench::Case& c) {
  if (c.collective == Collective::barrier) return {0};
  const uint64_t min = parse_bytes(options.min);
  const uint64_t max = parse_bytes(options.max);
  if (min > max || options.factor < 2) {
    throw Error(ErrorCode::invalid_argument,
                cat("--min ", options.min, " --max ", options.max, " --factor ", options.factor,
                    " selects no sizes"),
                {.remedy = "set --min to at most --max, and --factor to at least 2"});
  }
  std::vector<uint64_t> sizes;
  if (min == 0) sizes.push_back(0);
  const uint64_t least = min == 0 ? size_of(c.dtype) : min;
  for (uint64_t bytes = least; bytes <= max; bytes *= options.factor) {
    sizes.push_back(bytes);
    if (bytes > UINT64_MAX / options.factor) break;
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

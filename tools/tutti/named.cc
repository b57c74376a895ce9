#include "tools/tutti/named.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <optional>
#include <set>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/names.h"
#include "base/text.h"
#include "bench/measure.h"
#include "collectives/program/algorithm.h"

namespace tutti::tool {
namespace {

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

[[noreturn]] void refuse_name(const std::string& kind, const std::string& name,
                              const std::vector<std::string>& known) {
  throw Error(ErrorCode::invalid_argument, cat("unknown ", kind, " '", name, "'"),
              {.remedy = cat(did_you_mean(lower(name), known), "use one of ", listed(known))});
}

template <typename Values>
std::vector<std::string> names_of(const Values& values) {
  std::vector<std::string> names;
  for (const auto value : values) names.emplace_back(name(value));
  return names;
}

std::vector<NamedCollective> all_collectives() {
  std::vector<NamedCollective> all;
  for (const Collective c : kCollectivesWithAlgorithms) all.emplace_back(c, false);
  all.emplace_back(Collective::send_recv, false);
  for (const Collective c : kCollectivesWithAlgorithms) {
    if (has_blocks(c)) all.emplace_back(c, true);
  }
  return all;
}

NamedCollective one_of(const std::vector<NamedCollective>& all, const std::string& wanted) {
  // MPI has a short name for broadcast; its other names and NCCL's differ only in case and
  // underscores.
  const std::string text = same_name(wanted, "bcast") ? "broadcast" : wanted;
  std::vector<std::string> known;
  for (const NamedCollective& one : all) {
    known.push_back(bench::name(one.first, one.second));
    if (same_name(known.back(), text)) return one;
  }
  refuse_name("collective", wanted, known);
}

}  // namespace

std::vector<std::string> collective_names() { return names_of(kCollectivesWithAlgorithms); }
std::vector<std::string> op_names() { return names_of(kAllReduceOps); }
std::vector<std::string> dtype_names() { return names_of(kAllDTypes); }
std::vector<std::string> wire_names() { return names_of(kAllWireFormats); }
std::vector<std::string> transport_names() {
  return {"auto", "shm", "tcp", "ucx", "ofi", "shm+tcp", "shm+ucx", "shm+ofi"};
}
std::vector<std::string> algorithm_names() {
  // a set, because several collectives have algorithms of the same name
  std::set<std::string> names;
  for (const Algorithm& algorithm : built_in_algorithms()) names.insert(algorithm.name);
  return {names.begin(), names.end()};
}

NamedCollective any_collective_named(const std::string& name) {
  return one_of(all_collectives(), name);
}

Collective collective_named(const std::string& name) {
  std::vector<NamedCollective> all;
  for (const Collective c : kCollectivesWithAlgorithms) all.emplace_back(c, false);
  return one_of(all, name).first;
}

ReduceOp op_named(const std::string& name) {
  std::string text = lower(name);
  for (const std::string_view prefix : {"nccl", "mpi_"}) {
    if (text.starts_with(prefix)) text.erase(0, prefix.size());
  }
  if (const std::optional<ReduceOp> op = parse_reduce_op(text)) return *op;
  refuse_name("reduce op", name, names_of(kAllReduceOps));
}

DType dtype_named(const std::string& name) {
  if (const std::optional<DType> dtype = parse_dtype(lower(name))) return *dtype;
  refuse_name("dtype", name, names_of(kAllDTypes));
}

WireFormat wire_named(const std::string& name) {
  if (const std::optional<WireFormat> format = wire_format_named(lower(name))) return *format;
  refuse_name("wire format", name, names_of(kAllWireFormats));
}

std::optional<uint64_t> parse_tokens(std::string_view text) {
  double number = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string_view suffix = text.substr(static_cast<size_t>(end - text.data()));
  constexpr std::string_view kSuffixes = "KMBT";
  if (problem != std::errc() || suffix.size() > 1) return std::nullopt;
  if (suffix.size() == 1) {
    const size_t power = kSuffixes.find(suffix.front());
    if (power == kSuffixes.npos) return std::nullopt;
    number *= std::pow(1000.0, static_cast<double>(power + 1));
  }
  if (!(number >= 1 && number <= 1e18)) return std::nullopt;
  return static_cast<uint64_t>(std::llround(number));
}

}  // namespace tutti::tool

#include "collectives/interchange/rings.h"

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "collectives/algorithms/over_rings.h"

namespace tutti {

namespace {

constexpr size_t kMostRings = 256;
constexpr size_t kMostRanks = 1024;

// Returns the defect, or an empty string.
std::string problem_of(const std::vector<int32_t>& ring, size_t ranks) {
  if (ring.size() != ranks)
    return cat("has ", ring.size(), " ranks, but the first ring has ", ranks);
  std::vector<bool> seen(ranks);
  for (const int32_t rank : ring) {
    if (rank < 0 || static_cast<size_t>(rank) >= ranks) {
      return cat("has rank ", rank, " of ", ranks);
    }
    if (seen[static_cast<size_t>(rank)]) return cat("has rank ", rank, " twice");
    seen[static_cast<size_t>(rank)] = true;
  }
  return "";
}

std::vector<std::vector<int32_t>> parse(std::string_view text, const std::string& file) {
  const auto refuse = [&](const std::string& what) {
    throw Error(ErrorCode::invalid_argument, what,
                {.where = file, .remedy = "use a file written by `tutti topo --json`"});
  };
  std::vector<std::vector<int32_t>> rings;
  try {
    rings = Json::parse(text).at("rings").get<std::vector<std::vector<int32_t>>>();
  } catch (const Error& error) {
    refuse(error.what());
  }
  if (rings.empty() || rings.front().empty()) refuse("the file has no rings");
  if (rings.size() > kMostRings) refuse(cat(rings.size(), " rings are too many"));
  if (rings.front().size() > kMostRanks) refuse(cat("over ", kMostRanks, " ranks are too many"));
  for (size_t ring = 0; ring < rings.size(); ++ring) {
    const std::string problem = problem_of(rings[ring], rings.front().size());
    if (!problem.empty()) refuse(cat("rings[", ring, "] ", problem));
  }
  return rings;
}

}  // namespace

std::vector<Program> read_rings(std::string_view json, const std::string& file) {
  const std::vector<std::vector<int32_t>> rings = parse(json, file);
  std::vector<Program> programs;
  for (size_t rank = 0; rank < rings.front().size(); ++rank) {
    programs.push_back(algorithms::all_reduce_over_rings(rings, static_cast<int32_t>(rank)));
  }
  return programs;
}

}  // namespace tutti

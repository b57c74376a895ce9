#include "bindings/mpi/report.h"

#include <array>
#include <atomic>
#include <iomanip>
#include <sstream>
#include <string_view>

namespace tutti::mpi {

namespace {

constexpr std::array<std::string_view, kCalls> kCallNames = {"Allreduce",
                                                             "Reduce",
                                                             "Bcast",
                                                             "Allgather",
                                                             "Allgatherv",
                                                             "Gather",
                                                             "Gatherv",
                                                             "Scatter",
                                                             "Scatterv",
                                                             "Alltoall",
                                                             "Alltoallv",
                                                             "Reduce_scatter",
                                                             "Reduce_scatter_block",
                                                             "Scan",
                                                             "Exscan",
                                                             "Barrier"};

constexpr std::array<std::string_view, kFates> kFateNames = {
    "through", "size", "type or op", "communicator", "argument", "not joined"};

std::array<std::array<std::atomic<uint64_t>, kFates>, kCalls> counts;

}  // namespace

std::string_view name(Call call) { return kCallNames[static_cast<size_t>(call)]; }

void count(Call call, Fate fate) {
  counts[static_cast<size_t>(call)][static_cast<size_t>(fate)].fetch_add(1,
                                                                         std::memory_order_relaxed);
}

std::string report() {
  std::ostringstream table;
  bool any = false;
  table << std::left << std::setw(26) << "MPI call";
  for (const std::string_view fate : kFateNames) table << std::right << std::setw(14) << fate;
  table << '\n';
  for (size_t call = 0; call < kCalls; ++call) {
    uint64_t total = 0;
    for (const auto& number : counts[call]) total += number.load(std::memory_order_relaxed);
    if (total == 0) continue;
    any = true;
    table << std::left << "MPI_" << std::setw(22) << kCallNames[call];
    for (const auto& number : counts[call]) {
      table << std::right << std::setw(14) << number.load(std::memory_order_relaxed);
    }
    table << '\n';
  }
  return any ? table.str() : "";
}

}  // namespace tutti::mpi

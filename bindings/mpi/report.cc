#include "bindings/mpi/report.h"

#include <array>
#include <atomic>
#include <cctype>
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
                                                             "Barrier",
                                                             "Win_create",
                                                             "Win_allocate",
                                                             "Win_fence",
                                                             "Win_lock",
                                                             "Win_lock_all",
                                                             "Win_start",
                                                             "Win_post",
                                                             "Win_free",
                                                             "Put",
                                                             "Get",
                                                             "Accumulate",
                                                             "Get_accumulate",
                                                             "Fetch_and_op",
                                                             "Compare_and_swap",
                                                             "Rput",
                                                             "Rget",
                                                             "Raccumulate",
                                                             "Rget_accumulate"};

constexpr std::array<std::string_view, kOutcomes> kOutcomeNames = {
    "through",    "size",     "type or op", "communicator", "first use",
    "persistent", "argument", "not joined", "memory",       "window"};

using Counts = std::array<std::array<std::atomic<uint64_t>, kOutcomes>, kCalls>;
std::array<Counts, kForms> counts;
bool is_atomic = true;

}  // namespace

std::string_view name(Call call) { return kCallNames[static_cast<size_t>(call)]; }

std::string name(Form form, Call call) {
  std::string text(name(call));
  if (form == Form::persistent) return text + "_init";
  if (form == Form::starting) {
    text[0] = static_cast<char>(std::tolower(text[0]));
    return "I" + text;
  }
  return text;
}

void count_atomically(bool atomically) { is_atomic = atomically; }

void count(Form form, Call call, Outcome outcome) {
  std::atomic<uint64_t>& number =
      counts[static_cast<size_t>(form)][static_cast<size_t>(call)][static_cast<size_t>(outcome)];
  if (is_atomic) {
    number.fetch_add(1, std::memory_order_relaxed);
  } else {  // a plain increment is faster than an atomic one
    number.store(number.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
}

std::string report() {
  std::ostringstream table;
  bool any = false;
  table << std::left << std::setw(32) << "MPI call";
  for (const std::string_view outcome : kOutcomeNames)
    table << std::right << std::setw(13) << outcome;
  table << '\n';
  for (size_t form = 0; form < kForms; ++form) {
    for (size_t call = 0; call < kCalls; ++call) {
      const auto& outcomes = counts[form][call];
      uint64_t total = 0;
      for (const auto& number : outcomes) total += number.load(std::memory_order_relaxed);
      if (total == 0) continue;
      any = true;
      table << std::left << "MPI_" << std::setw(28)
            << name(static_cast<Form>(form), static_cast<Call>(call));
      for (const auto& number : outcomes) {
        table << std::right << std::setw(13) << number.load(std::memory_order_relaxed);
      }
      table << '\n';
    }
  }
  return any ? table.str() : "";
}

}  // namespace tutti::mpi

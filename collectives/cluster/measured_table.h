// Tables of measured collectives: the output of nccl-tests (lines of mpirun and Slurm are ignored)
// or CSV.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "collectives/program/program.h"

namespace tutti {

struct MeasuredCall {
  Collective collective = Collective::all_reduce;
  int hosts = 1;
  int gpus = 1;      // number of GPUs per host
  double bytes = 0;  // size of the call, as nccl-tests counts it
  double us = 0;     // time of the out-of-place call, in microseconds
};

struct MeasuredTable {
  // One call for each collective, shape and size, with the median time.
  std::vector<MeasuredCall> calls;
  std::string gpu;  // CUDA's device name; empty if the table does not state it
};

// Values that the caller supplies where the table does not state them.
struct TableDefaults {
  std::optional<Collective> collective;
  std::optional<int> hosts;
  std::optional<int> gpus;
};

// Reads a table. nccl-tests' output lists the ranks with their hosts, and its program's name gives
// the collective. CSV has a header line that names the columns (alternative names in parentheses):
// size_bytes (size, bytes), time_us (oop_time_us, time) or busbw_GBps (oop_busbw_GBps, busbw), and,
// unless `defaults` states the values, collective, nodes (hosts) and gpus (ranks), the number of
// GPUs on all hosts together. `named` returns the collective that a name denotes. Throws
// Error(invalid_argument) that names `file` and the line.
MeasuredTable read_measured_table(const std::string& text, const std::string& file,
                                  const TableDefaults& defaults,
                                  const std::function<Collective(const std::string&)>& named);

}  // namespace tutti

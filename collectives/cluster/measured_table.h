// Tables of measured collectives: what nccl-tests prints (with everything that mpirun and Slurm
// print around it), or CSV.
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
  int gpus = 1;      // of a host
  double bytes = 0;  // as nccl-tests counts them
  double us = 0;     // out of place
};

struct MeasuredTable {
  std::vector<MeasuredCall> calls;  // one for each collective, shape and size: the median
  std::string gpu;                  // as CUDA calls it; empty where the table does not tell
};

// The caller's answers to what a table does not say.
struct TableDefaults {
  std::optional<Collective> collective;
  std::optional<int> hosts;
  std::optional<int> gpus;
};

// nccl-tests lists its ranks with their hosts, and the program's name is that of the collective.
// CSV has a line of names: size_bytes (size, bytes), time_us (oop_time_us, time) or busbw_GBps
// (oop_busbw_GBps, busbw), and where they are not given otherwise collective, nodes (hosts) and
// gpus (ranks: of all hosts). `named` knows collectives by all their names. Throws
// Error(invalid_argument) that names `file` and the line.
MeasuredTable read_measured_table(const std::string& text, const std::string& file,
                                  const TableDefaults& defaults,
                                  const std::function<Collective(const std::string&)>& named);

}  // namespace tutti

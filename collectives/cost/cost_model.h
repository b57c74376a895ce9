// The cost of steps and messages on this machine: the numbers that the walk (cost.h) uses.
//
// A variant of LogGP and parametrised LogP (Kielmann, Bal, Verstoep: Fast Measurement of LogP
// Parameters for Message Passing Platforms, IPDPS 2000): every step occupies its rank's processor
// for a fixed time plus a time per byte, and a message reaches its reader one latency after the
// send. The cost of a byte depends on the size of the call's buffers, that is, on the cache that
// they fit into. Between hosts each byte also takes time on the wire, which all ranks of a host
// share.
//
// `tutti tune` measures these numbers. The defaults come from a two-core virtual machine.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "collectives/cost/prediction_errors.h"
#include "transport/path_class.h"

namespace tutti {

// Cost of a byte, in seconds.
struct ByteCosts {
  double send = 0;         // into a slot or a socket
  double recv = 0;         // out of a slot or a socket
  double recv_reduce = 0;  // out of a slot or a socket, reducing at the same time
  double reduce = 0;       // two operands in local memory, per byte of the result
  double copy = 0;
};

struct LinkCosts {
  // Buffer sizes with byte costs of their own; sizes in between are interpolated.
  static constexpr std::array<uint64_t, 7> kFootprints = {4 << 10, 32 << 10, 256 << 10, 1 << 20,
                                                          4 << 20, 16 << 20, 64 << 20};
  // Times in seconds.
  double call = 0;     // to start and complete a call
  double send = 0;     // per message
  double reader = 0;   // per further reader of the same message
  double recv = 0;     // per message
  double latency = 0;  // from the end of a send until the message reaches its reader
  double local = 0;    // per local step
  double wire = 0;     // per byte that enters or leaves a host; its ranks share the network card
  std::array<ByteCosts, kFootprints.size()> bytes = {};

  ByteCosts at(uint64_t footprint) const;
};

// Costs of programs that run inside a GPU kernel. A block of threads takes the place of the
// processor: it runs a slice's steps one after another. The blocks of a GPU share its link as the
// ranks of a host share its card. The costs of each protocol are LinkCosts, in which `bytes` is the
// time of one block, `wire` the time of the GPU's link, and `call` a kernel launch.
struct GpuCosts {
  LinkCosts simple;   // messages in slots, each with a fence and a flag
  LinkCosts lines;    // 8 bytes with a flag each (NCCL's LL): no fence, half the bandwidth
  double memory = 0;  // seconds per byte that blocks read or write in device memory
  // Seconds per byte on a GPU's link for data that a switch sums or multicasts. 0: no switch does
  // so.
  double multicast = 0;
  int32_t blocks = 1;  // maximum number of blocks of a kernel
  // true: each pair of GPUs has its own link, and `wire` is the time on that link.
  bool mesh = false;
};

struct CostModel {
  LinkCosts shm;
  LinkCosts tcp;
  // Costs of fabrics, if `tutti tune --hosts` measured them.
  std::optional<LinkCosts> ucx;
  std::optional<LinkCosts> ofi;
  // Measured classes of GPU ("h100"). Other classes use published figures (gpu_costs.h).
  std::map<std::string, GpuCosts> gpus;
  double switch_time = 0;  // seconds for a core to switch to another rank
  // The defaults describe another machine, so actual times may be half or twice as long.
  PredictionErrors errors = {{0.5, 0.5, 0.5}};
  int32_t cores = 1;  // number of cores per host

  static CostModel defaults();

  // Returns the path's costs, or TCP's for a fabric that was not measured.
  const LinkCosts& link(PathClass path) const;
  // Returns the path's own costs, to be modified. If a fabric has no costs yet, they are
  // initialised as a copy of link().
  LinkCosts& own_link(PathClass path);
};

// Returns the fabrics whose time, in the geometric mean over message sizes, is below 90% of TCP's,
// the fastest first; nullopt if no fabric was measured.
std::optional<std::vector<PathClass>> fabrics_quicker_than_tcp(const CostModel& model);

// Convert the model to and from JSON on one line. parse_cost_model() throws an
// Error(invalid_argument) that names the defect.
std::string to_json(const CostModel& model);
CostModel parse_cost_model(const std::string& json);
// Returns true for a file that `tutti tune` wrote, even if the file is damaged.
bool is_cost_model(const std::string& path);

// Returns the path of this machine's cost model: TUTTI_TUNE_FILE, or a file in the user's cache
// folder named by a fingerprint of the machine. Empty if the user has no cache folder
// (XDG_CACHE_HOME, HOME) or the setting is "none".
std::string cost_model_file();
// Loads the file cost_model_file(). If it is missing or unusable, returns the defaults with this
// machine's number of cores. Logs a warning if the file is unusable, or if TUTTI_TUNE_FILE names a
// file that does not exist.
CostModel load_cost_model();

}  // namespace tutti

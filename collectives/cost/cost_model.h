// What things cost on this machine: the numbers that the cost walk (cost.h) puts into a program.
//
// In the spirit of LogGP and parametrised LogP (Kielmann, Bal, Verstoep: Fast Measurement of LogP
// Parameters for Message Passing Platforms, IPDPS 2000): every step keeps its rank's processor busy
// for a fixed time and a time per byte, and a message is seen by its reader a latency later. What a
// byte costs depends on how large the call's buffers are, that is, on which cache they fit into.
// Between hosts each byte also takes its time on the wire, which all ranks of a host share.
//
// `tutti tune` measures them; without it the defaults stand, taken on a two-core virtual machine.
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

// Seconds per byte.
struct ByteCosts {
  double send = 0;         // into a slot, or a socket
  double recv = 0;         // out of it
  double recv_reduce = 0;  // out of it, reduced on the way
  double reduce = 0;       // two operands in local memory, per byte of the result
  double copy = 0;
};

struct LinkCosts {
  // Buffers of these sizes have byte costs of their own; in between they are interpolated.
  static constexpr std::array<uint64_t, 7> kFootprints = {4 << 10, 32 << 10, 256 << 10, 1 << 20,
                                                          4 << 20, 16 << 20, 64 << 20};
  // Seconds.
  double call = 0;     // to start and complete a call
  double send = 0;     // per message
  double reader = 0;   // per further reader of the same message
  double recv = 0;     // per message
  double latency = 0;  // from the end of the send until the reader sees it
  double local = 0;    // per local step
  double wire = 0;     // per byte that enters or leaves a host, by one card for all its ranks
  std::array<ByteCosts, kFootprints.size()> bytes = {};

  ByteCosts at(uint64_t footprint) const;
};

// Of programs that run inside a kernel of a GPU. What takes the place of a processor is a block of
// threads, which does a slice's steps one after the other; the blocks of a GPU share its link, as
// the ranks of a host share its card. So each protocol's costs are those of a link: `bytes` is what
// one block takes to pass over them, `wire` what leaves a GPU or enters it, `call` a launch.
struct GpuCosts {
  LinkCosts simple;   // messages in slots, each with a fence and a flag
  LinkCosts lines;    // each 8 bytes with flags of their own (NCCL's LL): no fence, half the link
  double memory = 0;  // per byte that all blocks read or write in the device's memory
  // Per byte on a GPU's link of what a switch adds up or copies to all; 0: none does.
  double multicast = 0;
  int32_t blocks = 1;  // the most that a kernel is to have
  bool mesh = false;   // each pair of GPUs has a link of its own: `wire` is that link's
};

struct CostModel {
  LinkCosts shm;
  LinkCosts tcp;
  // Of fabrics, once `tutti tune --hosts` has measured them.
  std::optional<LinkCosts> ucx;
  std::optional<LinkCosts> ofi;
  // By class of GPU ("h100"), once they have been measured; else published ones stand
  // (gpu_costs.h).
  std::map<std::string, GpuCosts> gpus;
  double switch_time = 0;  // seconds for a core to change over to another rank
  // The defaults are another machine's: the times of this one may be twice as long, or half.
  PredictionErrors errors = {{0.5, 0.5, 0.5}};
  int32_t cores = 1;  // of each host

  static CostModel defaults();

  // Those of TCP for a fabric that was not measured.
  const LinkCosts& link(PathClass path) const;
  // To be measured: begins as link().
  LinkCosts& own_link(PathClass path);
};

// The fabrics by which messages of all sizes take clearly less time than by TCP, in the geometric
// mean, the quickest first. Nothing where no fabric was measured.
std::optional<std::vector<PathClass>> fabrics_quicker_than_tcp(const CostModel& model);

// JSON, on one line. parse() throws Error(invalid_argument) that says what is wrong with the text.
std::string to_json(const CostModel& model);
CostModel parse_cost_model(const std::string& json);
// True for a file that `tutti tune` wrote, or that was meant as one.
bool is_cost_model(const std::string& path);

// Where `tutti tune` keeps this machine's numbers: TUTTI_TUNE_FILE, or a file in the user's cache
// folder, named by a fingerprint of the machine. Empty: there is no such folder, or "none".
std::string cost_model_file();
// From that file; the defaults, for this machine's number of cores, where there is none. A file
// that cannot be used is a warning.
CostModel load_cost_model();

}  // namespace tutti

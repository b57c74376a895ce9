// Options that determine how the ranks that train one model synchronize (`--sync WAY`). There are
// three kinds of ways. All ranks sum gradients, and wait for each other in each step. Or servers
// own and update the values (servers/). Or each rank updates its own values, which are averaged
// from time to time among all or some ranks (averaging/).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/wire_format.h"

namespace tutti::training {

// Ways to synchronize. Checkpoints contain the enumerators' values, so these must not change.
enum class SyncKind {
  allreduce,
  local,
  diloco,
  gossip,
  push_sum,
  easgd,
  fedavg,
  fedprox,
  fedadam,
  server,
  stale,
  async,
  async_gossip
};

// Graph of the senders and receivers in one exchange of `gossip` and `sgp` (averaging/peers.h).
enum class GossipGraph { ring, exponential, random, complete };

struct SyncOptions {
  SyncKind kind = SyncKind::allreduce;
  int64_t every = 1;  // number of updates between two averages, or per federated round
  // local: number of initial updates in which gradients are averaged (post-local SGD).
  int64_t local_after = 0;

  // diloco. `fragments`: number of fragments of the values, which are sent one after the other;
  // `delay`: number of updates between sending a fragment and applying its mean; `own_share`:
  // weight, from 0 to 1, of a rank's own values in the result.
  int64_t fragments = 1;
  int64_t delay = 0;
  double own_share = 0;
  // learning rate of the outer optimizer; for fedadam 0.01 unless --outer-lr is given
  double outer_rate = 0.7;
  double outer_momentum = 0.9;
  WireFormat wire = WireFormat::plain;  // diloco: format of the differences that are sent

  GossipGraph graph = GossipGraph::ring;

  std::optional<double> elasticity;  // easgd: alpha; nullopt: 0.9 / ranks

  // fedavg, fedprox, fedadam. `fraction`: fraction of the clients that are selected for a round;
  // `proximity`: fedprox's mu; `secure_sums`: true to mask each client's values before they are
  // summed (averaging/secure_sum.h).
  double fraction = 1;
  double proximity = 0;
  bool secure_sums = false;

  // server, stale, async: number of ranks that only serve, which are the last ranks; 0: each rank
  // computes and serves.
  int servers = 0;
  int64_t bound = 0;       // stale: maximum staleness of values, in clocks
  int64_t pull_every = 1;  // async: a worker gets the values after every pull_every-th push
  bool damping = false;    // async: divide the learning rate by 1 + staleness of the gradients

  std::string record;  // file to which the order of updates is written (replay/update_order.h)
  std::string replay;  // file from which the order of updates is read and enforced

  // The replica and the trainer set these members for checkpoints and records: the shape of a
  // worker, and a digest of the settings that determine a run's losses.
  int64_t worker_stages = 1;
  int64_t worker_tensor_ranks = 1;
  std::string run;

  // Returns true if servers own the values and send them to the ranks that compute.
  bool has_servers() const {
    return kind == SyncKind::server || kind == SyncKind::stale || kind == SyncKind::async;
  }
  // Returns true if ranks process updates in the order of arrival, which can be recorded and
  // replayed.
  bool has_order() const { return has_servers() || kind == SyncKind::async_gossip; }
  // Returns true if values differ between ranks.
  bool has_own_values() const { return kind != SyncKind::allreduce && !has_servers(); }
  // Returns true if ranks are clients that train in rounds (averaging/federated.h).
  bool is_federated() const {
    return kind == SyncKind::fedavg || kind == SyncKind::fedprox || kind == SyncKind::fedadam;
  }
};

// Returns options that average all values every `updates` updates; if `updates` is 0, options that
// sum gradients.
SyncOptions averages_every(int64_t updates);

// Returns the number of f32 copies of all values that a rank holds for its exchanges.
int64_t copies_of_values(const SyncOptions& options);

// Sets the members that `text` describes: allreduce, ps[:S], ssp:B[:S], async[:S], local:K,
// post-local:K@STEP, diloco:H[,P[,TAU[,ALPHA]]], gossip:GRAPH, sgp[:GRAPH], adpsgd,
// easgd:K[,ALPHA], fedavg:K[,FRACTION], fedprox:K,MU[,FRACTION], fedadam:K[,FRACTION]. Keeps
// outer_rate, outer_momentum, wire, secure_sums, pull_every, damping, record, replay and run, and
// resets all other members. Throws Error(invalid_argument) for other texts.
void set_way(SyncOptions& options, const std::string& text);
// Returns the text that set_way() parses.
std::string text_of(const SyncOptions& options);

}  // namespace tutti::training

// The way in which ranks that train one model synchronize (`--sync WAY`): by sums of gradients, for
// which all ranks wait in each step; by servers, which own and update the values (servers/); or by
// values that differ between ranks and are averaged now and then, among all or some ranks
// (averaging/).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/wire_format.h"

namespace tutti::training {

// Checkpoints contain the numbers.
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

// The senders and receivers of one exchange of `gossip` and `sgp` (averaging/peers.h).
enum class GossipGraph { ring, exponential, random, complete };

struct SyncOptions {
  SyncKind kind = SyncKind::allreduce;
  int64_t every = 1;  // updates between two averages; fedavg, fedprox, fedadam: per round
  // local: number of first updates in which gradients are averaged (post-local SGD).
  int64_t local_after = 0;

  // diloco: number of fragments of the values, which are sent one after the other; number of
  // updates between sending a fragment and applying its mean; and weight of a rank's own values
  // then, from 0 to 1.
  int64_t fragments = 1;
  int64_t delay = 0;
  double own_share = 0;
  double outer_rate = 0.7;  // also for fedadam, which needs less: 0.01 unless --outer-lr is given
  double outer_momentum = 0.9;
  WireFormat wire = WireFormat::plain;  // for the differences that are sent

  GossipGraph graph = GossipGraph::ring;

  std::optional<double> elasticity;  // easgd: alpha; none: 0.9 / ranks

  // fedavg, fedprox, fedadam: fraction of the clients drawn for a round; fedprox: mu; and masking
  // of each client's values before they are summed (averaging/secure_sum.h).
  double fraction = 1;
  double proximity = 0;
  bool secure_sums = false;

  // server, stale, async: number of last ranks that only serve; 0: each rank computes and serves.
  int servers = 0;
  int64_t bound = 0;       // stale: maximum staleness of values, in clocks
  int64_t pull_every = 1;  // async: gradients that a worker sends per read of the values
  bool damping = false;    // async: divide the learning rate by 1 + staleness

  std::string record;  // file for the order of updates (replay/update_order.h)
  std::string replay;  // such a file, whose order is enforced

  // Set by the replica and the trainer: the shape of a worker, and a digest of the settings that
  // determine a run's losses, for records.
  int64_t worker_stages = 1;
  int64_t worker_tensor_ranks = 1;
  std::string run;

  // True if servers own the values and send them to the ranks that compute.
  bool has_servers() const {
    return kind == SyncKind::server || kind == SyncKind::stale || kind == SyncKind::async;
  }
  // True if ranks apply updates in the order of arrival.
  bool has_order() const { return has_servers() || kind == SyncKind::async_gossip; }
  // True if values differ between ranks.
  bool has_own_values() const { return kind != SyncKind::allreduce && !has_servers(); }
  // True if ranks are clients that train in rounds (averaging/federated.h).
  bool is_federated() const {
    return kind == SyncKind::fedavg || kind == SyncKind::fedprox || kind == SyncKind::fedadam;
  }
};

// Averages of all values every `updates` updates; 0: sums of gradients.
SyncOptions averages_every(int64_t updates);

// Number of f32 copies of all values that a rank holds for its exchanges.
int64_t copies_of_values(const SyncOptions& options);

// Parses a text: allreduce, ps[:S], ssp:B[:S], async[:S], local:K, post-local:K@STEP,
// diloco:H[,P[,TAU[,ALPHA]]], gossip:GRAPH, sgp[:GRAPH], adpsgd, easgd:K[,ALPHA],
// fedavg:K[,FRACTION], fedprox:K,MU[,FRACTION], fedadam:K[,FRACTION]. Other members are unchanged.
// Throws Error(invalid_argument).
void set_way(SyncOptions& options, const std::string& text);
// The inverse of set_way().
std::string text_of(const SyncOptions& options);

}  // namespace tutti::training

// How ranks that train one model keep together (`--sync WAY`): by sums of gradients, in which all
// wait for all in each step; by servers, which have the values and update them (servers/); or with
// values of their own, which they average now and then, or with some of the others (averaging/).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/wire_format.h"

namespace tutti::training {

// Checkpoints have the numbers.
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
  int64_t every = 1;  // updates between two averages; fedavg, fedprox, fedadam: of a round
  // local: before that many updates gradients are averaged (post-local SGD).
  int64_t local_after = 0;

  // diloco: parts of the values, which are sent one after the other; updates between sending a
  // fragment and applying its mean; and the weight of a rank's own values then, from 0 to 1.
  int64_t fragments = 1;
  int64_t delay = 0;
  double own_share = 0;
  double outer_rate = 0.7;  // fedadam too, which needs less: 0.01 unless --outer-lr is given
  double outer_momentum = 0.9;
  WireFormat wire = WireFormat::plain;  // of the differences that are sent

  GossipGraph graph = GossipGraph::ring;

  std::optional<double> elasticity;  // easgd: alpha; none: 0.9 / ranks

  // fedavg, fedprox, fedadam: the share of the clients that are drawn for a round; fedprox: mu; and
  // whether each client's values are masked before they are summed (averaging/secure_sum.h).
  double fraction = 1;
  double proximity = 0;
  bool secure_sums = false;

  // server, stale, async: the last ranks, which serve only; 0: each rank computes and serves.
  int servers = 0;
  int64_t bound = 0;       // stale: clocks that values may be behind
  int64_t pull_every = 1;  // async: gradients that a worker sends between two reads of the values
  bool damping = false;    // async: the learning rate is divided by 1 + staleness

  std::string record;  // a file for the order of what is applied (replay/update_order.h)
  std::string replay;  // such a file, whose order is kept

  // What the replica and the trainer fill in: the shape of a worker, and a digest of the settings
  // that a run's losses follow from, for records.
  int64_t worker_stages = 1;
  int64_t worker_tensor_ranks = 1;
  std::string run;

  // True where servers have the values, and tell the ranks that compute.
  bool has_servers() const {
    return kind == SyncKind::server || kind == SyncKind::stale || kind == SyncKind::async;
  }
  // True where ranks apply what others send in the order in which it comes.
  bool has_order() const { return has_servers() || kind == SyncKind::async_gossip; }
  // True where each rank has values of its own.
  bool has_own_values() const { return kind != SyncKind::allreduce && !has_servers(); }
  // True where ranks are clients that train in rounds (averaging/federated.h).
  bool is_federated() const {
    return kind == SyncKind::fedavg || kind == SyncKind::fedprox || kind == SyncKind::fedadam;
  }
};

// Averages of all values every `updates`; 0: sums of gradients.
SyncOptions averages_every(int64_t updates);

// Copies of all values, in f32, that a rank holds for its exchanges.
int64_t copies_of_values(const SyncOptions& options);

// Reads a text: allreduce, ps[:S], ssp:B[:S], async[:S], local:K, post-local:K@STEP,
// diloco:H[,P[,TAU[,ALPHA]]], gossip:GRAPH, sgp[:GRAPH], adpsgd, easgd:K[,ALPHA],
// fedavg:K[,FRACTION], fedprox:K,MU[,FRACTION], fedadam:K[,FRACTION]. What is not in such a text
// stays. Throws Error(invalid_argument).
void set_way(SyncOptions& options, const std::string& text);
// The text that says the same.
std::string text_of(const SyncOptions& options);

}  // namespace tutti::training

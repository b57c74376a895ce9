// How ranks that train one model keep together (`--sync WAY`): by sums of gradients, in which all
// wait for all in each step; or with values of their own, which they average now and then, or with
// some of the others (averaging/).
#pragma once

#include <cstdint>
#include <string>

#include "base/wire_format.h"

namespace tutti::training {

enum class SyncKind { allreduce, local, diloco, gossip, push_sum };

// The senders and receivers of one exchange of `gossip` and `sgp` (averaging/peers.h).
enum class GossipGraph { ring, exponential, random, complete };

struct SyncOptions {
  SyncKind kind = SyncKind::allreduce;
  int64_t every = 1;  // local, diloco: updates between two averages
  // local: before that many updates gradients are averaged (post-local SGD).
  int64_t local_after = 0;

  // diloco: parts of the values, which are sent one after the other; updates between sending a
  // fragment and applying its mean; and the weight of a rank's own values then, from 0 to 1.
  int64_t fragments = 1;
  int64_t delay = 0;
  double own_share = 0;
  double outer_rate = 0.7;
  double outer_momentum = 0.9;
  WireFormat wire = WireFormat::plain;  // of the differences that are sent

  GossipGraph graph = GossipGraph::ring;

  // True where each rank has values of its own.
  bool has_own_values() const { return kind != SyncKind::allreduce; }
};

// Averages of all values every `updates`; 0: sums of gradients.
SyncOptions averages_every(int64_t updates);

// Copies of all values, in f32, that a rank holds for its exchanges.
int64_t copies_of_values(const SyncOptions& options);

// Reads a text: allreduce, local:K, post-local:K@STEP, diloco:H[,P[,TAU[,ALPHA]]],
// gossip:GRAPH, sgp[:GRAPH]. The outer rate, momentum and format stay. Throws
// Error(invalid_argument).
void set_way(SyncOptions& options, const std::string& text);
// The text that says the same.
std::string text_of(const SyncOptions& options);

}  // namespace tutti::training

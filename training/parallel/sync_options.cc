#include "training/parallel/sync_options.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/parse_number.h"
#include "base/printable.h"
#include "base/text.h"
#include "training/core/number_text.h"

namespace tutti::training {
namespace {

constexpr int64_t kMostUpdates = 1'000'000'000;

constexpr std::array<std::pair<std::string_view, GossipGraph>, 4> kGraphs = {
    {{"ring", GossipGraph::ring},
     {"exp", GossipGraph::exponential},
     {"random", GossipGraph::random},
     {"complete", GossipGraph::complete}}};

[[noreturn]] void refuse(const std::string& text, const std::string& cause,
                         const std::string& remedy) {
  throw Error(ErrorCode::invalid_argument, cat("unknown or invalid --sync ", in_quotes(text)),
              {.where = "--sync", .cause = cause, .remedy = remedy});
}

// The values that follow the name and a colon in a --sync text. Empty values are included, and
// rejected when they are parsed.
class Words {
 public:
  Words(const std::string& text, std::string_view separators) : text_(text) {
    const size_t colon = text.find(':');
    if (colon == text.npos) return;
    size_t first = colon + 1;
    for (size_t end = first; first <= text.size(); first = end + 1) {
      end = std::min(text.find_first_of(separators, first), text.size());
      parts_.push_back(text.substr(first, end - first));
    }
  }

  size_t size() const { return parts_.size(); }
  const std::string& at(size_t index) const { return parts_[index]; }

  void count(size_t least, size_t most, const std::string& remedy) const {
    if (size() >= least && size() <= most) return;
    refuse(text_, cat("it has ", size(), " values"), remedy);
  }
  template <typename Number>
  Number number(size_t index, Number least, Number most, std::string_view what) const {
    const std::optional<Number> value = parse_number<Number>(parts_[index]);
    if (value && *value >= least && *value <= most) return *value;
    refuse(text_, cat(what, " cannot be ", in_quotes(parts_[index])),
           cat("use a number from ", least, " to ", most));
  }
  int64_t updates(size_t index, int64_t least, std::string_view what) const {
    return number<int64_t>(index, least, kMostUpdates, what);
  }

 private:
  const std::string& text_;
  std::vector<std::string> parts_;
};

GossipGraph graph_named(const std::string& text, const std::string& name) {
  const auto* const found =
      std::ranges::find(kGraphs, name, &std::pair<std::string_view, GossipGraph>::first);
  if (found != kGraphs.end()) return found->second;
  refuse(text, cat("unknown graph ", in_quotes(name)), "use ring, exp, random or complete");
}

std::string_view name_of(GossipGraph graph) {
  return std::ranges::find(kGraphs, graph, &std::pair<std::string_view, GossipGraph>::second)
      ->first;
}

std::string servers_text(const SyncOptions& options) {
  return options.servers == 0 ? "" : cat(':', options.servers);
}

void set_diloco(SyncOptions& way, const std::string& text) {
  const Words words(text, ",");
  words.count(1, 4,
              "use diloco:H[,P[,TAU[,ALPHA]]]: updates between averages, fragments, updates until "
              "a fragment's average is applied, weight of a rank's own values");
  way.every = words.updates(0, 1, "the number of updates between averages");
  if (words.size() > 1) way.fragments = words.number<int64_t>(1, 1, way.every, "fragments");
  // The mean of a fragment is applied before the next fragment is sent.
  if (words.size() > 2) {
    way.delay = words.number<int64_t>(2, 0, way.every / way.fragments - 1, "the delay");
  }
  if (words.size() > 3)
    way.own_share = words.number<double>(3, 0, 1, "the weight of a rank's own values");
}

// Parses ps[:S], async[:S] and ssp:B[:S].
void set_servers(SyncOptions& way, const std::string& text) {
  const Words words(text, ":");
  const size_t bounds = way.kind == SyncKind::stale ? 1 : 0;
  words.count(bounds, bounds + 1,
              bounds == 0 ? cat("use ", text.substr(0, text.find(':')), "[:SERVERS]")
                          : "use ssp:BOUND[:SERVERS]");
  constexpr int64_t kMostClocks = 1000;
  if (bounds == 1) way.bound = words.number<int64_t>(0, 0, kMostClocks, "the bound");
  if (words.size() > bounds) {
    way.servers = words.number<int>(bounds, 0, 1'000'000, "the number of servers");
  }
}

void set_local(SyncOptions& way, const std::string& text, bool later) {
  const Words words(text, "@");
  words.count(later ? 2 : 1, later ? 2 : 1, later ? "use post-local:K@STEP" : "use local:K");
  way.every = words.updates(0, 1, "the number of updates between averages");
  if (later) way.local_after = words.updates(1, 0, "the step");
}

void set_easgd(SyncOptions& way, const std::string& text) {
  const Words words(text, ",");
  words.count(1, 2, "use easgd:K[,ALPHA]: updates between exchanges, elastic coefficient");
  way.every = words.updates(0, 1, "the number of updates between exchanges");
  if (words.size() > 1) way.elasticity = words.number<double>(1, 0, 1, "the elastic coefficient");
}

void set_federated(SyncOptions& way, const std::string& text) {
  const Words words(text, ",");
  const size_t needed = way.kind == SyncKind::fedprox ? 2 : 1;
  words.count(needed, needed + 1,
              needed == 2 ? "use fedprox:K,MU[,FRACTION]: updates per round, weight of the "
                            "proximal term, fraction of clients per round"
                          : "use K[,FRACTION]: updates per round, fraction of clients per round");
  way.every = words.updates(0, 1, "the number of updates per round");
  if (needed == 2)
    way.proximity = words.number<double>(1, 0, 1e9, "the weight of the proximal term");
  if (words.size() > needed) {
    way.fraction = words.number<double>(needed, 0, 1, "the fraction of clients");
  }
}

std::string_view federated_name(SyncKind kind) {
  return kind == SyncKind::fedavg ? "fedavg" : kind == SyncKind::fedprox ? "fedprox" : "fedadam";
}

}  // namespace

SyncOptions averages_every(int64_t updates) {
  if (updates == 0) return {};
  return {.kind = SyncKind::local, .every = updates};
}

int64_t copies_of_values(const SyncOptions& options) {
  switch (options.kind) {
    case SyncKind::allreduce:
    case SyncKind::server:
    case SyncKind::stale:
    case SyncKind::async:
    case SyncKind::local:
      return 0;
    case SyncKind::gossip:
      if (options.graph == GossipGraph::complete) return 1;
      return options.graph == GossipGraph::ring ? 3 : 2;
    case SyncKind::diloco:
    case SyncKind::push_sum:
      return 3;
    case SyncKind::async_gossip:
      return 5;
    case SyncKind::easgd:
      return 2;
    case SyncKind::fedavg:
    case SyncKind::fedprox:
    case SyncKind::fedadam: {
      constexpr int64_t kWords = sizeof(uint64_t) / sizeof(float);
      return (options.kind == SyncKind::fedadam ? 4 : 2) + (options.secure_sums ? kWords : 0);
    }
  }
  return 0;
}

void set_way(SyncOptions& options, const std::string& text) {
  const std::string name = text.substr(0, text.find(':'));
  SyncOptions way{.outer_rate = options.outer_rate,
                  .outer_momentum = options.outer_momentum,
                  .wire = options.wire,
                  .secure_sums = options.secure_sums,
                  .pull_every = options.pull_every,
                  .damping = options.damping,
                  .record = options.record,
                  .replay = options.replay,
                  .run = options.run};
  if (name == "allreduce") {
    Words(text, ",").count(0, 0, "use allreduce without a suffix");
  } else if (name == "adpsgd") {
    way.kind = SyncKind::async_gossip;
    Words(text, ",").count(0, 0, "use adpsgd without a suffix");
  } else if (name == "ps" || name == "ssp" || name == "async") {
    way.kind = name == "ps" ? SyncKind::server : name == "ssp" ? SyncKind::stale : SyncKind::async;
    set_servers(way, text);
  } else if (name == "local" || name == "post-local") {
    way.kind = SyncKind::local;
    set_local(way, text, name == "post-local");
  } else if (name == "diloco") {
    way.kind = SyncKind::diloco;
    set_diloco(way, text);
  } else if (name == "gossip" || name == "sgp") {
    way.kind = name == "sgp" ? SyncKind::push_sum : SyncKind::gossip;
    const Words words(text, ",");
    words.count(name == "sgp" ? 0 : 1, 1, cat("use ", name, ":exp, or another graph"));
    way.graph = words.size() == 0 ? GossipGraph::exponential : graph_named(text, words.at(0));
    const bool one_target =
        way.graph == GossipGraph::exponential || way.graph == GossipGraph::random;
    if (way.kind == SyncKind::push_sum && !one_target) {
      refuse(text, "in sgp each rank pushes to a single peer", "use sgp:exp or sgp:random");
    }
  } else if (name == "easgd") {
    way.kind = SyncKind::easgd;
    set_easgd(way, text);
  } else if (name == "fedavg" || name == "fedprox" || name == "fedadam") {
    way.kind = name == "fedavg"    ? SyncKind::fedavg
               : name == "fedprox" ? SyncKind::fedprox
                                   : SyncKind::fedadam;
    set_federated(way, text);
  } else {
    refuse(text, "there is no such method",
           "use allreduce, ps, ssp:BOUND, async, local:K, post-local:K@STEP, diloco:H, "
           "gossip:ring, gossip:exp, gossip:random, gossip:complete, sgp, adpsgd, easgd:K, "
           "fedavg:K, fedprox:K,MU or fedadam:K");
  }
  options = way;
}

std::string text_of(const SyncOptions& options) {
  switch (options.kind) {
    case SyncKind::allreduce:
      return "allreduce";
    case SyncKind::server:
      return cat("ps", servers_text(options));
    case SyncKind::stale:
      return cat("ssp:", options.bound, servers_text(options));
    case SyncKind::async:
      return cat("async", servers_text(options));
    case SyncKind::local:
      if (options.local_after == 0) return cat("local:", options.every);
      return cat("post-local:", options.every, '@', options.local_after);
    case SyncKind::diloco: {
      const SyncOptions plain;
      if (options.fragments == plain.fragments && options.delay == plain.delay &&
          options.own_share == plain.own_share) {
        return cat("diloco:", options.every);
      }
      return cat("diloco:", options.every, ',', options.fragments, ',', options.delay, ',',
                 shortest_text(options.own_share));
    }
    case SyncKind::gossip:
      return cat("gossip:", name_of(options.graph));
    case SyncKind::async_gossip:
      return "adpsgd";
    case SyncKind::push_sum:
      return cat("sgp:", name_of(options.graph));
    case SyncKind::easgd:
      if (!options.elasticity) return cat("easgd:", options.every);
      return cat("easgd:", options.every, ',', shortest_text(*options.elasticity));
    case SyncKind::fedavg:
    case SyncKind::fedprox:
    case SyncKind::fedadam: {
      std::string text = cat(federated_name(options.kind), ':', options.every);
      if (options.kind == SyncKind::fedprox) text += cat(',', shortest_text(options.proximity));
      if (options.fraction != 1) text += cat(',', shortest_text(options.fraction));
      return text;
    }
  }
  return {};
}

}  // namespace tutti::training

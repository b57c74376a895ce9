#include "collectives/cluster/predict.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "base/error.h"
#include "base/text.h"

namespace tutti {

namespace {

constexpr double kPerUs = 1e3;  // bytes per us at 1 GB/s
// Fraction of a ring's bandwidth that trees reach (NCCL: 0.85 to 0.92).
constexpr double kPartOfTree = 0.9;
// Fraction of the cards' bandwidth that the tree between hosts reaches while a switch sums inside
// the hosts.
constexpr double kPartOfSwitchTree = 0.85;
constexpr double kPartOfLl128 = 0.92;  // 120 of 128 bytes, rounded down
constexpr double kPartOfLl = 0.5;
// Time of a ring step that receives, reduces and sends a whole slice in an all_reduce, relative to
// a step that only forwards (NCCL's "plateau effect of ring").
constexpr double kReducingStep = 1.4;

class Pricing {
 public:
  Pricing(const Cluster& cluster, double bytes)
      : c_(cluster),
        n_(cluster.ranks()),
        hosts_(cluster.hosts),
        gpus_(cluster.gpus),
        bytes_(bytes) {}

  std::vector<ClusterCandidate> candidates(Collective collective) {
    switch (collective) {
      case Collective::all_reduce:
        add_rings(2 * (n_ - 1), 2 * (n_ - 1) / n_, kReducingStep);
        add_trees();
        add_switch();
        break;
      case Collective::all_gather:
      case Collective::reduce_scatter:
        add_rings(n_ - 1, (n_ - 1) / n_);
        break;
      case Collective::broadcast:
      case Collective::reduce:
        add_rings(n_ - 1, n_ > 1 ? 1 : 0);
        break;
      case Collective::all_to_all:
        add_all_to_all();
        break;
      case Collective::gather:
      case Collective::scatter:
        add_rooted();
        break;
      default:
        throw Error(ErrorCode::unsupported,
                    cat(name(collective), " is not one of NCCL's collectives"),
                    {.remedy = "simulate one of Tutti's algorithms on a network: `tutti simulate "
                               "--algorithm NAME --topology FILE`"});
    }
    std::ranges::stable_sort(found_, {}, &ClusterCandidate::time_us);
    return found_;
  }

 private:
  bool has(MessageProtocol protocol) const {
    const auto p = static_cast<size_t>(protocol);
    return (gpus_ == 1 || c_.inside.step_us[p] > 0) && (hosts_ == 1 || c_.between.step_us[p] > 0);
  }

  static double rate(const ClusterLink& link, MessageProtocol protocol) {
    switch (protocol) {
      case MessageProtocol::ll:
        return kPerUs * std::min(kPartOfLl * link.GBps, link.ll_GBps);
      case MessageProtocol::ll128:
        return kPerUs * kPartOfLl128 * link.GBps;
      case MessageProtocol::simple:
        break;
    }
    return kPerUs * link.GBps;
  }

  // Returns the bandwidth of a ring. Between hosts, all cards of a host together carry as many
  // bytes as the link of one GPU.
  double ring_rate(MessageProtocol protocol) const {
    const double inside = rate(c_.inside, protocol);
    const double between = rate(c_.between, protocol);
    if (hosts_ == 1) return inside;
    return gpus_ == 1 ? between : std::min(inside, between);
  }

  void add(std::string_view algorithm, MessageProtocol protocol, double steps_us, double bytes_us) {
    found_.push_back({.algorithm = algorithm,
                      .protocol = protocol,
                      .steps_us = c_.launch_us + steps_us,
                      .bytes_us = bytes_us});
  }

  void add_rings(double steps, double part, double slower = 1) {
    const double between = hosts_ > 1 ? steps * hosts_ / n_ : 0;
    for (const MessageProtocol protocol : kMessageProtocols) {
      if (!has(protocol)) continue;
      const auto p = static_cast<size_t>(protocol);
      const double longer = protocol == MessageProtocol::simple ? slower : 1;
      add("ring", protocol,
          longer * ((steps - between) * c_.inside.step_us[p] + between * c_.between.step_us[p]),
          n_ > 1 ? bytes_ * part / ring_rate(protocol) : 0);
    }
  }

  void add_trees() {
    if (hosts_ == 1) return;
    for (const MessageProtocol protocol : kMessageProtocols) {
      if (!has(protocol)) continue;
      const auto p = static_cast<size_t>(protocol);
      add("tree", protocol,
          2 * ((gpus_ - 1) * c_.inside.step_us[p] + std::log2(hosts_) * c_.between.step_us[p]),
          bytes_ * 2 * (n_ - 1) / n_ / (kPartOfTree * ring_rate(protocol)));
    }
  }

  void add_switch() {
    if (c_.sums_GBps == 0 || gpus_ < 2) return;
    const auto p = static_cast<size_t>(MessageProtocol::simple);
    const double inside = bytes_ * (gpus_ + 1) / gpus_ / (kPerUs * c_.sums_GBps);
    double between = 0;
    double steps = 0;
    if (hosts_ > 1) {
      const double part = c_.sums_between ? 1 : 2 * (hosts_ - 1) / hosts_;
      between = bytes_ * part / (kPartOfSwitchTree * rate(c_.between, MessageProtocol::simple));
      steps = 2 * (c_.sums_between ? 1 : std::log2(hosts_)) * c_.between.step_us[p];
    }
    add("switch", MessageProtocol::simple, c_.sums_us + steps, std::max(inside, between));
  }

  double far() const { return n_ - gpus_; }

  void add_all_to_all() {
    const double each = bytes_ / n_;
    const double inside = each * (gpus_ - 1) / (kPerUs * c_.inside.all_to_all * c_.inside.GBps);
    const double between =
        hosts_ > 1 ? each * far() * gpus_ / (kPerUs * c_.between.all_to_all * c_.between.GBps) : 0;
    add("direct", MessageProtocol::simple,
        (gpus_ - 1) * c_.inside.message_us + far() * c_.between.message_us,
        n_ > 1 ? std::max(gpus_ > 1 ? inside : 0, between) : 0);
  }

  // Adds the algorithm of calls with a root, in which all data passes over the root's link or the
  // root's card.
  void add_rooted() {
    const double each = bytes_ / n_;
    const double inside = gpus_ > 1 ? each * (gpus_ - 1) / (kPerUs * c_.inside.GBps) : 0;
    const double between = hosts_ > 1 ? each * far() * gpus_ / (kPerUs * c_.between.GBps) : 0;
    add("direct", MessageProtocol::simple,
        (gpus_ - 1) * c_.inside.message_us + far() * c_.between.message_us,
        std::max(inside, between));
  }

  const Cluster& c_;
  const double n_;
  const double hosts_;
  const double gpus_;
  const double bytes_;
  std::vector<ClusterCandidate> found_;
};

}  // namespace

ClusterPrediction predict(const Cluster& cluster, Collective collective, double bytes) {
  if (collective == Collective::barrier) return predict(cluster, Collective::all_reduce, 8);
  ClusterPrediction prediction;
  prediction.candidates = Pricing(cluster, bytes).candidates(collective);
  prediction.time_us = prediction.candidates.front().time_us();
  prediction.interval_us = cluster.errors.around(prediction.time_us, bytes);
  return prediction;
}

}  // namespace tutti

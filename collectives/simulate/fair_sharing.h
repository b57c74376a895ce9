// Max-min fair sharing of links among flows: no flow can become faster without slowing down a flow
// that is as slow or slower. So each flow has a bottleneck, a full link on which no flow is faster.
// D. Bertsekas, R. Gallager: Data Networks, section 6.5.2.
//
// After flows begin or end, only the flows that the change can affect are recomputed: first the
// flows whose bottleneck is a link that the change filled or relieved, then the flows that these
// affect, and so on.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tutti {

class FairSharing {
 public:
  using Flow = uint32_t;

  // Starts without flows. `capacities`: bandwidth of each link, in any unit of bytes per time.
  explicit FairSharing(std::vector<double> capacities);

  // Begins a flow over at least one link. Its rate is 0 until settle(). A link listed twice is used
  // twice, so one flow may represent several identical transfers. Its rate is then the rate of each
  // transfer.
  Flow begin(std::span<const int> links);
  void end(Flow flow);
  // Recomputes rates after changes. Calls changed(flow) for each flow whose rate has changed.
  template <typename Changed>
  void settle(const Changed& changed) {
    find_rates();
    for (const Flow flow : members_) {
      if (flows_[flow].rate != flows_[flow].rate_before) changed(flow);
    }
    forget_members();
    for (const Flow flow : alone_) changed(flow);
    alone_.clear();
  }
  double rate(Flow flow) const { return flows_[flow].rate; }
  // Returns the number of (flow, link) visits so far, the cost of the computation.
  int64_t work() const { return work_; }
  // Returns how much of a link's bandwidth is in use.
  double used(int link) const { return links_[static_cast<size_t>(link)].used; }

 private:
  struct Use {  // a flow's use of a link
    uint32_t link;
    uint32_t place;  // index among the link's flows
  };
  struct State {
    std::vector<Use> uses;
    double rate = 0;
    double rate_before = 0;
    uint32_t bottleneck = 0;
    bool is_member = false;  // true: being recomputed
    bool has_rate = false;
  };
  struct Place {
    Flow flow;
    uint32_t use;  // index into the flow's uses
  };
  struct Link {
    double capacity = 0;
    double used = 0;  // bandwidth used by flows that are not being recomputed
    double left = 0;
    uint32_t waiting = 0;      // number of members without a rate yet
    uint32_t bottlenecks = 0;  // number of flows whose bottleneck this link is
    double quickest = 0;       // rate of the fastest member
    double taken = 0;          // bandwidth used by members
    bool is_touched = false;
    bool is_relieved = false;
    std::vector<Place> flows;
  };

  void find_rates();
  bool take_alone(Flow flow);
  void add_member(Flow flow);
  void touch(uint32_t link);
  void add_bottlenecked(uint32_t link);
  void fill();
  void fill_link(uint32_t link, double share);
  bool add_reached();
  bool add_reached(Link& link, uint32_t number);
  void forget_members();

  std::vector<Link> links_;
  std::vector<State> flows_;
  std::vector<Flow> free_;
  std::vector<Flow> begun_;         // flows begun since settle()
  std::vector<Flow> alone_;         // begun flows whose links have room for them without sharing
  std::vector<uint32_t> relieved_;  // links that were full before flows ended
  std::vector<Flow> members_;
  std::vector<uint32_t> touched_;
  std::vector<uint32_t> open_;
  int64_t work_ = 0;
};

}  // namespace tutti

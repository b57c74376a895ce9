// How flows share links: max-min fairly. Every flow is as quick as it can be without slowing one
// that is slower than itself; so each has a bottleneck, a link that is full and on which no flow is
// quicker. D. Bertsekas, R. Gallager: Data Networks, section 6.5.2.
//
// After flows have begun and ended, only those are looked at again that the change can reach: the
// ones with a bottleneck on a link that it filled or relieved, and so on from these.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tutti {

class FairSharing {
 public:
  using Flow = uint32_t;

  // Of each link; any unit of bytes over time.
  explicit FairSharing(std::vector<double> capacities);

  // A flow over these links, of which there is at least one; its rate is 0 until settle(). A link
  // that is there twice is used twice: several transfers that go alike may be one flow, whose rate
  // is that of each of them.
  Flow begin(std::span<const int> links);
  void end(Flow flow);
  // Finds the rates after changes. Calls changed(flow) for each flow whose rate is another one.
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
  // How often a link of a flow was looked at to find rates: what this cost so far.
  int64_t work() const { return work_; }
  // What flows take of a link.
  double used(int link) const { return links_[static_cast<size_t>(link)].used; }

 private:
  struct Use {  // of a link by a flow
    uint32_t link;
    uint32_t place;  // among the link's flows
  };
  struct State {
    std::vector<Use> uses;
    double rate = 0;
    double rate_before = 0;
    uint32_t bottleneck = 0;
    bool is_member = false;  // is looked at
    bool has_rate = false;
  };
  struct Place {
    Flow flow;
    uint32_t use;  // among the flow's
  };
  struct Link {
    double capacity = 0;
    double used = 0;  // by flows that are not members, while rates are looked for
    double left = 0;
    uint32_t waiting = 0;      // members without a rate yet
    uint32_t bottlenecks = 0;  // of how many flows it is the bottleneck
    double quickest = 0;       // member
    double taken = 0;          // by members
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
  std::vector<Flow> begun_;         // since settle()
  std::vector<Flow> alone_;         // of those: what has links of its own, or enough of them
  std::vector<uint32_t> relieved_;  // links that were full
  std::vector<Flow> members_;
  std::vector<uint32_t> touched_;
  std::vector<uint32_t> open_;
  int64_t work_ = 0;
};

}  // namespace tutti

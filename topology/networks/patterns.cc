#include "topology/networks/patterns.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"

namespace tutti {

namespace {

void connect(Graph& graph, int from, int to, const LinkSpeed& speed) {
  graph.connect({.from = from,
                 .to = to,
                 .kind = speed.kind,
                 .GBps = speed.GBps,
                 .latency_us = speed.latency_us});
}

int add_switch(Graph& graph, const LinkSpeed& speed, int host, std::string name) {
  const bool inside = speed.kind != LinkClass::network;
  return graph.add({.kind = inside ? NodeKind::nvlink_switch : NodeKind::network_switch,
                    .host = inside ? host : -1,
                    .number = 0,
                    .name = std::move(name)});
}

constexpr Arc forth(int link) { return 2 * link; }
constexpr Arc back(int link) { return 2 * link + 1; }

class Ring final : public Pattern {
 public:
  Ring(int ends, bool wraps, LinkSpeed speed)
      : ends_(ends), wraps_(wraps && ends > 2), speed_(speed) {}

  int ends() const override { return ends_; }
  int links() const override { return wraps_ ? ends_ : ends_ - 1; }
  bool ends_forward() const override { return true; }
  int choices() const override { return wraps_ ? 2 : 1; }
  bool ends_are_alike() const override { return wraps_ || ends_ <= 2; }

  void build(Graph& graph, std::span<const int> ends, const std::string&) const override {
    for (int link = 0; link < links(); ++link) {
      connect(graph, ends[link], ends[(link + 1) % ends_], speed_);
    }
  }

  void route(int from, int to, int choice, std::vector<Arc>& arcs) const override {
    const int up = (to - from + ends_) % ends_;
    const bool shorter = 2 * up < ends_ || (2 * up == ends_ && from % 2 == 0);
    const bool goes_up = wraps_ ? shorter == (choice == 0) : to > from;
    for (int at = from; at != to;) {
      if (goes_up) {
        arcs.push_back(forth(at));
        at = (at + 1) % ends_;
      } else {
        at = (at + ends_ - 1) % ends_;
        arcs.push_back(back(at));
      }
    }
  }

 private:
  int ends_;
  bool wraps_;
  LinkSpeed speed_;
};

void refuse_beyond(int64_t most, int64_t count, const char* what) {
  if (count <= most) return;
  throw Error(ErrorCode::invalid_argument,
              cat("the network has ", count, ' ', what, ", but at most ", most, " are supported"),
              {.remedy = "use fewer endpoints or fewer parallel links"});
}

class Full final : public Pattern {
 public:
  Full(int ends, LinkSpeed speed) : ends_(ends), speed_(speed) {
    refuse_beyond(kMostLinks, int64_t{ends} * (ends - 1) / 2, "links");
  }

  int ends() const override { return ends_; }
  int links() const override { return ends_ * (ends_ - 1) / 2; }
  bool ends_forward() const override { return true; }
  int choices() const override { return std::max(1, std::min(ends_ - 1, 16)); }

  void build(Graph& graph, std::span<const int> ends, const std::string&) const override {
    for (int a = 0; a < ends_; ++a) {
      for (int b = a + 1; b < ends_; ++b) connect(graph, ends[a], ends[b], speed_);
    }
  }

  void route(int from, int to, int choice, std::vector<Arc>& arcs) const override {
    const int through = (from + choice) % ends_;
    if (choice == 0 || through == to) {
      if (from != to) arcs.push_back(arc(from, to));
    } else {
      arcs.push_back(arc(from, through));
      arcs.push_back(arc(through, to));
    }
  }

 private:
  Arc arc(int from, int to) const {
    const int a = std::min(from, to);
    const int b = std::max(from, to);
    const int link = a * ends_ - a * (a + 1) / 2 + b - a - 1;
    return from < to ? forth(link) : back(link);
  }

  int ends_;
  LinkSpeed speed_;
};

class Switch final : public Pattern {
 public:
  Switch(int ends, LinkSpeed speed) : ends_(ends), speed_(speed) {}

  int ends() const override { return ends_; }
  int links() const override { return ends_; }

  void build(Graph& graph, std::span<const int> ends, const std::string& prefix) const override {
    const int middle = add_switch(graph, speed_, graph.node(ends[0]).host, prefix + "switch");
    for (const int end : ends) connect(graph, end, middle, speed_);
  }

  void route(int from, int to, int, std::vector<Arc>& arcs) const override {
    if (from == to) return;
    arcs.push_back(forth(from));
    arcs.push_back(back(to));
  }

 private:
  int ends_;
  LinkSpeed speed_;
};

// A fat tree. A node of level l is numbered s * W(l) + q: it is in the s-th subtree of M(l) = m1 *
// ... * ml ends, and is the q-th of its W(l) = w1 * ... * wl roots. Its parents have the numbers q
// + y * W(l), y < w(l + 1), in their subtree.
class Tree final : public Pattern {
 public:
  Tree(int ends, std::vector<TreeLevel> levels) : ends_(ends), levels_(std::move(levels)) {
    int64_t ends_beneath = 1;
    int64_t roots = 1;
    int first_link = 0;
    for (const TreeLevel& level : levels_) {
      const int64_t nodes = (ends_ + ends_beneath - 1) / ends_beneath * roots;
      stages_.push_back({ends_beneath, roots, first_link});
      refuse_beyond(1 << 16, level.up, "uplinks per switch");
      refuse_beyond(kMostLinks, first_link + nodes * level.up, "links");
      first_link += static_cast<int>(nodes * level.up);
      ends_beneath = std::min<int64_t>(ends_beneath * level.down, INT32_MAX);
      roots *= level.up;
    }
    links_ = first_link;
    all_roots_ = roots;
    if (ends_beneath >= ends_) return;
    throw Error(ErrorCode::invalid_argument,
                cat("a tree of ", levels_.size(), " levels of switches has room for ", ends_beneath,
                    " ends, not for ", ends_),
                {.remedy = "use switches with more ports, or another level"});
  }

  int ends() const override { return ends_; }
  int links() const override { return links_; }
  int choices() const override { return static_cast<int>(std::min<int64_t>(all_roots_, 64)); }
  // Returns true for a single level of switches: with several, the last switch of a level may have
  // fewer ends.
  bool ends_are_alike() const override { return levels_.size() < 2; }

  void build(Graph& graph, std::span<const int> ends, const std::string& prefix) const override {
    std::vector<int> below(ends.begin(), ends.end());
    for (size_t l = 0; l < levels_.size(); ++l) {
      const TreeLevel& level = levels_[l];
      const int64_t roots = stages_[l].roots;
      const int64_t beneath = stages_[l].ends_beneath * level.down;
      const int64_t count = (ends_ + beneath - 1) / beneath * roots * level.up;
      std::vector<int> here;
      for (int64_t i = 0; i < count; ++i) {
        here.push_back(add_switch(graph, level.speed, -1, cat(prefix, level.name, i)));
      }
      for (size_t node = 0; node < below.size(); ++node) {
        const int64_t subtree = static_cast<int64_t>(node) / roots / level.down;
        const int64_t root = static_cast<int64_t>(node) % roots;
        for (int y = 0; y < level.up; ++y) {
          connect(graph, below[node], here[subtree * roots * level.up + root + y * roots],
                  level.speed);
        }
      }
      below = std::move(here);
    }
  }

  void route(int from, int to, int choice, std::vector<Arc>& arcs) const override {
    size_t top = 0;
    while (top < levels_.size() && subtree(top, from) != subtree(top, to)) ++top;
    const int64_t by = static_cast<int64_t>(to) + choice;
    for (size_t l = 0; l < top; ++l) arcs.push_back(forth(link(l, from, by)));
    for (size_t l = top; l > 0; --l) arcs.push_back(back(link(l - 1, to, by)));
  }

 private:
  struct Stage {  // links below a level of switches
    int64_t ends_beneath;
    int64_t roots;
    int first_link;
  };

  int64_t subtree(size_t level, int end) const {
    return level < stages_.size() ? end / stages_[level].ends_beneath : 0;
  }
  // Returns the link up from level l above this end. The digits of `by` select the parents.
  int link(size_t l, int end, int64_t by) const {
    const Stage& stage = stages_[l];
    const int64_t node = subtree(l, end) * stage.roots + by % stage.roots;
    const int64_t port = by / stage.roots % levels_[l].up;
    return stage.first_link + static_cast<int>(node * levels_[l].up + port);
  }

  int ends_;
  std::vector<TreeLevel> levels_;
  std::vector<Stage> stages_;
  int links_ = 0;
  int64_t all_roots_ = 1;
};

// A dragonfly. Links are numbered in this order: the links between ends and routers, the links
// between routers of one group, the links between groups.
class DragonflyPattern final : public Pattern {
 public:
  explicit DragonflyPattern(const Dragonfly& shape) : s_(shape) {
    for (const int count : {s_.groups, s_.routers, s_.ends, s_.globals}) {
      refuse_beyond(1 << 13, count, "groups, routers per group, or hosts or links per router");
    }
    refuse_beyond(
        kMostLinks,
        int64_t{s_.groups} * s_.routers * (s_.ends + s_.routers) + int64_t{s_.groups} * s_.groups,
        "links");
    if (s_.routers * s_.globals >= s_.groups - 1) return;
    throw Error(ErrorCode::invalid_argument,
                cat("a dragonfly of ", s_.groups, " groups needs ", s_.groups - 1,
                    " links from each group to the others, but has ", s_.routers * s_.globals),
                {.remedy = "raise global=, the links to other groups of a router, or routers="});
  }

  int ends() const override { return s_.groups * s_.routers * s_.ends; }
  int links() const override { return ends() + s_.groups * pairs(s_.routers) + pairs(s_.groups); }
  int choices() const override { return std::max(1, std::min(s_.groups - 1, 16)); }

  void build(Graph& graph, std::span<const int> ends, const std::string& prefix) const override {
    std::vector<int> routers;
    for (int i = 0; i < s_.groups * s_.routers; ++i) {
      routers.push_back(add_switch(graph, s_.end, -1, cat(prefix, "router", i)));
    }
    for (size_t end = 0; end < ends.size(); ++end) {
      connect(graph, ends[end], routers[end / static_cast<size_t>(s_.ends)], s_.end);
    }
    for (int group = 0; group < s_.groups; ++group) {
      for (int a = 0; a < s_.routers; ++a) {
        for (int b = a + 1; b < s_.routers; ++b) {
          connect(graph, routers[group * s_.routers + a], routers[group * s_.routers + b],
                  s_.local);
        }
      }
    }
    for (int a = 0; a < s_.groups; ++a) {
      for (int b = a + 1; b < s_.groups; ++b) {
        connect(graph, routers[a * s_.routers + gate(a, b)], routers[b * s_.routers + gate(b, a)],
                s_.global);
      }
    }
  }

  void route(int from, int to, int choice, std::vector<Arc>& arcs) const override {
    if (from == to) return;
    const int target = to / s_.ends;
    const int through = (target / s_.routers + choice) % s_.groups;
    int router = from / s_.ends;
    arcs.push_back(forth(from));
    if (choice > 0) router = go_to_group(router, through, arcs);
    router = go_to_group(router, target / s_.routers, arcs);
    go_within(router, target, arcs);
    arcs.push_back(back(to));
  }

 private:
  static int pairs(int n) { return n * (n - 1) / 2; }
  // Returns the router of group `from` that has the link to group `to`.
  int gate(int from, int to) const { return (to - from - 1 + s_.groups) % s_.groups / s_.globals; }
  static Arc between(int a, int b, int n, int first) {
    const int low = std::min(a, b);
    const int link = first + low * n - low * (low + 1) / 2 + std::max(a, b) - low - 1;
    return a < b ? forth(link) : back(link);
  }
  int go_within(int router, int to, std::vector<Arc>& arcs) const {
    const int group = router / s_.routers;
    if (router != to) {
      arcs.push_back(between(router % s_.routers, to % s_.routers, s_.routers,
                             ends() + group * pairs(s_.routers)));
    }
    return to;
  }
  int go_to_group(int router, int to, std::vector<Arc>& arcs) const {
    const int group = router / s_.routers;
    if (group == to) return router;
    go_within(router, group * s_.routers + gate(group, to), arcs);
    arcs.push_back(between(group, to, s_.groups, ends() + s_.groups * pairs(s_.routers)));
    return to * s_.routers + gate(to, group);
  }

  Dragonfly s_;
};

}  // namespace

std::unique_ptr<Pattern> ring_pattern(int ends, bool wraps, LinkSpeed speed) {
  return std::make_unique<Ring>(ends, wraps, speed);
}
std::unique_ptr<Pattern> full_pattern(int ends, LinkSpeed speed) {
  return std::make_unique<Full>(ends, speed);
}
std::unique_ptr<Pattern> switch_pattern(int ends, LinkSpeed speed) {
  return std::make_unique<Switch>(ends, speed);
}
std::unique_ptr<Pattern> tree_pattern(int ends, std::vector<TreeLevel> levels) {
  return std::make_unique<Tree>(ends, std::move(levels));
}
std::unique_ptr<Pattern> dragonfly_pattern(const Dragonfly& shape) {
  return std::make_unique<DragonflyPattern>(shape);
}

}  // namespace tutti

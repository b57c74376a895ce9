// All-to-all by leaders: one message from each host to each other host.
//
//   3 hosts of 4 ranks      host 0: 0  1  2  3      host 1: 4  5  6  7      host 2: 8  9  10  11
//
//     inside:   all ranks of host 0 send their blocks for host 1 to rank 1 and those for host 2 to
//               rank 2; blocks for host 0 go to their destinations
//     across:   rank 1 sends rank 4 the 4 x 4 blocks from host 0 to host 1, and gets the reverse
//     inside:   rank 1 sends each rank of host 0 its blocks from host 1
//
// Let there be h hosts of g ranks. On each host, the rank at position b mod g is the leader for
// host b. Each rank thus sends about (h - 1) / g messages to other hosts, instead of h - 1 as in
// the hierarchical all-to-all. The price is a third step, inside hosts. So it is meant for small
// blocks, for which the messages between hosts take most of the time.
//
// The three steps are those of A. Bienz, W. D. Gropp, L. N. Olson: Node Aware Sparse Matrix-Vector
// Multiplication. JPDC 130, 2019.

#include <algorithm>
#include <utility>

#include "collectives/algorithms/algorithms.h"
#include "collectives/algorithms/carriers.h"

namespace tutti::algorithms {

namespace {

struct Host {
  int32_t number;
  int32_t first;
  int32_t size;

  int32_t end() const { return first + size; }
  int32_t leader(const Host& other) const { return first + other.number % size; }
};

std::vector<Host> hosts_of(const Layout& layout) {
  std::vector<Host> hosts;
  for (int32_t number = 0; number < layout.groups(0); ++number) {
    hosts.push_back({number, layout.first(0, number), layout.size(0, number)});
  }
  return hosts;
}

// Maxima over all ranks.
struct Most {
  int32_t fan_out = 0;        // ranks that a rank sends to
  int32_t blocks_within = 0;  // blocks in a message within a host
  int32_t blocks_across = 0;  // blocks in a message between hosts
  int32_t bundles = 0;        // blocks that a leader gathers for other hosts
};

Most most_of(const std::vector<Host>& hosts) {
  Most most;
  for (const Host& own : hosts) {
    const auto size = static_cast<size_t>(own.size);
    std::vector<int32_t> led(size);     // by leader: number of hosts that it leads for
    std::vector<int32_t> blocks(size);  // by leader: number of ranks on those hosts
    for (const Host& other : hosts) {
      if (other.number == own.number) continue;
      const auto position = static_cast<size_t>(own.leader(other) - own.first);
      ++led[position];
      blocks[position] += other.size;
      most.blocks_across = std::max(most.blocks_across, own.size * other.size);
    }
    most.fan_out = std::max(most.fan_out, own.size - 1 + std::ranges::max(led));
    const int32_t largest = std::ranges::max(blocks);
    if (own.size > 1) most.blocks_within = std::max(most.blocks_within, 1 + largest);
    most.bundles = std::max(most.bundles, own.size * largest);
  }
  return most;
}

// Writes one rank's program.
class Writer {
 public:
  explicit Writer(const Shape& shape)
      : rank_(shape.rank),
        hosts_(hosts_of(shape.layout)),
        own_(hosts_[static_cast<size_t>(shape.layout.group_of(0, shape.rank))]) {
    const Most most = most_of(hosts_);
    program_.input_chunks = program_.output_chunks = shape.ranks;
    program_.scratch_chunks = 2 * most.bundles;
    program_.chunks_per_message = std::max(most.blocks_within, most.blocks_across);
    program_.fan_out = most.fan_out;
    incoming_ = most.bundles;
  }

  Program write() {
    gather();
    exchange();
    scatter();
    return std::move(program_);
  }

 private:
  // Calls visit(host, slot) for each host for which `leader`, a rank of this host, is the leader.
  // `slot` is the position of that host's blocks in the leader's scratch.
  template <typename Visit>
  void visit_led(int32_t leader, const Visit& visit) const {
    int32_t slot = 0;
    for (const Host& other : hosts_) {
      if (other.number == own_.number || own_.leader(other) != leader) continue;
      visit(other, slot);
      slot += own_.size * other.size;
    }
  }
  template <typename Visit>
  void visit_neighbours(const Visit& visit) const {
    for (int32_t k = 1; k < own_.size; ++k) {
      visit(own_.first + (rank_ - own_.first + k) % own_.size);
    }
  }
  // Returns where this host's leader for host `to` stores the blocks from rank `from` of this host
  // for host `to`.
  ChunkRange outgoing(int32_t from, const Host& to, int32_t slot) const {
    if (from == rank_) return input(to.first, to.size);
    return scratch(slot + (from - own_.first) * to.size, to.size);
  }
  // Returns where this host's leader for host `from` stores the block from that host's rank at
  // position `i` for rank `to` of this host.
  ChunkRange incoming(const Host& from, int32_t i, int32_t to, int32_t slot) const {
    if (to == rank_) return output(from.first + i);
    return scratch(incoming_ + slot + i * own_.size + to - own_.first);
  }

  void gather() {
    visit_neighbours([&](int32_t to) {
      RangeList blocks = {input(to)};
      visit_led(to,
                [&](const Host& host, int32_t) { append(blocks, input(host.first, host.size)); });
      program_.steps.push_back(send({to}, std::move(blocks)));
    });
    program_.steps.push_back(copy({input(rank_)}, {output(rank_)}));
    visit_neighbours([&](int32_t from) {
      RangeList blocks = {output(from)};
      visit_led(rank_, [&](const Host& host, int32_t slot) {
        append(blocks, outgoing(from, host, slot));
      });
      program_.steps.push_back(recv(from, std::move(blocks)));
    });
  }

  void exchange() {
    visit_led(rank_, [&](const Host& host, int32_t slot) {
      RangeList bundle;
      for (int32_t from = own_.first; from < own_.end(); ++from) {
        append(bundle, outgoing(from, host, slot));
      }
      program_.steps.push_back(send({host.leader(own_)}, std::move(bundle)));
    });
    visit_led(rank_, [&](const Host& host, int32_t slot) {
      RangeList bundle;
      for (int32_t i = 0; i < host.size; ++i) {
        for (int32_t to = own_.first; to < own_.end(); ++to) {
          append(bundle, incoming(host, i, to, slot));
        }
      }
      program_.steps.push_back(recv(host.leader(own_), std::move(bundle)));
    });
  }

  void scatter() {
    visit_neighbours([&](int32_t to) {
      RangeList blocks;
      visit_led(rank_, [&](const Host& host, int32_t slot) {
        for (int32_t i = 0; i < host.size; ++i) append(blocks, incoming(host, i, to, slot));
      });
      if (!blocks.empty()) program_.steps.push_back(send({to}, std::move(blocks)));
    });
    visit_neighbours([&](int32_t from) {
      RangeList blocks;
      visit_led(from,
                [&](const Host& host, int32_t) { append(blocks, output(host.first, host.size)); });
      if (!blocks.empty()) program_.steps.push_back(recv(from, std::move(blocks)));
    });
  }

  const int32_t rank_;
  const std::vector<Host> hosts_;
  const Host own_;
  int32_t incoming_ = 0;  // first scratch chunk of blocks from other hosts
  Program program_;
};

}  // namespace

Algorithm all_to_all_leaders() {
  return {.collective = Collective::all_to_all,
          .name = "hierarchical_leaders",
          .source = "Bienz, Gropp, Olson, JPDC 2019",
          .grade = Grade::canonical,
          .emit = [](const Shape& shape) { return Writer(of_hosts(shape)).write(); },
          .supports = [](const Shape& shape) { return several_groups_only(of_hosts(shape)); }};
}

}  // namespace tutti::algorithms

// Hierarchical all-to-all: blocks change hosts in bundles.
//
//   2 hosts of 3 ranks:     host 0: 0  1  2       host 1: 3  4  5
//
//     inside:   rank 1 gives rank 2 what goes to 2 and to 5, the ranks at its position in each host
//     across:   rank 2 gives rank 5 the blocks of 0, 1 and 2 for rank 5, in one message
//
// With h hosts of g ranks, a rank sends g - 1 messages of h blocks inside and h - 1 of g blocks
// across, not g (h - 1) of one block: fewer, larger messages where they are dear.
//
// J. L. Träff, A. Rougier: MPI Collectives and Datatypes for Hierarchical All-to-All Communication.
// EuroMPI 2014. Also NCCL's PXN.

#include <algorithm>
#include <utility>

#include "collectives/algorithms/algorithms.h"

namespace tutti::algorithms {

namespace {

Program emit(const Shape& shape) {
  const int32_t p = shape.ranks;
  const int32_t g = shape.layout.smallest(0);
  const int32_t hosts = p / g;
  const int32_t host = shape.rank / g;
  const int32_t self = shape.rank % g;
  Program program{.input_chunks = p,
                  .output_chunks = p,
                  .scratch_chunks = p,
                  .chunks_per_message = std::max(g, hosts),
                  .fan_out = g - 1 + hosts - 1};

  // Block h * g + m: to rank m of host h as input; from rank m of this host, to position `self` of
  // host h, as scratch.
  const auto position_in_each_host = [&](int32_t position, Space elsewhere, Space here) {
    RangeList ranges;
    for (int32_t h = 0; h < hosts; ++h) {
      ranges.push_back({h == host ? here : elsewhere, h * g + position, 1});
    }
    return ranges;
  };
  for (int32_t k = 1; k < g; ++k) {
    const int32_t to = (self + k) % g;
    program.steps.push_back(
        send({host * g + to}, position_in_each_host(to, Space::input, Space::input)));
  }
  program.steps.push_back(copy({input(shape.rank)}, {output(shape.rank)}));
  for (int32_t k = 1; k < g; ++k) {
    const int32_t from = (self - k + g) % g;
    program.steps.push_back(
        recv(host * g + from, position_in_each_host(from, Space::scratch, Space::output)));
  }

  for (int32_t k = 1; k < hosts; ++k) {
    const int32_t first = (host + k) % hosts * g;
    RangeList bundle;
    for (int32_t m = 0; m < g; ++m) {
      bundle.push_back(m == self ? input(first + m) : scratch(first + m));
    }
    program.steps.push_back(send({first + self}, std::move(bundle)));
  }
  for (int32_t k = 1; k < hosts; ++k) {
    const int32_t first = (host - k + hosts) % hosts * g;
    program.steps.push_back(recv(first + self, {output(first, g)}));
  }
  return program;
}

}  // namespace

Algorithm all_to_all_hierarchical() {
  return {.collective = Collective::all_to_all,
          .name = "hierarchical",
          .source = "Träff, Rougier, EuroMPI 2014",
          .grade = Grade::canonical,
          .emit = emit,
          .supports = [](const Shape& shape) -> std::string {
            if (shape.layout.levels() == 0 || !shape.layout.even(0)) {
              return "it needs several hosts, or caches or NUMA nodes of one, with equally many "
                     "ranks in each, more than one";
            }
            return "";
          }};
}

}  // namespace tutti::algorithms

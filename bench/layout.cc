#include "bench/layout.h"

#include <algorithm>
#include <memory>
#include <numeric>

#include "bench/pattern.h"
#include "bench/rounding.h"

namespace tutti::bench {

namespace {

uint64_t sum(const std::vector<uint64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), uint64_t{0});
}

bool has_input(const Layout& layout, int rank) {
  const Collective c = layout.collective;
  if (c == Collective::broadcast || c == Collective::scatter) return rank == layout.root;
  return c != Collective::barrier;
}

bool has_output(const Layout& layout, int rank) {
  const Collective c = layout.collective;
  if (c == Collective::reduce || c == Collective::gather) return rank == layout.root;
  return c != Collective::barrier;
}

int previous(const Layout& layout, int rank) { return (rank + layout.ranks - 1) % layout.ranks; }

}  // namespace

uint64_t sum_before(const std::vector<uint64_t>& counts, int rank) {
  return std::accumulate(counts.begin(), counts.begin() + rank, uint64_t{0});
}

uint64_t Layout::block(int from, int to) const {
  if (uneven.empty()) return count;
  if (collective == Collective::all_to_all) return uneven[from * ranks + to];
  return uneven[has_output_blocks(collective) ? from : to];
}

std::vector<uint64_t> Layout::input_counts(int rank) const {
  if (!has_input(*this, rank)) return {};
  if (!has_input_blocks(collective)) return {block(rank, rank)};
  std::vector<uint64_t> counts;
  for (int to = 0; to < ranks; ++to) counts.push_back(block(rank, to));
  return counts;
}

std::vector<uint64_t> Layout::output_counts(int rank) const {
  if (!has_output(*this, rank)) return {};
  if (!has_output_blocks(collective)) return {block(rank, rank)};
  std::vector<uint64_t> counts;
  for (int from = 0; from < ranks; ++from) counts.push_back(block(from, rank));
  return counts;
}

uint64_t Layout::inputs(int rank) const { return sum(input_counts(rank)); }
uint64_t Layout::outputs(int rank) const { return sum(output_counts(rank)); }

uint64_t Layout::total() const {
  const int rank = has_root(collective) ? root : 0;
  return has_input_blocks(collective) ? inputs(rank) : outputs(rank);
}

// Blocks are paired: the second block of a pair receives all or a third of the first one's
// elements.
std::vector<uint64_t> uneven_blocks(Collective collective, int ranks, uint64_t count) {
  const int senders = collective == Collective::all_to_all ? ranks : 1;
  std::vector<uint64_t> blocks(static_cast<size_t>(senders) * ranks, count);
  for (int sender = 0; sender < senders; ++sender) {
    for (int first = 0; first + 1 < ranks; first += 2) {
      const uint64_t moved = (sender + first / 2) % 2 == 0 ? count : count / 3;
      blocks[sender * ranks + first] -= moved;
      blocks[sender * ranks + first + 1] += moved;
    }
  }
  return blocks;
}

std::vector<Part> output_parts(const Layout& layout, int rank) {
  const int p = layout.ranks;
  const uint64_t n = layout.outputs(rank);
  std::vector<Part> parts;
  switch (layout.collective) {
    case Collective::all_reduce:
    case Collective::reduce:
      return {{.combined = p, .count = n}};
    case Collective::reduce_scatter:
      return {{.combined = p, .first = sum_before(layout.input_counts(rank), rank), .count = n}};
    case Collective::broadcast:
      return {{.rank = layout.root, .count = n}};
    case Collective::scatter:
      return {{.rank = layout.root,
               .first = sum_before(layout.input_counts(layout.root), rank),
               .count = n}};
    case Collective::scan:
      return {{.combined = rank + 1, .count = n}};
    case Collective::exscan:
      if (rank > 0) parts.push_back({.combined = rank, .count = n});
      return parts;
    case Collective::send_recv:
      return {{.rank = previous(layout, rank), .count = n}};
    case Collective::barrier:
      return {};
    case Collective::all_gather:
    case Collective::gather:
    case Collective::all_to_all:
      break;
  }
  const std::vector<uint64_t> counts = layout.output_counts(rank);
  const bool sends_blocks = has_input_blocks(layout.collective);
  for (int from = 0; from < static_cast<int>(counts.size()); ++from) {
    const uint64_t first = sends_blocks ? sum_before(layout.input_counts(from), rank) : 0;
    parts.push_back({.rank = from, .first = first, .count = counts[from]});
  }
  return parts;
}

void fill_part(Data data, DType dtype, ReduceOp op, int ranks, const Part& part, void* to) {
  if (data == Data::exact && part.combined == 0) {
    fill_pattern(dtype, op, ranks, part.rank, part.first, part.count, to);
  } else if (data == Data::exact) {
    fill_combined(dtype, op, ranks, part.combined, part.first, part.count, to);
  } else if (part.combined == 0) {
    fill_rounding(dtype, op, ranks, part.rank, part.first, part.count, to);
  } else {
    fill_canonical(dtype, op, ranks, part.combined, part.first, part.count, to);
  }
}

void fill_input(Data data, DType dtype, ReduceOp op, const Layout& layout, int rank, void* input) {
  fill_part(data, dtype, op, layout.ranks, {.rank = rank, .count = layout.inputs(rank)}, input);
}

std::vector<std::byte> expected_output(Data data, DType dtype, ReduceOp op, const Layout& layout,
                                       int rank) {
  const uint64_t size = size_of(dtype);
  std::vector<std::byte> output(layout.outputs(rank) * size, kUntouched);
  uint64_t done = 0;
  for (const Part& part : output_parts(layout, rank)) {
    fill_part(data, dtype, op, layout.ranks, part, output.data() + done * size);
    done += part.count;
  }
  return output;
}

Reduction reduction(Data data, ReduceOp op, int rank) {
  if (op == ReduceOp::premul_sum) {
    return Reduction::premul_sum(data == Data::exact ? pattern_factor(rank)
                                                     : rounding_factor(rank));
  }
  if (op != ReduceOp::user) return op;
  return Reduction::user(
      std::make_shared<const UserOp>(UserOp{.combine = compose, .commutative = false}));
}

std::vector<Request> requests(const Layout& layout, int rank, ConstBuffer input, Buffer output,
                              const Reduction& op) {
  const bool uneven = !layout.uneven.empty();
  const auto input_blocks = [&] { return Blocks::of(layout.input_counts(rank)); };
  const auto output_blocks = [&] { return Blocks::of(layout.output_counts(rank)); };
  const int root = layout.root;
  switch (layout.collective) {
    case Collective::all_reduce:
      return {Request::all_reduce(input, output, op)};
    case Collective::all_gather:
      return {uneven ? Request::all_gatherv(input, output, output_blocks())
                     : Request::all_gather(input, output)};
    case Collective::reduce_scatter:
      return {uneven ? Request::reduce_scatterv(input, output, input_blocks(), op)
                     : Request::reduce_scatter(input, output, op)};
    case Collective::broadcast:
      return {Request::broadcast(input, output, root)};
    case Collective::reduce:
      return {Request::reduce(input, output, op, root)};
    case Collective::gather:
      return {uneven ? Request::gatherv(input, output, output_blocks(), root)
                     : Request::gather(input, output, root)};
    case Collective::scatter:
      return {uneven ? Request::scatterv(input, input_blocks(), output, root)
                     : Request::scatter(input, output, root)};
    case Collective::all_to_all:
      return {uneven ? Request::all_to_allv(input, input_blocks(), output, output_blocks())
                     : Request::all_to_all(input, output)};
    case Collective::scan:
      return {Request::scan(input, output, op)};
    case Collective::exscan:
      return {Request::exscan(input, output, op)};
    case Collective::barrier:
      return {Request::barrier()};
    case Collective::send_recv:
      break;
  }
  if (layout.ranks == 1) return {};
  return {Request::send(input, (rank + 1) % layout.ranks),
          Request::recv(output, previous(layout, rank))};
}

}  // namespace tutti::bench

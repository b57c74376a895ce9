#include "collectives/program/program.h"

#include <algorithm>
#include <sstream>
#include <utility>

namespace tutti {

std::string_view name(Collective collective) {
  switch (collective) {
    case Collective::all_reduce:
      return "all_reduce";
    case Collective::all_gather:
      return "all_gather";
    case Collective::reduce_scatter:
      return "reduce_scatter";
    case Collective::broadcast:
      return "broadcast";
    case Collective::reduce:
      return "reduce";
    case Collective::barrier:
      return "barrier";
    case Collective::send_recv:
      return "send_recv";
    case Collective::gather:
      return "gather";
    case Collective::scatter:
      return "scatter";
    case Collective::all_to_all:
      return "all_to_all";
    case Collective::scan:
      return "scan";
    case Collective::exscan:
      return "exscan";
  }
  return "unknown collective";
}

std::optional<Collective> parse_collective(std::string_view text) {
  for (const Collective collective : kCollectivesWithAlgorithms) {
    if (name(collective) == text) return collective;
  }
  return std::nullopt;
}

ChunkRange input(int32_t first, int32_t count) { return {Space::input, first, count}; }
ChunkRange output(int32_t first, int32_t count) { return {Space::output, first, count}; }
ChunkRange scratch(int32_t first, int32_t count) { return {Space::scratch, first, count}; }

int32_t chunks_per_block(Collective collective, const Program& program, int32_t ranks) {
  switch (collective) {
    case Collective::reduce_scatter:
    case Collective::scatter:
      return program.output_chunks;
    case Collective::all_to_all:
      return program.input_chunks / ranks;
    default:
      return program.input_chunks;
  }
}

int32_t size_classes(Collective collective, const Program& program, int32_t ranks) {
  const bool by_blocks = has_blocks(collective) && collective != Collective::all_to_all;
  const int32_t blocks = by_blocks ? ranks : 1;
  return std::max(1, blocks * chunks_per_block(collective, program, ranks));
}

int32_t size_class(Collective collective, const Program& program, const Shape& shape, Space space,
                   int32_t chunk) {
  // The smaller of the two buffers is this rank's block of the larger one.
  const bool own_block = (space == Space::input && has_output_blocks(collective)) ||
                         (space == Space::output && has_input_blocks(collective));
  const int32_t first =
      own_block ? shape.rank * chunks_per_block(collective, program, shape.ranks) : 0;
  return (first + chunk) % size_classes(collective, program, shape.ranks);
}

// Returns the location. Input and output chunks may alias, as the collective defines; a scratch
// chunk aliases no other chunk.
int64_t location(Collective collective, const Program& program, const Shape& shape, Space space,
                 int32_t chunk) {
  constexpr int64_t kScratch = int64_t{1} << 32;
  if (space == Space::scratch) return kScratch + chunk;
  const bool own_block = (space == Space::input && has_output_blocks(collective)) ||
                         (space == Space::output && has_input_blocks(collective));
  if (!own_block || collective == Collective::all_to_all) return chunk;
  return shape.rank * chunks_per_block(collective, program, shape.ranks) + chunk;
}

Step send(std::vector<int32_t> peers, RangeList src, Wire wire) {
  return {.kind = StepKind::send, .peers = std::move(peers), .src = std::move(src), .wire = wire};
}

Step recv(int32_t peer, RangeList dst, Wire wire) {
  return {.kind = StepKind::recv, .peers = {peer}, .dst = std::move(dst), .wire = wire};
}

Step recv_reduce_left(int32_t peer, RangeList src, RangeList dst, Wire wire) {
  return {.kind = StepKind::recv_reduce,
          .peers = {peer},
          .src = std::move(src),
          .dst = std::move(dst),
          .received_on_left = true,
          .wire = wire};
}

Step recv_reduce_right(int32_t peer, RangeList src, RangeList dst, Wire wire) {
  return {.kind = StepKind::recv_reduce,
          .peers = {peer},
          .src = std::move(src),
          .dst = std::move(dst),
          .received_on_left = false,
          .wire = wire};
}

Step reduce(RangeList a, RangeList b, RangeList dst) {
  return {
      .kind = StepKind::reduce, .src = std::move(a), .src2 = std::move(b), .dst = std::move(dst)};
}

Step copy(RangeList src, RangeList dst) {
  return {.kind = StepKind::copy, .src = std::move(src), .dst = std::move(dst)};
}

bool can_forward(const Step& receive, const Step& send) {
  return receives(receive.kind) && send.kind == StepKind::send && !send.scales &&
         !send.src.empty() && receive.dst == send.src && unrounded(send.src[0]) == send.wire;
}

std::string to_string(const ChunkRange& range) {
  constexpr std::string_view kNames[] = {"input", "output", "scratch"};
  std::ostringstream out;
  out << kNames[static_cast<size_t>(range.space)] << '[' << range.first;
  if (range.count != 1) out << '-' << int64_t{range.first} + range.count - 1;
  out << ']';
  return out.str();
}

namespace {

// Formats ranges as "output[2-5]+scratch[1]", and an empty list as "a token".
std::string text(const RangeList& ranges) {
  if (ranges.empty()) return "a token";
  std::ostringstream out;
  std::string_view separator;
  for (const ChunkRange& range : ranges) {
    out << separator << to_string(range);
    separator = "+";
  }
  return out.str();
}

std::string text(const std::vector<int32_t>& peers) {
  std::ostringstream out;
  std::string_view separator;
  for (const int32_t peer : peers) {
    out << separator << peer;
    separator = ", ";
  }
  return out.str();
}

std::string without_arithmetic(const Step& step) {
  const std::string unrounded = step.wire == Wire::accumulator ? " unrounded" : "";
  switch (step.kind) {
    case StepKind::send:
      return "send " + text(step.src) + unrounded + " to " + text(step.peers);
    case StepKind::recv:
      return "recv " + text(step.dst) + unrounded + " from " + text(step.peers);
    case StepKind::recv_reduce:
      return "recv" + unrounded + " from " + text(step.peers) + ", " + text(step.dst) + " = " +
             (step.received_on_left ? "received op " + text(step.src)
                                    : text(step.src) + " op received");
    case StepKind::reduce:
      return "reduce " + text(step.dst) + " = " + text(step.src) + " op " + text(step.src2);
    case StepKind::copy:
      return "copy " + text(step.src) + " to " + text(step.dst);
  }
  return "unknown step";
}

}  // namespace

std::string to_string(const Step& step) {
  return without_arithmetic(step) + (step.scales ? ", scaled" : "") +
         (step.divides ? ", divided" : "");
}

}  // namespace tutti

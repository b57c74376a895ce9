#include "collectives/program.h"

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
  }
  return "unknown collective";
}

ChunkRange input(int32_t first, int32_t count) { return {Space::input, first, count}; }
ChunkRange output(int32_t first, int32_t count) { return {Space::output, first, count}; }
ChunkRange scratch(int32_t first, int32_t count) { return {Space::scratch, first, count}; }

Step send(std::vector<int32_t> peers, RangeList src) {
  return {.kind = StepKind::send, .peers = std::move(peers), .src = std::move(src)};
}

Step recv(int32_t peer, RangeList dst) {
  return {.kind = StepKind::recv, .peers = {peer}, .dst = std::move(dst)};
}

Step recv_reduce_left(int32_t peer, RangeList src, RangeList dst) {
  return {.kind = StepKind::recv_reduce,
          .peers = {peer},
          .src = std::move(src),
          .dst = std::move(dst),
          .received_on_left = true};
}

Step recv_reduce_right(int32_t peer, RangeList src, RangeList dst) {
  return {.kind = StepKind::recv_reduce,
          .peers = {peer},
          .src = std::move(src),
          .dst = std::move(dst),
          .received_on_left = false};
}

Step reduce(RangeList a, RangeList b, RangeList dst) {
  return {
      .kind = StepKind::reduce, .src = std::move(a), .src2 = std::move(b), .dst = std::move(dst)};
}

Step copy(RangeList src, RangeList dst) {
  return {.kind = StepKind::copy, .src = std::move(src), .dst = std::move(dst)};
}

std::string to_string(const ChunkRange& range) {
  constexpr std::string_view kNames[] = {"input", "output", "scratch"};
  std::ostringstream out;
  out << kNames[static_cast<size_t>(range.space)] << '[' << range.first;
  if (range.count != 1) out << '-' << range.first + range.count - 1;
  out << ']';
  return out.str();
}

namespace {

// "output[2-5]+scratch[1]", "a token".
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

}  // namespace

std::string to_string(const Step& step) {
  switch (step.kind) {
    case StepKind::send:
      return "send " + text(step.src) + " to " + text(step.peers);
    case StepKind::recv:
      return "recv " + text(step.dst) + " from " + text(step.peers);
    case StepKind::recv_reduce:
      return "recv from " + text(step.peers) + ", " + text(step.dst) + " = " +
             (step.received_on_left ? "received op " + text(step.src)
                                    : text(step.src) + " op received");
    case StepKind::reduce:
      return "reduce " + text(step.dst) + " = " + text(step.src) + " op " + text(step.src2);
    case StepKind::copy:
      return "copy " + text(step.src) + " to " + text(step.dst);
  }
  return "unknown step";
}

}  // namespace tutti

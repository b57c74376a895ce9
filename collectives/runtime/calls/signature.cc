#include "collectives/runtime/calls/signature.h"

#include "base/text.h"
#include "collectives/program/algorithm.h"
#include "collectives/request.h"

namespace tutti {

namespace {

// word 0   collective 4 | uneven or own 1 | dtype 5 | op 4 | root 30 | algorithm, low 20
// word 1   count 48 | algorithm, high 16
constexpr int kCountBits = 48;
constexpr int kLowBits = 20;
static_assert(kLowBits + 64 - kCountBits == kAlgorithmIdBits);
static_assert(static_cast<int>(Collective::exscan) < 16 && kEveryDType <= 32 &&
              kAllReduceOps.size() <= 16 && kLargestTag < (1 << 30) - 1);

constexpr uint64_t low(uint64_t word, int bits) { return word & ((uint64_t{1} << bits) - 1); }

// Returns " (the last of 7 values)" for incomplete blocks.
std::string last_of(const Signature& s) {
  if (!is_block(s.dtype) || s.uneven) return "";
  const uint64_t values = s.collective == Collective::send_recv
                              ? s.algorithm
                              : static_cast<uint32_t>(s.root) >> kRootBits;
  return values == 0 ? "" : cat(" (the last of ", values, " values)");
}

}  // namespace

std::array<uint64_t, 2> encode(const Signature& s) {
  return {low(static_cast<uint64_t>(s.collective), 4) | uint64_t{s.uneven || s.own} << 4 |
              low(static_cast<uint64_t>(s.dtype), 5) << 5 |
              low(static_cast<uint64_t>(s.op), 4) << 10 |
              low(static_cast<uint32_t>(s.root), 30) << 14 | s.algorithm << (64 - kLowBits),
          low(s.count, kCountBits) | s.algorithm >> kLowBits << kCountBits};
}

std::array<uint64_t, 2> with_count(std::array<uint64_t, 2> words, uint64_t count) {
  return {words[0], words[1] >> kCountBits << kCountBits | low(count, kCountBits)};
}

Signature decode(const std::array<uint64_t, 2>& words) {
  const auto collective = static_cast<Collective>(low(words[0], 4));
  const bool flag = low(words[0] >> 4, 1) != 0;
  return {.collective = collective,
          .dtype = static_cast<DType>(low(words[0] >> 5, 5)),
          .op = static_cast<ReduceOp>(low(words[0] >> 10, 4)),
          .uneven = flag && collective != Collective::send_recv,
          .own = flag && collective == Collective::send_recv,
          .algorithm = words[0] >> (64 - kLowBits) | words[1] >> kCountBits << kLowBits,
          .root = static_cast<int32_t>(low(words[0] >> 14, 30)),
          .count = low(words[1], kCountBits)};
}

std::string to_string(const Signature& s) {
  if (s.collective > Collective::exscan || static_cast<size_t>(s.dtype) >= kEveryDType ||
      static_cast<size_t>(s.op) >= kAllReduceOps.size()) {
    return "a garbled call";
  }
  if (s.collective == Collective::send_recv && s.own) return "create()";
  if (s.collective == Collective::send_recv) {
    const std::string tag = s.root == 0                          ? ""
                            : s.root > kLargestTag || s.root < 0 ? ", any tag"
                                                                 : cat(", tag ", s.root);
    return cat("send/recv of ", s.count, " ", name(s.dtype), last_of(s), tag);
  }
  std::string text = cat(name(s.collective), s.uneven ? "v" : "");
  if (s.collective != Collective::barrier)
    text += cat(" of ", s.count, " ", name(s.dtype), last_of(s));
  if (reduces(s.collective)) text += cat(", ", name(s.op));
  if (has_root(s.collective)) {
    text += cat(", root ", s.root & ((1 << kRootBits) - 1));
  } else if (s.uneven && s.root != 0) {
    text += cat(", blocks #", s.root);
  }
  if (const Algorithm* algorithm = find_algorithm(s.algorithm)) {
    text += cat(", by ", algorithm->name);
  }
  return text;
}

}  // namespace tutti

#include "collectives/signature.h"

#include "base/text.h"
#include "collectives/algorithm.h"

namespace tutti {

std::array<uint64_t, 2> encode(const Signature& s) {
  return {static_cast<uint64_t>(s.collective) | uint64_t{s.uneven} << 7 |
              static_cast<uint64_t>(s.dtype) << 8 | static_cast<uint64_t>(s.op) << 13 |
              static_cast<uint64_t>(s.algorithm) << 18 |
              static_cast<uint64_t>(static_cast<uint32_t>(s.root)) << 34,
          s.count};
}

Signature decode(const std::array<uint64_t, 2>& words) {
  return {.collective = static_cast<Collective>(words[0] & 0x7f),
          .dtype = static_cast<DType>(words[0] >> 8 & 0x1f),
          .op = static_cast<ReduceOp>(words[0] >> 13 & 0x1f),
          .uneven = (words[0] >> 7 & 1) != 0,
          .algorithm = static_cast<uint16_t>(words[0] >> 18 & 0xffff),
          .root = static_cast<int32_t>(words[0] >> 34),
          .count = words[1]};
}

std::string to_string(const Signature& s) {
  if (s.collective > Collective::exscan || static_cast<size_t>(s.dtype) >= kAllDTypes.size() ||
      static_cast<size_t>(s.op) >= kAllReduceOps.size()) {
    return "a garbled call";
  }
  if (s.collective == Collective::send_recv)
    return cat("send/recv of ", s.count, " ", name(s.dtype));
  std::string text = cat(name(s.collective), s.uneven ? "v" : "");
  if (s.collective != Collective::barrier) text += cat(" of ", s.count, " ", name(s.dtype));
  if (reduces(s.collective)) text += cat(", ", name(s.op));
  if (has_root(s.collective)) {
    text += cat(", root ", s.root);
  } else if (s.uneven && s.root != 0) {
    text += cat(", blocks #", s.root);
  }
  if (const Algorithm* algorithm = find_algorithm(s.algorithm)) {
    text += cat(", by ", algorithm->name);
  }
  return text;
}

}  // namespace tutti

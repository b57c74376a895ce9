#include "collectives/signature.h"

#include "base/text.h"
#include "collectives/algorithm.h"

namespace tutti {

std::array<uint64_t, 2> encode(const Signature& s) {
  return {static_cast<uint64_t>(s.collective) | static_cast<uint64_t>(s.dtype) << 8 |
              static_cast<uint64_t>(s.op) << 16 | static_cast<uint64_t>(s.algorithm) << 24 |
              static_cast<uint64_t>(static_cast<uint32_t>(s.root)) << 32,
          s.count};
}

Signature decode(const std::array<uint64_t, 2>& words) {
  return {.collective = static_cast<Collective>(words[0] & 0xff),
          .dtype = static_cast<DType>(words[0] >> 8 & 0xff),
          .op = static_cast<ReduceOp>(words[0] >> 16 & 0xff),
          .algorithm = static_cast<uint8_t>(words[0] >> 24 & 0xff),
          .root = static_cast<int32_t>(words[0] >> 32),
          .count = words[1]};
}

std::string to_string(const Signature& s) {
  if (s.collective > Collective::send_recv || static_cast<size_t>(s.dtype) >= kAllDTypes.size() ||
      static_cast<size_t>(s.op) >= kAllReduceOps.size()) {
    return "a garbled call";
  }
  if (s.collective == Collective::send_recv)
    return cat("send/recv of ", s.count, " ", name(s.dtype));
  std::string text(name(s.collective));
  if (s.collective != Collective::barrier) text += cat(" of ", s.count, " ", name(s.dtype));
  const bool reduces = s.collective == Collective::all_reduce ||
                       s.collective == Collective::reduce ||
                       s.collective == Collective::reduce_scatter;
  if (reduces) text += cat(", ", name(s.op));
  if (has_root(s.collective)) text += cat(", root ", s.root);
  if (s.algorithm < all_algorithms().size())
    text += cat(", by ", all_algorithms()[s.algorithm].name);
  return text;
}

}  // namespace tutti

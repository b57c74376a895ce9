// Arithmetic of a call's steps: received and local data are combined into results, block by block.

#include <algorithm>

#include "base/copy_bytes.h"
#include "base/stream_copy.h"
#include "collectives/runtime/calls/execution.h"

namespace tutti {

namespace {

// Received data is reduced in blocks of this many elements, each released to the sender while it is
// in the L1 cache.
constexpr uint64_t kBlockElements = 256;
constexpr size_t kWidestElement = 16;  // a pair of 64-bit values; user-defined values may be wider

struct alignas(64) Block {
  std::byte bytes[kBlockElements * kWidestElement];
};

uint64_t elements_of_block(uint64_t element_bytes) {
  return element_bytes <= kWidestElement ? kBlockElements : sizeof(Block) / element_bytes;
}

}  // namespace

// Stores dst = received, received op src, or src op received.
void Execution::take(const Slice& slice, const BoundStep& bound, const std::byte* received) {
  const std::byte* const start = received;
  for (size_t i = 0; i < bound.dst.size(); ++i) {
    const Piece& to = bound.dst[i];
    const uint64_t count = elements_in(slice, to);
    if (count == 0) continue;
    std::byte* const dst = address(slice, to);
    const Operand message{received, bound.widened};
    const auto reduce = [&](const Operand& a, const Operand& b) {
      if (count <= kBlockElements && !bound.computes) {
        combine(dst, a.at, b.at, count, {to.widened, a.widened, b.widened});
      } else {
        compute_blocks(slice, bound, {dst, to.widened, a, b, count, received - start});
      }
    };
    if (bound.kind == StepKind::recv) {
      compute(slice, bound, {dst, to.widened, message, {}, count, received - start});
    } else if (bound.received_on_left) {
      reduce(message, operand(slice, bound.src[i]));
    } else {
      reduce(operand(slice, bound.src[i]), message);
    }
    received += count * width(bound.widened);
  }
}

void Execution::run_reduce(const Slice& slice, const BoundStep& bound) {
  for (size_t i = 0; i < bound.dst.size(); ++i) {
    const Piece& to = bound.dst[i];
    const uint64_t count = elements_in(slice, to);
    if (count == 0) continue;
    compute(slice, bound,
            {address(slice, to), to.widened, operand(slice, bound.src[i]),
             operand(slice, bound.src2[i]), count});
  }
}

void Execution::run_copy(const Slice& slice, const BoundStep& bound) {
  for (size_t i = 0; i < bound.dst.size(); ++i) {
    const Piece& to = bound.dst[i];
    const uint64_t count = elements_in(slice, to);
    std::byte* const dst = address(slice, to);
    const Operand src = operand(slice, bound.src[i]);
    if (count == 0 || (dst == src.at && !bound.computes)) continue;
    if (compiled_->streams && bound.is_result && to.widened == src.widened && !bound.computes) {
      stream_copy(dst, src.at, count * width(to.widened));
      stream_fence();
      continue;
    }
    compute(slice, bound, {dst, to.widened, src, {}, count});
  }
}

void Execution::compute(const Slice& slice, const BoundStep& bound, const Operands& at) {
  if (bound.computes) {
    compute_blocks(slice, bound, at);
  } else if (at.b.at != nullptr) {
    combine(at.dst, at.a.at, at.b.at, at.count, {at.widened, at.a.widened, at.b.widened});
  } else {
    convert(at.dst, at.widened, at.a.at, at.a.widened, at.count);
  }
}

void Execution::compute_blocks(const Slice& slice, const BoundStep& bound, Operands at) {
  const bool in_its_place = at.b.at == nullptr && at.dst == at.a.at;
  const bool streams = compiled_->streams && bound.is_result && !in_its_place;
  const uint64_t most =
      elements_of_block(std::max(compiled_->element_bytes, compiled_->accumulator_bytes));
  Block aside;  // holds a block of a streamed result before it is stored
  while (at.count > 0) {
    const uint64_t block = std::min(at.count, most);
    std::byte* const dst = streams ? aside.bytes : at.dst;
    compute_block(dst, at, block, bound.divides);
    if (streams) stream_copy(at.dst, dst, block * width(at.widened));
    at.count -= block;
    at.dst += block * width(at.widened);
    at.a.at += block * width(at.a.widened);
    if (at.b.at != nullptr) at.b.at += block * width(at.b.widened);
    if (at.received < 0) continue;
    at.received += static_cast<ptrdiff_t>(block * width(bound.widened));
    if (at.count > 0) transport_->used(bound.peer, slice.lane, static_cast<size_t>(at.received));
  }
  if (streams) stream_fence();
}

void Execution::compute_block(std::byte* dst, const Operands& at, uint64_t count,
                              bool divides) const {
  Block product;
  const auto factor_applied = [&](const Operand& operand, std::byte* to) {
    if (!operand.scales) return operand.at;
    scale(to, operand.at, count, compiled_->dtype, compiled_->reduction.factor);
    return static_cast<const std::byte*>(to);
  };
  if (divides) {
    std::byte* const elements = at.widened ? product.bytes : dst;
    mean(elements, at.a.at, at.b.at, count, compiled_->dtype, compiled_->combined,
         {.a = at.a.widened, .b = at.b.widened});
    return elements != dst ? convert(dst, true, elements, false, count) : void();
  }
  if (at.b.at != nullptr) {
    const std::byte* const a = factor_applied(at.a, product.bytes);
    const std::byte* const b = factor_applied(at.b, product.bytes);  // at most one has a factor
    combine(dst, a, b, count, {at.widened, at.a.widened, at.b.widened});
    return;
  }
  const std::byte* const a = factor_applied(at.a, at.widened ? product.bytes : dst);
  if (a != dst) convert(dst, at.widened, a, at.a.widened, count);
}

void Execution::convert(std::byte* dst, bool to_accumulator, const std::byte* src,
                        bool from_accumulator, uint64_t count) const {
  if (to_accumulator == from_accumulator) {
    copy_bytes(dst, src, count * width(to_accumulator));
  } else if (to_accumulator) {
    widen(dst, src, count, compiled_->dtype);
  } else {
    narrow(dst, src, count, compiled_->dtype);
  }
}

}  // namespace tutti

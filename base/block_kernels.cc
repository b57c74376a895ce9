#include "base/block_kernels.h"

#include <array>
#include <cstring>
#include <span>

#include "base/block_format.h"

namespace tutti::block_kernels {

namespace {

using BlockValues = std::array<float, kMostValues>;

// An array that a kernel reads or writes.
template <typename Byte>
struct Array {
  Byte* data;
  bool accumulators;
  DType type;

  size_t step() const { return accumulators ? accumulator_bytes(type) : size_of(type); }
  Byte* at(size_t block) const { return data + block * step(); }
};
using ConstArray = Array<const std::byte>;

void load(const ConstArray& from, size_t block, std::span<float> values) {
  if (from.accumulators) {
    std::memcpy(values.data(), from.at(block), values.size_bytes());
  } else {
    widen(values.data(), from.at(block), 1, from.type);
  }
}

void store(const Array<std::byte>& to, size_t block, std::span<const float> values) {
  if (to.accumulators) {
    std::memcpy(to.at(block), values.data(), values.size_bytes());
  } else {
    narrow(to.at(block), values.data(), 1, to.type);
  }
}

// Calls compute(values of a, values of b) for each block, and stores its result in dst. compute
// leaves the result in its first argument. If `b` is null, the second argument is empty.
template <typename Compute>
void for_each_block(void* dst, const void* a, const void* b, size_t count, DType type,
                    Formats formats, const Compute& compute) {
  const Array<std::byte> to{static_cast<std::byte*>(dst), formats.dst, type};
  const ConstArray left{static_cast<const std::byte*>(a), formats.a, type};
  const ConstArray right{static_cast<const std::byte*>(b), formats.b, type};
  BlockValues first;
  BlockValues second;
  const std::span values(first.data(), values_of(type));
  const std::span others(second.data(), b != nullptr ? values.size() : 0);
  for (size_t block = 0; block < count; ++block) {
    load(left, block, values);
    if (b != nullptr) load(right, block, others);
    compute(values, others);
    store(to, block, values);
  }
}

template <DType kType, ReduceOp kOp>
void reduce_blocks(void* dst, const void* a, const void* b, size_t count, Formats formats) {
  static const ReduceKernel floats = reduce_kernel(DType::f32, kOp);
  for_each_block(dst, a, b, count, kType, formats,
                 [](std::span<float> values, std::span<const float> others) {
                   floats(values.data(), values.data(), others.data(), values.size(), {});
                 });
}

template <DType kType>
ReduceKernel reduce_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::avg:
    case ReduceOp::premul_sum:
      return reduce_blocks<kType, ReduceOp::sum>;
    case ReduceOp::prod:
      return reduce_blocks<kType, ReduceOp::prod>;
    case ReduceOp::min:
      return reduce_blocks<kType, ReduceOp::min>;
    case ReduceOp::max:
      return reduce_blocks<kType, ReduceOp::max>;
    default:
      return nullptr;
  }
}

}  // namespace

ReduceKernel reduce(DType type, ReduceOp op) {
  switch (block_format_of(type)) {
    case BlockFormat::mx8:
      return reduce_of<element_of(BlockFormat::mx8)>(op);
    case BlockFormat::mx4:
      return reduce_of<element_of(BlockFormat::mx4)>(op);
    case BlockFormat::int8:
      return reduce_of<element_of(BlockFormat::int8)>(op);
    case BlockFormat::sign:
      return reduce_of<element_of(BlockFormat::sign)>(op);
  }
  return nullptr;
}

void mean(void* dst, const void* a, const void* b, size_t count, DType type, int ranks,
          Formats formats) {
  for_each_block(dst, a, b, count, type, formats,
                 [ranks](std::span<float> values, std::span<const float> others) {
                   tutti::mean(values.data(), values.data(),
                               others.empty() ? nullptr : others.data(), values.size(), DType::f32,
                               ranks);
                 });
}

void scale(void* dst, const void* src, size_t count, DType type, double factor) {
  for_each_block(dst, src, nullptr, count, type, {},
                 [factor](std::span<float> values, std::span<const float>) {
                   tutti::scale(values.data(), values.data(), values.size(), DType::f32, factor);
                 });
}

}  // namespace tutti::block_kernels

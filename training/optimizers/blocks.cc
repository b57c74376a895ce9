#include "training/optimizers/blocks.h"

#include <algorithm>

#include "base/reduce.h"
#include "base/text.h"
#include "training/optimizers/optimizer_loops.h"
#include "training/random.h"

namespace tutti::training {
namespace {

void store(std::span<const float> values, Tensor row, const OwnedPiece& owned, int64_t first,
           const Slice& slice, const StepOptions& options) {
  if (row.dtype == DType::f32) {
    std::copy(values.begin(), values.end(), row.values<float>().begin());
  } else if (row.dtype == DType::bf16 && options.stochastic_rounding) {
    const uint64_t stream =
        random_bits(owned.spec->stream(), static_cast<uint64_t>(options.step), 0);
    for_each_run(slice, owned.piece.first + first, row.cols,
                 [&](const Slice::Run& run, int64_t at) {
                   optimizer_loops::loops().round_stochastically(
                       values.data() + at, row.values<uint16_t>().data() + at, run.count,
                       options.seed, stream, static_cast<uint64_t>(run.whole));
                 });
  } else {
    narrow(row.data, values.data(), values.size(), row.dtype);
  }
}

template <typename Visit>
void visit_piece(const OwnedPiece& owned, Optimizer::States states, Visit&& visit) {
  std::array<float, kUpdateBlock> value_buffer;
  std::array<float, kUpdateBlock> gradient_buffer;
  for (int64_t begin = 0; begin < owned.piece.count; begin += kUpdateBlock) {
    const int64_t count = std::min(kUpdateBlock, owned.piece.count - begin);
    std::span<float> values;
    if (!owned.master.empty()) {
      values = owned.master.subspan(static_cast<size_t>(begin), static_cast<size_t>(count));
    } else {
      const std::span<const float> copy =
          as_floats(owned.value.col_range(begin, count), value_buffer);
      values = std::span(value_buffer).first(copy.size());
      if (copy.data() != values.data()) std::copy(copy.begin(), copy.end(), values.begin());
    }
    UpdateBlock block{owned, values,
                      as_floats(owned.gradient.col_range(begin, count), gradient_buffer)};
    for (size_t i = 0; i < states.size(); ++i) {
      block.states[i] = states[i].data() + owned.piece.owned_offset + begin;
    }
    visit(block, begin);
  }
}

}  // namespace

void read_blocks(std::span<const OwnedPiece> pieces, Optimizer::States states,
                 const std::function<void(const UpdateBlock&)>& visit) {
  for (const OwnedPiece& owned : pieces) {
    visit_piece(owned, states, [&](const UpdateBlock& block, int64_t) { visit(block); });
  }
}

void update_blocks(std::span<const OwnedPiece> pieces, Optimizer::States states,
                   const StepOptions& options,
                   const std::function<void(const UpdateBlock&)>& visit) {
  for (const OwnedPiece& owned : pieces) {
    const Slice slice = owned.spec->slice();
    visit_piece(owned, states, [&](const UpdateBlock& block, int64_t begin) {
      visit(block);
      if (owned.value.empty()) return;
      store(block.values, owned.value.col_range(begin, block.size()), owned, begin, slice, options);
    });
  }
}

std::span<const float> as_floats(ConstTensor row, std::span<float> buffer) {
  if (row.dtype == DType::f32) return row.values<float>();
  if (row.dtype != DType::f16 && row.dtype != DType::bf16) {
    throw Error(ErrorCode::unsupported, cat("optimizers do not read ", name(row.dtype)),
                {.remedy = "give f16, bf16 or f32"});
  }
  const std::span<float> floats = buffer.first(static_cast<size_t>(row.cols));
  widen(floats.data(), row.data, floats.size(), row.dtype);
  return floats;
}

}  // namespace tutti::training

#include "training/optimizers/blocks.h"

#include <algorithm>
#include <vector>

#include "base/reduce.h"
#include "base/text.h"
#include "training/core/random.h"
#include "training/core/thread_pool.h"
#include "training/kernels/elementwise.h"
#include "training/optimizers/optimizer_loops.h"

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

// Visits elements [first, first + count) of a piece, block by block.
template <typename Visit>
void visit_blocks(const OwnedPiece& owned, int64_t first, int64_t count, Optimizer::States states,
                  Visit&& visit) {
  std::array<float, kUpdateBlock> value_buffer;
  std::array<float, kUpdateBlock> gradient_buffer;
  for (int64_t begin = first; begin < first + count; begin += kUpdateBlock) {
    const int64_t size = std::min(kUpdateBlock, first + count - begin);
    std::span<float> values;
    if (!owned.master.empty()) {
      values = owned.master.subspan(static_cast<size_t>(begin), static_cast<size_t>(size));
    } else {
      const std::span<const float> copy =
          as_floats(owned.value.col_range(begin, size), value_buffer);
      values = std::span(value_buffer).first(copy.size());
      if (copy.data() != values.data()) std::copy(copy.begin(), copy.end(), values.begin());
    }
    UpdateBlock block{owned, begin, values,
                      as_floats(owned.gradient.col_range(begin, size), gradient_buffer)};
    for (size_t i = 0; i < states.size(); ++i) {
      block.states[i] = states[i].data() + owned.first_state() + begin;
    }
    visit(block, begin);
  }
}

// Reports a loop to the observer, if there is one.
class ObservedLoop {
 public:
  ObservedLoop(PieceLoopObserver* observer, std::span<const PieceRange> ranges,
               const PieceParts& parts)
      : observer_(observer) {
    if (observer_ != nullptr) observer_->begin_loop(ranges, parts);
  }
  ~ObservedLoop() {
    if (observer_ != nullptr) observer_->end_loop();
  }
  ObservedLoop(const ObservedLoop&) = delete;
  ObservedLoop& operator=(const ObservedLoop&) = delete;

  void enter(int64_t range) const {
    if (observer_ != nullptr) observer_->enter(range);
  }
  void leave(int64_t range) const {
    if (observer_ != nullptr) observer_->leave(range);
  }

 private:
  PieceLoopObserver* observer_;
};

}  // namespace

void read_blocks(std::span<const OwnedPiece> pieces, Optimizer::States states,
                 const std::function<void(const UpdateBlock&)>& visit) {
  const PieceParts parts{.changes_values = false, .states = !states.empty()};
  parallel_pieces(pieces, parts, [&](const OwnedPiece& owned, int64_t first, int64_t count) {
    visit_blocks(owned, first, count, states,
                 [&](const UpdateBlock& block, int64_t) { visit(block); });
  });
}

void update_blocks(std::span<const OwnedPiece> pieces, Optimizer::States states,
                   const StepOptions& options,
                   const std::function<void(const UpdateBlock&)>& visit) {
  parallel_pieces(pieces, {}, [&](const OwnedPiece& owned, int64_t first, int64_t count) {
    const Slice slice = owned.spec->slice();
    visit_blocks(owned, first, count, states, [&](const UpdateBlock& block, int64_t begin) {
      visit(block);
      if (owned.value.empty()) return;
      const Tensor row = owned.value.col_range(begin, block.size());
      if (row.backend == nullptr) return store(block.values, row, owned, begin, slice, options);
      std::array<float, kUpdateBlock> memory;
      const Tensor here = tensor_at(memory.data(), row.dtype, 1, row.cols);
      store(block.values, here, owned, begin, slice, options);
      copy(here, row);
    });
  });
}

void parallel_pieces(std::span<const OwnedPiece> pieces, const PieceParts& parts,
                     const std::function<void(const OwnedPiece&, int64_t, int64_t)>& visit) {
  std::vector<PieceRange> ranges;
  for (const OwnedPiece& owned : pieces) {
    for (int64_t first = 0; first < owned.piece.count; first += kPieceRange) {
      ranges.push_back({&owned, first, std::min(kPieceRange, owned.piece.count - first)});
    }
  }
  const ObservedLoop loop(pieces.empty() ? nullptr : pieces.front().loops, ranges, parts);
  parallel_for(std::ssize(ranges), [&](int64_t at) {
    const PieceRange& range = ranges[static_cast<size_t>(at)];
    loop.enter(at);
    visit(*range.owned, range.first, range.count);
    loop.leave(at);
  });
}

std::span<const float> as_floats(ConstTensor row, std::span<float> buffer) {
  if (row.dtype == DType::f32 && row.backend == nullptr) return row.values<float>();
  if (row.dtype != DType::f32 && row.dtype != DType::f16 && row.dtype != DType::bf16) {
    throw Error(ErrorCode::unsupported, cat("optimizers do not support ", name(row.dtype)),
                {.remedy = "use f16, bf16 or f32"});
  }
  const std::span<float> floats = buffer.first(static_cast<size_t>(row.cols));
  if (row.backend != nullptr) {
    convert(row, tensor_at(floats.data(), DType::f32, 1, row.cols));
    return floats;
  }
  widen(floats.data(), row.data, floats.size(), row.dtype);
  return floats;
}

}  // namespace tutti::training

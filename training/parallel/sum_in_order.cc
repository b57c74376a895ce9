#include "training/parallel/sum_in_order.h"

#include <vector>

#include "training/core/slices.h"
#include "training/kernels/elementwise.h"

namespace tutti::training {

void sum_in_order(Arena& arena, Communicator& ranks, ConstTensor tensor, const Blocks& blocks,
                  Tensor own) {
  const ArenaScope scope(arena);
  const int size = ranks.size();
  const Tensor terms = arena.take(tensor.dtype, size * own.rows, own.cols);
  const std::vector<uint64_t> counts(static_cast<size_t>(size), static_cast<uint64_t>(own.size()));
  ranks.all_to_allv(as_buffer(tensor), blocks, as_buffer(terms), Blocks::of(counts));
  add_up_in_order(size, [&](int into, int term) {
    const Tensor sum = terms.row_range(into * own.rows, own.rows);
    add(sum, terms.row_range(term * own.rows, own.rows), sum);
  });
  copy(terms.row_range(0, own.rows), own);
}

}  // namespace tutti::training

#include "training/optimizers/gradient_norm.h"

#include <cmath>
#include <mutex>

#include "training/optimizers/blocks.h"
#include "training/optimizers/exact_sum.h"

namespace tutti::training {

double gradient_norm(std::span<const OwnedPiece> pieces, NormReducer& reducer) {
  ExactSum sum;
  std::mutex adding;
  const PieceParts parts{.values = false, .changes_values = false, .states = false};
  parallel_pieces(pieces, parts, [&](const OwnedPiece& owned, int64_t first, int64_t count) {
    if (owned.copy) return;
    ExactSum part;
    add_squares(owned.gradient.col_range(first, count), part);
    const std::lock_guard lock(adding);
    sum.add(part);
  });
  sum_over_owners({&sum, 1}, reducer);
  return std::sqrt(sum.value());
}

double clip_factor(double norm, double max_norm) {
  const double factor = max_norm / (norm + 1e-6);
  return factor > 1 ? 1 : factor;
}

}  // namespace tutti::training

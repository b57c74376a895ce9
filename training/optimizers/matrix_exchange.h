// Interface for exchanging parts of matrices among the ranks that own them, for optimizers that
// need whole matrices.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "training/core/layout.h"
#include "training/core/parameters.h"

namespace tutti::training {

class MatrixExchange {
 public:
  virtual ~MatrixExchange() = default;
  virtual int owners() const = 0;
  virtual int self() const = 0;
  // Returns the pieces of `owner`, in that owner's order. The result is the same on all owners.
  virtual std::vector<Piece> pieces(int owner) const = 0;
  virtual const ParameterSpec& spec(int parameter) const = 0;
  // Collective over all owners. Sends and receives floats: `sent` has sent_counts[owner] floats for
  // each owner, one after the other; `received` has received_counts[owner] floats from each owner,
  // in the same order.
  virtual void exchange(std::span<const float> sent, std::span<const int64_t> sent_counts,
                        std::span<float> received, std::span<const int64_t> received_counts) = 0;
};

// Throws Error(unsupported) unless all buckets are owned by the same ranks.
void require_one_group(const Layout& layout);

}  // namespace tutti::training

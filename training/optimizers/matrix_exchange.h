// How parts of matrices that several ranks own come together, for optimizers that need them whole.
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
  // What an owner has, in its order, and of which parameters: the same on all of them.
  virtual std::vector<Piece> pieces(int owner) const = 0;
  virtual const ParameterSpec& spec(int parameter) const = 0;
  // A collective call of all owners: `sent` has counts[owner] floats for each of them, one after
  // the other, and so has `received` from each.
  virtual void exchange(std::span<const float> sent, std::span<const int64_t> sent_counts,
                        std::span<float> received, std::span<const int64_t> received_counts) = 0;
};

// Throws Error(unsupported) unless all buckets are owned by the same ranks.
void require_one_group(const Layout& layout);

}  // namespace tutti::training

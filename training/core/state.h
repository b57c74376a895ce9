// What the parts of a replica keep from step to step. Each shows it to a visitor, who writes it
// into a checkpoint or reads it from one (snapshot.cc): a part that comes to keep more says so
// itself.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "training/core/owned_piece.h"
#include "training/core/tensor.h"

namespace tutti::training {

// What a row is on the ranks of a group: the same; or each has another, and what matters is their
// sum, or their mean. As many ranks as have saved it get their own again, others equal parts of the
// sum, or the mean.
enum class RowKind { same, summed, averaged };

class StateVisitor {
 public:
  virtual ~StateVisitor() = default;
  // The step after which the state is saved, or was.
  virtual int64_t step() const = 0;
  // Whether what is shown is written into a checkpoint; else it is read from one.
  virtual bool saves() const = 0;
  // Whether there is such a row: always, where it is saved.
  virtual bool has(const std::string& row) const = 0;
  // A number that all ranks have alike ("loss_scaler.scale"). It becomes `otherwise` by a
  // checkpoint that does not say.
  virtual void number(const std::string& name, double& value, double otherwise) = 0;
  virtual void number(const std::string& name, int64_t& value, int64_t otherwise) = 0;
  // Of each owned piece of a parameter 1 x count elements: the tensor KIND.PARAMETER.
  using ValuesOf = std::function<Tensor(const OwnedPiece&)>;
  virtual void pieces(const std::string& kind, const ValuesOf& values_of) = 0;
  // An element for each block of `block` elements of an owned piece's parameter, which no piece and
  // no slice cuts: the tensor KIND.PARAMETER of one dimension. Parameters whose values are empty
  // have none.
  virtual void blocks(const std::string& kind, int64_t block, const ValuesOf& values_of) = 0;
  // A state of a parameter, 1 x count elements, which this rank alone has of those that share it
  // out: the tensor KIND.PARAMETER of that shape.
  virtual void whole(const std::string& kind, int parameter, const std::vector<int64_t>& shape,
                     Tensor values) = 0;
  // 1 x count of f32, or of a narrower type.
  virtual void row(const std::string& name, Tensor values, RowKind kind) = 0;
};

}  // namespace tutti::training

// State that the parts of a replica keep from step to step. Each part shows its state to a visitor,
// which writes it into a checkpoint or reads it from one (snapshot.cc), so a part that gains state
// declares it itself.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "training/core/owned_piece.h"
#include "training/core/tensor.h"

namespace tutti::training {

// Relation between the ranks' copies of a row: equal (`same`); or different, and only their sum or
// mean matters. If as many ranks resume as saved the row, each gets its own values again; otherwise
// each gets an equal part of the sum, or the mean.
enum class RowKind { same, summed, averaged };

class StateVisitor {
 public:
  virtual ~StateVisitor() = default;
  // The step after which the state is saved, or was saved.
  virtual int64_t step() const = 0;
  // True if state is written into a checkpoint; false if it is read from one.
  virtual bool saves() const = 0;
  // True if the checkpoint has such a row; always true when saving.
  virtual bool has(const std::string& row) const = 0;
  // A number that is equal on all ranks ("loss_scaler.scale"). It becomes `otherwise` if the
  // checkpoint does not have it.
  virtual void number(const std::string& name, double& value, double otherwise) = 0;
  virtual void number(const std::string& name, int64_t& value, int64_t otherwise) = 0;
  // For each owned piece of a parameter, 1 x count elements: the tensor KIND.PARAMETER.
  using ValuesOf = std::function<Tensor(const OwnedPiece&)>;
  virtual void pieces(const std::string& kind, const ValuesOf& values_of) = 0;
  // One element for each block of `block` elements of an owned piece's parameter; neither pieces
  // nor slices may cut blocks. It is the tensor KIND.PARAMETER of one dimension. Parameters whose
  // values are empty are skipped.
  virtual void blocks(const std::string& kind, int64_t block, const ValuesOf& values_of) = 0;
  // A state of a whole parameter, 1 x count elements, which only this rank of those that share the
  // parameter has: the tensor KIND.PARAMETER of that shape.
  virtual void whole(const std::string& kind, int parameter, const std::vector<int64_t>& shape,
                     Tensor values) = 0;
  // 1 x count elements of f32, or of a narrower type.
  virtual void row(const std::string& name, Tensor values, RowKind kind) = 0;
};

}  // namespace tutti::training

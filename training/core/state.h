// State that the parts of a replica keep from step to step. Each part passes its state to a
// visitor, which writes it into a checkpoint or reads it from one (snapshot.cc). A part that gains
// state therefore only changes its own code.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "training/core/owned_piece.h"
#include "training/core/tensor.h"

namespace tutti::training {

// Relation between the ranks' copies of a row: all copies are equal (`same`), or they differ and
// only their sum or mean matters. If as many ranks resume as saved the row, each rank gets its own
// values again. Otherwise each rank gets an equal part of the sum, or the mean.
enum class RowKind { same, summed, averaged };

class StateVisitor {
 public:
  virtual ~StateVisitor() = default;
  // Returns the step after which the state is saved, or was saved.
  virtual int64_t step() const = 0;
  // Returns true if state is written into a checkpoint, false if it is read from one.
  virtual bool saves() const = 0;
  // Returns true if the checkpoint has a row of this name; always true when saving.
  virtual bool has(const std::string& row) const = 0;
  // Visits a number that is equal on all ranks ("loss_scaler.scale"). When reading a checkpoint
  // that does not have the number, sets it to `fallback`.
  virtual void number(const std::string& name, double& value, double fallback) = 0;
  virtual void number(const std::string& name, int64_t& value, int64_t fallback) = 0;
  // Returns the 1 x count elements of an owned piece of a parameter, which belong to the tensor
  // KIND.PARAMETER.
  using ValuesOf = std::function<Tensor(const OwnedPiece&)>;
  virtual void pieces(const std::string& kind, const ValuesOf& values_of) = 0;
  // Visits a tensor KIND.PARAMETER of one dimension for each parameter. It has one element for each
  // block of `block` elements of the parameter; neither pieces nor slices may cut blocks.
  // Parameters whose values are empty are skipped.
  virtual void blocks(const std::string& kind, int64_t block, const ValuesOf& values_of) = 0;
  // Visits a state of a whole parameter, 1 x count elements in memory. Among the ranks that share
  // the parameter, only this rank has it. Its tensor is KIND.PARAMETER of shape `shape`.
  virtual void whole(const std::string& kind, int parameter, const std::vector<int64_t>& shape,
                     Tensor values) = 0;
  // Visits a row of 1 x count elements of f32, or of a narrower type.
  virtual void row(const std::string& name, Tensor values, RowKind kind) = 0;
};

}  // namespace tutti::training

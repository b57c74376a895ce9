// A part of a named tensor that a rank owns, for a checkpoint.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "training/checkpoint/manifest.h"
#include "training/checkpoint/tensor_source.h"
#include "training/core/placement.h"
#include "training/core/tensor.h"

namespace tutti::training {

struct TensorPiece {
  std::string name;            // "model.h.0.ln_1.weight", "optimizer.exp_avg.h.0.ln_1.weight", ...
  std::vector<int64_t> shape;  // of the whole tensor
  int64_t first = 0;           // first element of the piece, in the tensor or slice
  ConstTensor data;            // 1 x count
  std::optional<Slice> slice = {};  // a slice of that shape
  // If set, the data are read from it when they are written, and need no memory.
  const TensorSource* source = nullptr;
  // If set, called with each part of the data after it was read, so that pages of files can be
  // released.
  std::function<void(ConstTensor part)> after_reading = {};
};

// Calls read(bytes) for the data, part by part.
void read_parts(const TensorPiece& piece,
                const std::function<void(std::span<const std::byte>)>& read);

// Throws Error(invalid_argument) unless the piece is a part of its tensor.
void check_piece(const TensorPiece& piece);
// The slice that contains the piece.
Slice slice_of(const TensorPiece& piece);

// Description of a piece for the ranks that assemble tensors.
struct DescribedPiece {
  TensorInfo tensor;  // the whole one
  Slice slice;
  int64_t first = 0;
  int64_t count = 0;
  std::string checksum;  // of its bytes, as Checksum::hex(); empty: unknown

  int64_t bytes() const { return count * static_cast<int64_t>(size_of(tensor.dtype)); }
};
Json describe_piece(const TensorPiece& piece);
DescribedPiece described_piece(const Json& description);
// Adds a rank's described pieces to those of other ranks, by tensor name. Throws Error(mismatch) if
// its shape or type of a tensor differs from theirs.
void add_described(const Json& pieces, int rank, std::map<std::string, TensorEntry>& tensors);

}  // namespace tutti::training

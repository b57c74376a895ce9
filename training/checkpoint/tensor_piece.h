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
  std::string name;  // such as "model.h.0.ln_1.weight" or "optimizer.exp_avg.h.0.ln_1.weight"
  std::vector<int64_t> shape;  // shape of the whole tensor
  int64_t first = 0;  // index of the piece's first element in the tensor or, if set, in the slice
  ConstTensor data;   // values of the piece, 1 x count
  // slice of the tensor that contains the piece; unset: the whole tensor
  std::optional<Slice> slice = {};
  // If set, the values are read from this source when the file is written, and occupy no memory
  // before that.
  const TensorSource* source = nullptr;
  // If set, called after each part of the data was read, so that the caller can release its pages.
  std::function<void(ConstTensor part)> after_reading = {};
};

// Calls read(bytes) for the data: once or, if after_reading is set, for one part after the other.
void read_parts(const TensorPiece& piece,
                const std::function<void(std::span<const std::byte>)>& read);

// Throws Error(invalid_argument) unless the piece is a part of its tensor.
void check_piece(const TensorPiece& piece);
// Returns the slice that contains the piece.
Slice slice_of(const TensorPiece& piece);

// The description of a piece, from which other ranks assemble tensors.
struct DescribedPiece {
  TensorInfo tensor;  // the whole tensor
  Slice slice;
  int64_t first = 0;
  int64_t count = 0;
  std::string checksum;  // checksum of the piece's bytes, as Checksum::hex(); empty: unknown

  int64_t bytes() const { return count * static_cast<int64_t>(size_of(tensor.dtype)); }
};
Json describe_piece(const TensorPiece& piece);
DescribedPiece described_piece(const Json& description);
// Adds the pieces that a rank described to `tensors`, which contains the pieces of other ranks
// (key: name of the tensor). Throws Error(mismatch) if this rank and another rank describe a tensor
// with different shapes or types.
void add_described(const Json& pieces, int rank, std::map<std::string, TensorEntry>& tensors);

}  // namespace tutti::training

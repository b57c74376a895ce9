// Where named tensors can be read from, whatever wrote them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "training/checkpoint/safetensors.h"
#include "training/core/placement.h"
#include "training/core/tensor.h"

namespace tutti::training {

// A model's own values are called "model.NAME", by the name of the parameter.
inline constexpr std::string_view kModelPrefix = "model.";
// In a checkpoint, the model's state that is no parameter is called "buffer.NAME".
inline constexpr std::string_view kBufferPrefix = "buffer.";

// One thread at a time.
class TensorSource {
 public:
  virtual ~TensorSource() = default;

  // In alphabetical order.
  virtual std::vector<std::string> names() const = 0;
  // Null where there is none of that name. Lives as long as the source.
  virtual const TensorInfo* find(std::string_view name) const = 0;
  // Elements [first, first + out.cols) of the tensor, counted in row-major order, into `out`, which
  // is 1 x count of any floating-point type (other types: of the tensor's own). Narrower types are
  // rounded to nearest even, and infinite where the value is too large for them. Throws
  // Error(invalid_argument) for a name that is not there and for a range that goes beyond its
  // tensor; and whatever is wrong with a file.
  virtual void read(std::string_view name, int64_t first, Tensor out) const = 0;

  bool has(std::string_view name) const { return find(name) != nullptr; }
};

// Elements [first, first + out.cols) of a slice of the tensor.
void read_slice(const TensorSource& source, std::string_view name, const Slice& slice,
                int64_t first, Tensor out);

// The tensor that read() is asked for, where it has these elements; else the errors above. `where`
// is the source's path.
const TensorInfo& checked_range(const TensorSource& source, const std::string& where,
                                std::string_view name, int64_t first, const Tensor& out);

// Writes all elements of the tensor as the given type. Memory does not grow with it.
void copy_tensor(const TensorSource& source, std::string_view name, DType type,
                 SafetensorsWriter& file);

// out = the values of type `from` at `bytes`, as many as it has, converted as read() says. `bytes`
// needs no alignment.
void convert_elements(const std::byte* bytes, DType from, Tensor out);

// Where a source has state that is no parameter: "buffer.NAME" in a checkpoint, "model.NAME" in a
// file, whose names are plain. Null: nowhere.
const TensorInfo* find_buffer(const TensorSource& source, const std::string& name);

}  // namespace tutti::training

// Interface of sources of named tensors, independent of their origin.
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

// Prefix of a model's parameters: "model.NAME".
inline constexpr std::string_view kModelPrefix = "model.";
// Prefix of a model's other state in a checkpoint: "buffer.NAME".
inline constexpr std::string_view kBufferPrefix = "buffer.";

// Used by one thread at a time.
class TensorSource {
 public:
  virtual ~TensorSource() = default;

  // In alphabetical order.
  virtual std::vector<std::string> names() const = 0;
  // Null for an unknown name. Lives as long as the source.
  virtual const TensorInfo* find(std::string_view name) const = 0;
  // Reads elements [first, first + out.cols) of the tensor, in row-major order, into `out`, which
  // is 1 x count of any floating-point type (other types: only the tensor's own). Narrowing rounds
  // to nearest even, and overflows to infinity. Throws Error(invalid_argument) for an unknown name
  // and for a range outside of the tensor, and errors of the underlying file.
  virtual void read(std::string_view name, int64_t first, Tensor out) const = 0;

  bool has(std::string_view name) const { return find(name) != nullptr; }
};

// Reads elements [first, first + out.cols) of a slice of the tensor.
void read_slice(const TensorSource& source, std::string_view name, const Slice& slice,
                int64_t first, Tensor out);

// Returns the tensor for a read() of these elements, or throws the errors above. `where` is the
// source's path.
const TensorInfo& checked_range(const TensorSource& source, const std::string& where,
                                std::string_view name, int64_t first, const Tensor& out);

// Writes all elements of the tensor, converted to `type`. Memory does not grow with the tensor.
void copy_tensor(const TensorSource& source, std::string_view name, DType type,
                 SafetensorsWriter& file);

// Converts out.cols values of type `from` at `bytes` into `out`, as read() does. `bytes` may be
// unaligned.
void convert_elements(const std::byte* bytes, DType from, Tensor out);

// Finds a model's buffer in a source: "buffer.NAME" in a checkpoint, "model.NAME" in a file with
// plain names. Null if it is missing.
const TensorInfo* find_buffer(const TensorSource& source, const std::string& name);

}  // namespace tutti::training

// Interface to named tensors that can be read in parts, independent of where they are stored.
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
// Prefix of a model's buffers in a checkpoint: "buffer.NAME".
inline constexpr std::string_view kBufferPrefix = "buffer.";

// A set of named tensors. One thread at a time may use it.
class TensorSource {
 public:
  virtual ~TensorSource() = default;

  // Returns the names in alphabetical order.
  virtual std::vector<std::string> names() const = 0;
  // Returns null for an unknown name. The result lives as long as the source.
  virtual const TensorInfo* find(std::string_view name) const = 0;
  // Reads elements [first, first + out.cols) of the tensor, in row-major order, into `out`, which
  // is 1 x count. A floating-point tensor may be read into any floating-point type; other tensors
  // only into their own type. Narrowing rounds to nearest even and overflows to infinity. Throws
  // Error(invalid_argument) for an unknown name or a range outside the tensor, Error(unsupported)
  // for other conversions, and the errors of the underlying file.
  virtual void read(std::string_view name, int64_t first, Tensor out) const = 0;

  bool has(std::string_view name) const { return find(name) != nullptr; }
};

// Reads elements [first, first + out.cols) of a slice of the tensor.
void read_slice(const TensorSource& source, std::string_view name, const Slice& slice,
                int64_t first, Tensor out);

// Returns the description of the tensor if a read() of these elements is valid, otherwise throws as
// read() does. `where` is the source's path, for errors.
const TensorInfo& checked_range(const TensorSource& source, const std::string& where,
                                std::string_view name, int64_t first, const Tensor& out);

// Writes all elements of the tensor to `file`, converted to `type`. Memory use is independent of
// the tensor's size.
void copy_tensor(const TensorSource& source, std::string_view name, DType type,
                 SafetensorsWriter& file);

// Converts out.cols values of type `from`, starting at `bytes`, into `out`, as read() does. `bytes`
// may be unaligned.
void convert_elements(const std::byte* bytes, DType from, Tensor out);

// Finds a model's buffer in a source: "buffer.NAME" in a checkpoint, "model.NAME" in a file with
// plain names. Returns null if it is missing.
const TensorInfo* find_buffer(const TensorSource& source, const std::string& name);

}  // namespace tutti::training

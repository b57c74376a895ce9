// Files of named tensors in the format safetensors (https://github.com/huggingface/safetensors):
//
//   8 bytes   length of the header, little-endian
//   header    JSON: {"NAME": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ...,
//             "__metadata__": {"key": "value", ...}}, blanks at its end
//   data      all tensors, one after the other
//
// The format does not guarantee any alignment of a tensor's bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "training/checkpoint/files.h"

namespace tutti::training {

struct TensorInfo {
  std::string name;
  DType dtype = DType::f32;
  std::vector<int64_t> shape;  // empty for a scalar

  int64_t count() const;  // Returns the number of elements.
  bool operator==(const TensorInfo&) const = default;
};

// Returns the number of elements, or nothing if a dimension is negative or the tensor exceeds the
// address space.
std::optional<int64_t> count_of(const std::vector<int64_t>& shape);

// Returns a shape as text for messages: "768 x 3072", or "one number".
std::string shape_text(const std::vector<int64_t>& shape);

// Returns the type's name in the format: "F32". Throws Error(unsupported) for types that the format
// does not have.
std::string safetensors_name(DType type);
// Returns the type of that name in the format, or nothing if the name is unknown. Reads "BOOL" as
// u8.
std::optional<DType> safetensors_type(std::string_view name);

struct StoredTensor {
  TensorInfo info;
  std::span<const std::byte> bytes;
};

// A file in this format, mapped for reading. Safe for untrusted files: any fault throws
// Error(invalid_argument) that names the file, the tensor and the cause; an unknown type throws
// Error(unsupported). A const object is thread-safe.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::string& path) : SafetensorsFile(MappedFile(path)) {}
  explicit SafetensorsFile(MappedFile file);

  const std::string& path() const { return file_.path(); }
  // Returns the tensors in the order of their bytes in the file.
  const std::vector<StoredTensor>& tensors() const { return tensors_; }
  // Returns null for an unknown name.
  const StoredTensor* find(std::string_view name) const;
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  std::span<const std::byte> bytes() const { return file_.bytes(); }
  // Returns the header with its length field: all bytes before the data.
  std::span<const std::byte> header() const;

 private:
  MappedFile file_;
  std::vector<StoredTensor> tensors_;
  std::map<std::string, size_t, std::less<>> index_;
  std::map<std::string, std::string> metadata_;
};

// Writes a file sequentially: first the description of all tensors, then their bytes. Memory use is
// independent of the file's size. The destructor removes the file unless finish() has returned.
class SafetensorsWriter {
 public:
  SafetensorsWriter(const std::string& path, const std::vector<TensorInfo>& tensors,
                    const std::map<std::string, std::string>& metadata = {});

  // Writes the next bytes of the data. A call may end inside a tensor or span several.
  void write(std::span<const std::byte> bytes) { file_.write(bytes); }
  // Blocks until the file is on the disk. Throws Error(internal) unless all bytes were written.
  void finish();

  // Return the size in bytes and the checksum of the file so far.
  uint64_t size() const { return file_.size(); }
  std::string checksum() const { return file_.checksum(); }
  // Returns the checksum of the bytes written since the last call; the first call returns the
  // checksum of the header.
  std::string take_part_checksum() { return file_.take_part_checksum(); }

 private:
  OutputFile file_;
  uint64_t expected_ = 0;
};

}  // namespace tutti::training

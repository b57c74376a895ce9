// Sequential reading of a file's bytes, with decompression.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace tutti::training {

class ByteSource {
 public:
  virtual ~ByteSource() = default;
  // Reads available bytes, at least 1; returns their number, 0 at the end. Throws Error naming the
  // file.
  virtual size_t read(std::span<char> bytes) = 0;
  // Number of bytes of the file on disk that have been consumed.
  virtual uint64_t position() const = 0;
};

bool is_compressed(const std::string& path);  // by its name: .gz or .zst
// The name without that suffix.
std::string uncompressed_name(const std::string& path);

// Throws Error naming the path if it cannot be read.
std::unique_ptr<ByteSource> open_bytes(const std::string& path);

}  // namespace tutti::training

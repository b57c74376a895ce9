// Reads a file's bytes sequentially, and decompresses them if necessary.
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
  // Reads bytes into `bytes`, at least one unless the file has ended. Returns the number of bytes
  // read, or 0 at the end of the file. Throws Error that names the file.
  virtual size_t read(std::span<char> bytes) = 0;
  // Returns the number of bytes of the file on disk that have been consumed.
  virtual uint64_t position() const = 0;
};

bool is_compressed(const std::string& path);  // Returns true if the name ends with .gz or .zst.
// Returns the name without the suffix .gz or .zst.
std::string uncompressed_name(const std::string& path);

// Opens a file. Throws Error that names the path if it cannot be read.
std::unique_ptr<ByteSource> open_bytes(const std::string& path);

}  // namespace tutti::training

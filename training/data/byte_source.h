// The bytes of a file, which may be compressed, in order and in pieces.
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
  // Fills as much as there is at hand, at least 1 byte; 0: at the end. Throws Error naming the
  // file.
  virtual size_t read(std::span<char> bytes) = 0;
  // How many bytes of the file on disk have been taken so far.
  virtual uint64_t position() const = 0;
};

bool is_compressed(const std::string& path);  // by its name: .gz or .zst
// The name without that ending.
std::string uncompressed_name(const std::string& path);

// Throws Error naming the path where it cannot be read.
std::unique_ptr<ByteSource> open_bytes(const std::string& path);

}  // namespace tutti::training

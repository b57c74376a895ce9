// The IDX files of MNIST and its relatives (yann.lecun.com/exdb/mnist, "The IDX file format"):
// big-endian counts, then bytes. Plain or compressed by gzip.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tutti::training {

// Grey images of one size.
struct IdxImages {
  size_t count = 0;
  size_t rows = 0;
  size_t columns = 0;
  std::vector<uint8_t> pixels;  // count x rows x columns; 0 is background

  // rows x columns of them.
  std::span<const uint8_t> image(size_t index) const {
    return std::span(pixels).subspan(index * rows * columns, rows * columns);
  }
};

// Both throw Error naming the path and the cause: unreadable, damaged or cut off, not IDX, of
// another type or number of dimensions, bytes missing or left over.
IdxImages read_idx_images(const std::string& path);
std::vector<uint8_t> read_idx_labels(const std::string& path);

}  // namespace tutti::training

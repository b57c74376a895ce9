// Reads IDX files of MNIST and similar data sets (yann.lecun.com/exdb/mnist, "The IDX file
// format"): big-endian counts, then bytes. Files are plain or gzip-compressed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tutti::training {

// Grey images of equal size.
struct IdxImages {
  size_t count = 0;
  size_t rows = 0;
  size_t columns = 0;
  std::vector<uint8_t> pixels;  // count x rows x columns; 0 is background

  // Returns the rows x columns pixels of an image.
  std::span<const uint8_t> image(size_t index) const {
    return std::span(pixels).subspan(index * rows * columns, rows * columns);
  }
};

// Read a file of images, or of labels. Throw Error that names the path and the cause: unreadable,
// damaged or truncated, not IDX, another element type or number of dimensions, missing or extra
// bytes.
IdxImages read_idx_images(const std::string& path);
std::vector<uint8_t> read_idx_labels(const std::string& path);

}  // namespace tutti::training

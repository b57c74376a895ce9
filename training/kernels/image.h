// Images as rows of a tensor: one image a row, its pixels line by line, each pixel's channels side
// by side (NHWC), which is what oneDNN is fastest with.
#pragma once

#include <cstdint>

namespace tutti::training {

struct ImageShape {
  int64_t height = 0;
  int64_t width = 0;
  int64_t channels = 0;

  int64_t pixels() const { return height * width; }
  int64_t size() const { return pixels() * channels; }
  bool operator==(const ImageShape&) const = default;
};

// Slides over an image that has `padding` zero (for pooling: absent) pixels around it. Its pixels
// lie `dilation` apart.
struct Window {
  int64_t height = 1;
  int64_t width = 1;
  int64_t stride = 1;
  int64_t padding = 0;
  int64_t dilation = 1;

  // Pixels from its first row (column) to its last, both included.
  int64_t rows_spanned() const { return (height - 1) * dilation + 1; }
  int64_t columns_spanned() const { return (width - 1) * dilation + 1; }
};

// Which windows there are, where the image is a part of a larger one: so many rows and columns of
// them, of which the first begins so many pixels above the image and left of it. Each has a pixel
// of the image, and behind the last one fewer than a stride's are left.
struct WindowTile {
  int64_t top = 0;
  int64_t left = 0;
  int64_t height = 0;
  int64_t width = 0;

  // All that fit into an image by itself. Throws as output_shape().
  static WindowTile all(const ImageShape& input, const Window& window);
};

// What windows over `input` give, with so many channels. Throws Error(invalid_argument) where no
// window fits, and for a window that could lie in the padding alone.
ImageShape output_shape(const ImageShape& input, const Window& window, int64_t channels);

}  // namespace tutti::training

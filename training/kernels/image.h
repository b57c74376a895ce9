// Images as rows of a tensor: one image per row, pixel by pixel in row-major order, each pixel's
// channels side by side (NHWC), oneDNN's fastest layout.
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

// A window that slides over an image with `padding` zero (for pooling: absent) pixels around it.
// The window's pixels are `dilation` apart.
struct Window {
  int64_t height = 1;
  int64_t width = 1;
  int64_t stride = 1;
  int64_t padding = 0;
  int64_t dilation = 1;

  // Number of pixels from its first row (column) to its last, both included.
  int64_t rows_spanned() const { return (height - 1) * dilation + 1; }
  int64_t columns_spanned() const { return (width - 1) * dilation + 1; }
};

// The windows over a part of a larger image: `height` x `width` windows, the first of which begins
// `top` pixels above the part and `left` pixels left of it. Each window must overlap the part, and
// fewer than `stride` pixels may remain behind the last one.
struct WindowTile {
  int64_t top = 0;
  int64_t left = 0;
  int64_t height = 0;
  int64_t width = 0;

  // All windows that fit into a whole image. Throws as output_shape().
  static WindowTile all(const ImageShape& input, const Window& window);
};

// Shape of the outputs of windows over `input`, with `channels` channels. Throws
// Error(invalid_argument) if no window fits, or if a window could be in the padding alone.
ImageShape output_shape(const ImageShape& input, const Window& window, int64_t channels);

}  // namespace tutti::training

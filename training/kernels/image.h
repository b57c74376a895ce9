// Images as rows of a tensor: one image per row, pixel by pixel in row-major order, with each
// pixel's channels side by side (NHWC), the layout that is fastest in oneDNN.
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

// A window that slides over an image surrounded by `padding` pixels, which are zero (for pooling:
// absent). The window's pixels are `dilation` apart.
struct Window {
  int64_t height = 1;
  int64_t width = 1;
  int64_t stride = 1;
  int64_t padding = 0;
  int64_t dilation = 1;

  // Return the number of pixels from the window's first row (column) to its last, both included.
  int64_t rows_spanned() const { return (height - 1) * dilation + 1; }
  int64_t columns_spanned() const { return (width - 1) * dilation + 1; }
};

// The windows over one part of a larger image: `height` x `width` windows, the first of which
// begins `top` pixels above the part and `left` pixels left of it. Each window must overlap the
// part, and fewer than `stride` pixels may remain behind the last window.
struct WindowTile {
  int64_t top = 0;
  int64_t left = 0;
  int64_t height = 0;
  int64_t width = 0;

  // Returns all windows that fit into a whole image. Throws as output_shape() does.
  static WindowTile all(const ImageShape& input, const Window& window);
};

// Returns the shape of the outputs of windows over `input`, with `channels` channels. Throws
// Error(invalid_argument) if no window fits, or if a window could be entirely in the padding.
ImageShape output_shape(const ImageShape& input, const Window& window, int64_t channels);

}  // namespace tutti::training

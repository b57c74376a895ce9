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

// Slides over an image that has `padding` zero (for pooling: absent) pixels around it.
struct Window {
  int64_t height = 1;
  int64_t width = 1;
  int64_t stride = 1;
  int64_t padding = 0;
};

// What windows over `input` give, with so many channels. Throws Error(invalid_argument) where no
// window fits, and for a window that could lie in the padding alone.
ImageShape output_shape(const ImageShape& input, const Window& window, int64_t channels);

}  // namespace tutti::training

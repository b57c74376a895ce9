#include "training/kernels/image.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"

namespace tutti::training {

ImageShape output_shape(const ImageShape& input, const Window& window, int64_t channels) {
  const bool sizes = std::min({input.height, input.width, input.channels, channels, window.height,
                               window.width, window.stride, window.dilation}) >= 1;
  const auto places = [&](int64_t size, int64_t length) {
    const int64_t room = size + 2 * window.padding - length;
    return room < 0 ? 0 : room / window.stride + 1;
  };
  const int64_t height = sizes ? places(input.height, window.rows_spanned()) : 0;
  const int64_t width = sizes ? places(input.width, window.columns_spanned()) : 0;
  if (height < 1 || width < 1 || window.padding < 0 ||
      window.padding >= std::min(window.rows_spanned(), window.columns_spanned())) {
    throw Error(ErrorCode::invalid_argument,
                cat("windows of ", window.height, " x ", window.width, " (stride ", window.stride,
                    ", padding ", window.padding, ", dilation ", window.dilation,
                    ") do not fit images of ", input.height, " x ", input.width, " x ",
                    input.channels, " (height x width x channels)"),
                {.remedy = "use sizes of at least 1, windows no larger than the padded image, and "
                           "padding smaller than the window"});
  }
  return {height, width, channels};
}

WindowTile WindowTile::all(const ImageShape& input, const Window& window) {
  const ImageShape output = output_shape(input, window, input.channels);
  return {window.padding, window.padding, output.height, output.width};
}

}  // namespace tutti::training

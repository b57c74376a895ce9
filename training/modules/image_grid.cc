#include "training/modules/image_grid.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "training/core/thread_pool.h"
#include "training/kernels/elementwise.h"

namespace tutti::training {
namespace {

Share between(int64_t first, int64_t end) { return {first, std::max<int64_t>(0, end - first)}; }
int64_t end_of(const Share& share) { return share.first + share.count; }
Share overlap(const Share& a, const Share& b) {
  return between(std::max(a.first, b.first), std::min(end_of(a), end_of(b)));
}

int64_t floor_of(int64_t a, int64_t b) {
  return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
}
int64_t ceiling_of(int64_t a, int64_t b) { return -floor_of(-a, b); }

// The windows along one dimension.
struct Line {
  int64_t size;     // size of the image
  int64_t spanned;  // number of pixels that a window spans
  int64_t stride;
  int64_t padding;

  int64_t start(int64_t output) const { return output * stride - padding; }
  // Returns the pixels of the image that windows of these outputs read.
  Share reached(const Share& outputs) const {
    if (outputs.count == 0) return {0, 0};
    return overlap({0, size}, between(start(outputs.first), start(end_of(outputs) - 1) + spanned));
  }
  // Returns the outputs in `outputs` whose windows read some of `pixels`.
  Share reaching(const Share& pixels, const Share& outputs) const {
    if (pixels.count == 0) return {outputs.first, 0};
    const int64_t first = floor_of(pixels.first + padding - spanned, stride) + 1;
    return overlap(outputs, between(first, ceiling_of(end_of(pixels) + padding, stride)));
  }
  // Returns the outputs in `outputs` whose windows read only `pixels` of the image.
  Share inside(const Share& pixels, const Share& outputs) const {
    const int64_t first =
        pixels.first == 0 ? outputs.first : ceiling_of(pixels.first + padding, stride);
    const int64_t end = end_of(pixels) == size
                            ? end_of(outputs)
                            : floor_of(end_of(pixels) + padding - spanned, stride) + 1;
    return overlap(outputs, between(first, end));
  }
};

Line rows_of(const ImageShape& image, const Window& window) {
  return {image.height, window.rows_spanned(), window.stride, window.padding};
}
Line columns_of(const ImageShape& image, const Window& window) {
  return {image.width, window.columns_spanned(), window.stride, window.padding};
}

ImagePart all_samples(ConstTensor images, const Rectangle& where) {
  const int64_t channels = where.empty() ? 0 : images.cols / where.pixels();
  return {{0, images.rows}, where, {0, channels}};
}

// Returns one row of the shared pixels of a sample: pixels x channels.
template <bool is_const>
BasicTensor<is_const> row_of(BasicTensor<is_const> images, const ImagePart& part,
                             const ImagePart& shared, int64_t sample, int64_t row) {
  const int64_t pixel = (row - part.where.rows.first) * part.where.columns.count +
                        shared.where.columns.first - part.where.columns.first;
  const int64_t channels = part.channels.count;
  return images.row_range(sample - part.samples.first, 1)
      .col_range(pixel * channels, shared.where.columns.count * channels)
      .reshaped(shared.where.columns.count, channels)
      .col_range(shared.channels.first - part.channels.first, shared.channels.count);
}

// Copies pixels. Non-contiguous channels are copied pixel by pixel on the host, because they are
// too few for a kernel call.
void copy_pixels(ConstTensor from, Tensor to) {
  if (from.contiguous() && to.contiguous()) return copy(from, to);
  if (from.backend != nullptr || to.backend != nullptr) return copy_rows(from, to);
  const size_t bytes = static_cast<size_t>(from.cols) * size_of(from.dtype);
  for (int64_t pixel = 0; pixel < from.rows; ++pixel) {
    std::memcpy(to.at(pixel, 0), from.at(pixel, 0), bytes);
  }
}

// Calls body(from, to) for each row of the shared pixels, sample by sample.
template <typename Body>
void for_each_shared_row(ConstTensor from, const ImagePart& from_part, Tensor to,
                         const ImagePart& to_part, const Body& body) {
  const ImagePart shared = intersection(from_part, to_part);
  if (shared.size() == 0) return;
  const int64_t all = shared.samples.count;
  parallel_rows(all, shared.size() / all, [&](int64_t first, int64_t count) {
    for (int64_t sample = shared.samples.first + first, end = sample + count; sample < end;
         ++sample) {
      const Share& rows = shared.where.rows;
      for (int64_t row = rows.first; row < rows.first + rows.count; ++row) {
        body(row_of(from, from_part, shared, sample, row),
             row_of(to, to_part, shared, sample, row));
      }
    }
  });
}

}  // namespace

Rectangle intersection(const Rectangle& a, const Rectangle& b) {
  return {overlap(a.rows, b.rows), overlap(a.columns, b.columns)};
}

ImagePart intersection(const ImagePart& a, const ImagePart& b) {
  return {overlap(a.samples, b.samples), intersection(a.where, b.where),
          overlap(a.channels, b.channels)};
}

TiledWindows::TiledWindows(const ImageGrid& grid, const ImageShape& whole_input,
                           const Window& the_window, const ImageShape& output)
    : input(whole_input),
      window(the_window),
      outputs(grid.tile(output)),
      own(grid.tile(input)),
      needed(reached(outputs)) {
  for (int other = 0; other < grid.ranks(); ++other) {
    if (other == grid.rank) continue;
    const Rectangle got = intersection(needed, grid.tile(input, other));
    if (!got.empty()) received.push_back({other, got});
    const Rectangle given = intersection(reached(grid.tile(output, other)), own);
    if (!given.empty()) sent.push_back({other, given});
  }
}

Rectangle TiledWindows::reached(const Rectangle& of) const {
  if (of.empty()) return {};
  return {rows_of(input, window).reached(of.rows), columns_of(input, window).reached(of.columns)};
}

Rectangle TiledWindows::interior() const {
  return {rows_of(input, window).inside(own.rows, outputs.rows),
          columns_of(input, window).inside(own.columns, outputs.columns)};
}

int64_t bytes_of_halos(std::span<const TiledWindows* const> layers, int64_t samples, DType type) {
  std::map<int64_t, int64_t> buffers;  // key: size in values
  for (const TiledWindows* const layer : layers) {
    std::map<int64_t, int64_t> own;
    for (const auto* const pieces : {&layer->received, &layer->sent}) {
      for (const HaloPiece& piece : *pieces) {
        ++own[samples * piece.where.pixels() * layer->input.channels];
      }
    }
    for (const auto& [values, count] : own) {
      buffers[values] = std::max(buffers[values], count);
    }
  }
  int64_t bytes = 0;
  for (const auto& [values, count] : buffers) {
    bytes += values * count * static_cast<int64_t>(size_of(type));
  }
  return bytes;
}

WindowTile WindowPart::tile(const Window& window) const {
  return {.top = input.rows.first - (outputs.rows.first * window.stride - window.padding),
          .left = input.columns.first - (outputs.columns.first * window.stride - window.padding),
          .height = outputs.rows.count,
          .width = outputs.columns.count};
}

WindowPart part_on(const TiledWindows& windows, const Rectangle& input) {
  const Line rows = rows_of(windows.input, windows.window);
  const Line columns = columns_of(windows.input, windows.window);
  const Rectangle outputs = {rows.reaching(input.rows, windows.outputs.rows),
                             columns.reaching(input.columns, windows.outputs.columns)};
  return {intersection(input, windows.reached(outputs)), outputs};
}

void copy_shared(ConstTensor from, const ImagePart& from_part, Tensor to,
                 const ImagePart& to_part) {
  for_each_shared_row(from, from_part, to, to_part, copy_pixels);
}

void copy_shared(ConstTensor from, const Rectangle& from_where, Tensor to,
                 const Rectangle& to_where) {
  copy_shared(from, all_samples(from, from_where), to, all_samples(to, to_where));
}

void add_shared(ConstTensor from, const Rectangle& from_where, Tensor to,
                const Rectangle& to_where) {
  for_each_shared_row(from, all_samples(from, from_where), to, all_samples(to, to_where),
                      [](ConstTensor row, Tensor place) { add(place, row, place); });
}

}  // namespace tutti::training

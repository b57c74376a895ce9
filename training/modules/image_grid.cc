#include "training/modules/image_grid.h"

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

// Windows along one dimension.
struct Line {
  int64_t size;     // of the image
  int64_t spanned;  // pixels
  int64_t stride;
  int64_t padding;

  int64_t start(int64_t output) const { return output * stride - padding; }
  // Pixels of the image that windows of these outputs reach.
  Share reached(const Share& outputs) const {
    if (outputs.count == 0) return {0, 0};
    return overlap({0, size}, between(start(outputs.first), start(end_of(outputs) - 1) + spanned));
  }
  // Outputs, of these, whose windows reach into the pixels.
  Share reaching(const Share& pixels, const Share& outputs) const {
    if (pixels.count == 0) return {outputs.first, 0};
    const int64_t first = floor_of(pixels.first + padding - spanned, stride) + 1;
    return overlap(outputs, between(first, ceiling_of(end_of(pixels) + padding, stride)));
  }
  // Outputs, of these, whose windows reach no other pixels of the image.
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

// body(from, to) for each row of the shared pixels, sample by sample.
template <typename Body>
void for_each_shared_row(ConstTensor from, const Rectangle& from_where, Tensor to,
                         const Rectangle& to_where, const Body& body) {
  const Rectangle shared = intersection(from_where, to_where);
  if (shared.empty()) return;
  const int64_t channels = from.cols / from_where.pixels();
  const int64_t length = shared.columns.count * channels;
  // The element of a sample at which a row of the shared pixels begins.
  const auto first_in = [&](const Rectangle& where, int64_t row) {
    return ((shared.rows.first + row - where.rows.first) * where.columns.count +
            shared.columns.first - where.columns.first) *
           channels;
  };
  parallel_rows(from.rows, shared.pixels() * channels, [&](int64_t sample, int64_t count) {
    for (const int64_t end = sample + count; sample < end; ++sample) {
      for (int64_t row = 0; row < shared.rows.count; ++row) {
        body(from.row_range(sample, 1).col_range(first_in(from_where, row), length),
             to.row_range(sample, 1).col_range(first_in(to_where, row), length));
      }
    }
  });
}

}  // namespace

Rectangle intersection(const Rectangle& a, const Rectangle& b) {
  return {overlap(a.rows, b.rows), overlap(a.columns, b.columns)};
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

void copy_shared(ConstTensor from, const Rectangle& from_where, Tensor to,
                 const Rectangle& to_where) {
  for_each_shared_row(from, from_where, to, to_where,
                      [](ConstTensor row, Tensor place) { copy(row, place); });
}

void add_shared(ConstTensor from, const Rectangle& from_where, Tensor to,
                const Rectangle& to_where) {
  for_each_shared_row(from, from_where, to, to_where,
                      [](ConstTensor row, Tensor place) { add(place, row, place); });
}

}  // namespace tutti::training

// Images cut over a grid of ranks, each of which has a tile of every image (spatial parallelism;
// Jin et al.: Spatial parallelism in CNN training, 2018; Dryden et al., IPDPS 2019). Windows at the
// edge of a tile reach into the neighbours' tiles: that part of these is the halo.
//
//   +------+------+      rank 0's tile, and its halo: columns of rank 1's tile, rows of rank 2's,
//   | 0   :|: 1   |      and the corner of rank 3's
//   |.....:|......|
//   +------+------+
//   | 2   :|: 3   |
//   +------+------+
//
// Tiles are even shares of rows and columns: their sizes differ by 1 at most, and some are empty
// where an image has fewer rows than the grid. A halo may reach over several tiles.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "training/core/axes.h"
#include "training/core/placement.h"
#include "training/core/tensor.h"
#include "training/kernels/image.h"

namespace tutti::training {

// Pixels of an image.
struct Rectangle {
  Share rows;
  Share columns;

  int64_t pixels() const { return rows.count * columns.count; }
  bool empty() const { return pixels() == 0; }
  ImageShape shape(int64_t channels) const { return {rows.count, columns.count, channels}; }
  bool operator==(const Rectangle& other) const {
    return rows.first == other.rows.first && rows.count == other.rows.count &&
           columns.first == other.columns.first && columns.count == other.columns.count;
  }
};

Rectangle intersection(const Rectangle& a, const Rectangle& b);

// A grid of ranks, row by row, and which of them this one is.
struct ImageGrid {
  GridShape shape = {};
  int rank = 0;

  static ImageGrid of(const MeshPlace& place) {
    const int columns = place.grid_columns;
    return {{place.size(Axis::spatial) / columns, columns}, place.place(Axis::spatial)};
  }
  int ranks() const { return shape.ranks(); }
  Rectangle tile(const ImageShape& whole, int of_rank) const {
    return {even_share(whole.height, of_rank / shape.columns, shape.rows),
            even_share(whole.width, of_rank % shape.columns, shape.columns)};
  }
  Rectangle tile(const ImageShape& whole) const { return tile(whole, rank); }
  // Shape of this rank's tile.
  ImageShape own(const ImageShape& whole) const { return tile(whole).shape(whole.channels); }
};

// Pixels of this rank's tile that another rank's windows reach, or the other way round.
struct HaloPiece {
  int rank = 0;  // of the grid
  Rectangle where;
};

// A layer of windows over cut images, as one rank sees it: it makes the outputs in its own tile of
// the output image.
struct TiledWindows {
  ImageShape input;  // of the whole image
  Window window;
  Rectangle outputs;                // this rank's
  Rectangle own;                    // this rank's tile of the input
  Rectangle needed;                 // of the input, what windows of its outputs reach
  std::vector<HaloPiece> received;  // in forward, by the rank; their gradients go back
  std::vector<HaloPiece> sent;

  // `output`: the shape of the whole output.
  TiledWindows(const ImageGrid& grid, const ImageShape& input, const Window& window,
               const ImageShape& output);

  // The pixels that windows of these outputs reach.
  Rectangle reached(const Rectangle& outputs) const;
  // This rank's outputs whose windows reach only pixels of its own tile, or the padding.
  Rectangle interior() const;
};

// Bytes of the buffers for halos of some layers of images of one type, one layer after the other:
// of each size as many as a layer needs at once (parallel/buffer_pool.h).
int64_t bytes_of_halos(std::span<const TiledWindows* const> layers, int64_t samples, DType type);

// Some of the windows on a part of the image, for kernels: `input` has what the windows of
// `outputs` reach of it. Pixels besides count as padding.
struct WindowPart {
  Rectangle input;
  Rectangle outputs;

  bool empty() const { return input.empty() || outputs.empty(); }
  WindowTile tile(const Window& window) const;
};
// All windows of the rank's outputs that reach into `input`, a part of the image.
WindowPart part_on(const TiledWindows& windows, const Rectangle& input);

// Some channels of some pixels of some of a micro-batch's images, in this order in memory (samples
// x pixels x channels, contiguous, as kernels/image.h has them).
struct ImagePart {
  Share samples;
  Rectangle where;
  Share channels;

  int64_t size() const { return samples.count * where.pixels() * channels.count; }
};
ImagePart intersection(const ImagePart& a, const ImagePart& b);

// Copies what both parts have from one tensor to the other.
void copy_shared(ConstTensor from, const ImagePart& from_part, Tensor to, const ImagePart& to_part);
// Copies, or adds, the pixels that both rectangles have, of all samples and channels.
void copy_shared(ConstTensor from, const Rectangle& from_where, Tensor to,
                 const Rectangle& to_where);
void add_shared(ConstTensor from, const Rectangle& from_where, Tensor to,
                const Rectangle& to_where);

}  // namespace tutti::training

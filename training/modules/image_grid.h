// Images divided over a grid of ranks, each of which has a tile of every image (spatial
// parallelism; Jin et al.: Spatial parallelism in CNN training, 2018; Dryden et al., IPDPS 2019).
// Windows at the edge of a tile reach into neighbours' tiles. The pixels that they need from
// neighbours are the halo.
//
//   +------+------+      rank 0's tile, and its halo: columns of rank 1's tile, rows of rank 2's,
//   | 0   :|: 1   |      and the corner of rank 3's
//   |.....:|......|
//   +------+------+
//   | 2   :|: 3   |
//   +------+------+
//
// Tiles are even shares of rows and columns: their sizes differ by at most 1, and some are empty if
// an image has fewer rows than the grid. A halo may extend over several tiles.
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

// A rectangle of an image's pixels.
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

// A grid of ranks, which are counted row by row, and this rank's index in it.
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
  // Returns the shape of this rank's tile.
  ImageShape own(const ImageShape& whole) const { return tile(whole).shape(whole.channels); }
};

// Pixels of one rank's tile that another rank's windows need.
struct HaloPiece {
  int rank = 0;  // rank of the grid from which, or to which, the pixels are sent
  Rectangle where;
};

// One rank's windows of a layer over divided images. The rank computes the outputs in its own tile
// of the output image.
struct TiledWindows {
  ImageShape input;  // shape of the whole input image
  Window window;
  Rectangle outputs;  // this rank's tile of the output
  Rectangle own;      // this rank's tile of the input
  Rectangle needed;   // pixels of the input that the windows of this rank's outputs read
  // halo pixels that forward receives, by rank; backward sends their gradients back
  std::vector<HaloPiece> received;
  std::vector<HaloPiece> sent;

  // Computes the tiles and halos. `output`: the shape of the whole output.
  TiledWindows(const ImageGrid& grid, const ImageShape& input, const Window& window,
               const ImageShape& output);

  // Returns the pixels that windows of these outputs read.
  Rectangle reached(const Rectangle& outputs) const;
  // Returns the outputs of this rank whose windows read only this rank's own tile, or padding.
  Rectangle interior() const;
};

// Returns the bytes of the halo buffers that several layers of one type share, because they run one
// after the other. If one layer needs 2 buffers of some size and another layer 3, there are 3
// (parallel/buffer_pool.h).
int64_t bytes_of_halos(std::span<const TiledWindows* const> layers, int64_t samples, DType type);

// Some windows over a part of the image, for kernels: `input` is the part that windows of `outputs`
// read. Pixels outside of it count as padding.
struct WindowPart {
  Rectangle input;
  Rectangle outputs;

  bool empty() const { return input.empty() || outputs.empty(); }
  WindowTile tile(const Window& window) const;
};
// Returns all windows of the rank's outputs that read pixels of `input`, a part of the image.
WindowPart part_on(const TiledWindows& windows, const Rectangle& input);

// Some channels of some pixels of some images of a micro-batch. In memory they are samples x pixels
// x channels, contiguous, as in kernels/image.h.
struct ImagePart {
  Share samples;
  Rectangle where;
  Share channels;

  int64_t size() const { return samples.count * where.pixels() * channels.count; }
};
ImagePart intersection(const ImagePart& a, const ImagePart& b);

// Copies the pixels and channels that both parts have from one tensor to the other.
void copy_shared(ConstTensor from, const ImagePart& from_part, Tensor to, const ImagePart& to_part);
// Copy, or add, the pixels that are in both rectangles, for all samples and channels.
void copy_shared(ConstTensor from, const Rectangle& from_where, Tensor to,
                 const Rectangle& to_where);
void add_shared(ConstTensor from, const Rectangle& from_where, Tensor to,
                const Rectangle& to_where);

}  // namespace tutti::training

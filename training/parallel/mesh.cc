#include "training/parallel/mesh.h"

#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "training/parallel/throw_on_all.h"

namespace tutti::training {

std::string_view name(Axis axis) {
  switch (axis) {
    case Axis::tensor:
      return "tensor";
    case Axis::data:
      return "data";
    case Axis::pipeline:
      return "pipeline";
  }
  return "?";
}

std::array<int, kAxes> mesh_sizes(const MeshShape& shape, int ranks) {
  std::array<int, kAxes> sizes = {shape.tensor, shape.data, shape.pipeline};
  int known = 1;
  int* free = nullptr;
  bool good = true;
  for (int& size : sizes) {
    good = good && size >= 0 && (size > 0 || free == nullptr);
    if (size > 0) {
      good = good && size <= ranks;
      if (good) known *= size;
    } else {
      free = &size;
    }
  }
  if (free != nullptr && good) *free = ranks / known;
  const int product = free != nullptr && good ? known * *free : known;
  if (good && product == ranks) return sizes;
  std::string axes;
  for (size_t axis = 0; axis < sizes.size(); ++axis) {
    const bool is_free = &sizes[axis] == free;
    axes += cat(axis == 0 ? "" : " x ", name(static_cast<Axis>(axis)), ' ',
                is_free ? "any" : cat(sizes[axis]));
  }
  throw Error(ErrorCode::invalid_argument,
              cat(ranks, ranks == 1 ? " rank does" : " ranks do", " not make a mesh of ", axes),
              {.cause = "the product of the axes is not the number of ranks",
               .remedy = "give as many ranks as the axes' product, or leave one axis open"});
}

Mesh::Mesh(Communicator world, const MeshShape& shape)
    : world_(std::move(world)),
      sizes_(made_on_all(world_, [&] { return mesh_sizes(shape, world_.size()); })) {
  for (size_t axis = 0; axis < sizes_.size(); ++axis) {
    places_[axis] = place_of(world_.rank(), static_cast<Axis>(axis));
  }
  int stride = 1;
  for (size_t axis = 0; axis < sizes_.size(); ++axis) {
    // Where an axis has all ranks, its order is theirs.
    along_[axis] = sizes_[axis] == world_.size()
                       ? world_
                       : world_.split(world_.rank() - places_[axis] * stride, places_[axis]);
    stride *= sizes_[axis];
  }
}

int Mesh::place_of(int rank, Axis axis) const {
  for (size_t faster = 0; faster < index(axis); ++faster) rank /= sizes_[faster];
  return rank % sizes_[index(axis)];
}

}  // namespace tutti::training

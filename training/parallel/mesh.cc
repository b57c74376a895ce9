#include "training/parallel/mesh.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "training/core/group.h"
#include "training/core/trace.h"

namespace tutti::training {

std::array<int, kAxes> mesh_sizes(const MeshShape& shape, int ranks) {
  std::array<int, kAxes> sizes = {shape.tensor, shape.context, shape.expert, shape.data,
                                  shape.pipeline};
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
  for (const Axis axis : kAllAxes) {
    const int& size = sizes[static_cast<size_t>(axis)];
    if (size == 1 && &size != free) continue;
    axes += cat(axes.empty() ? "" : " x ", name(axis), ' ', &size == free ? "any" : cat(size));
  }
  if (axes.empty()) axes = "one";
  throw Error(ErrorCode::invalid_argument,
              cat(ranks, ranks == 1 ? " rank does" : " ranks do", " not make a mesh of ", axes),
              {.cause = "the product of the axes is not the number of ranks",
               .remedy = "give as many ranks as the axes' product, or leave one axis open"});
}

Mesh::Mesh(Communicator world, const MeshShape& shape)
    : world_(std::move(world)), groups_(std::make_shared<std::map<AxisSet, Communicator>>()) {
  place_.sizes = made_on_all(world_, [&] { return mesh_sizes(shape, world_.size()); });
  for (const Axis axis : kAllAxes) {
    place_.places[static_cast<size_t>(axis)] = place_of(world_.rank(), axis);
  }
}

int Mesh::place_of(int rank, Axis axis) const {
  for (const Axis faster : kAllAxes) {
    if (faster == axis) break;
    rank /= size(faster);
  }
  return rank % size(axis);
}

AxisSet Mesh::used() const {
  AxisSet axes;
  for (const Axis axis : kAllAxes) {
    if (size(axis) > 1) axes = axes | AxisSet{axis};
  }
  return axes;
}

bool Mesh::is_beside(int rank, AxisSet axes) const {
  return std::ranges::all_of(
      kAllAxes, [&](Axis axis) { return !axes.has(axis) || place_of(rank, axis) == place(axis); });
}

Communicator& Mesh::group(AxisSet axes) {
  Communicator& group = (*groups_)[axes & used()];
  if (group.valid()) return group;
  std::vector<int> ranks;
  for (int rank = 0; rank < world_.size(); ++rank) {
    if (is_beside(rank, AxisSet::all().without(axes))) ranks.push_back(rank);
  }
  group = std::ssize(ranks) == world_.size() ? world_ : world_.create(ranks);
  return group;
}

void Mesh::add_said(Axis axis, const char* call, double bytes,
                    std::chrono::steady_clock::time_point start) {
  const auto end = std::chrono::steady_clock::now();
  said_->bytes[static_cast<size_t>(axis)] += bytes;
  said_->waited += end - start;
  if (said_->trace == nullptr) return;
  said_->trace->add({cat(name(axis), ' ', call),
                     TraceCategory::communication,
                     start,
                     end,
                     {{"bytes", static_cast<int64_t>(bytes)}}});
}

BufferPool& Mesh::messages(Axis axis, const Backend* backend) {
  const auto known = messages_->find(axis);
  if (known != messages_->end()) return known->second;
  return messages_->emplace(axis, BufferPool(along(axis), backend)).first->second;
}

int64_t Mesh::message_bytes() const {
  int64_t bytes = 0;
  for (const auto& [axis, pool] : *messages_) bytes += pool.bytes();
  return bytes;
}

void Mesh::abort(const std::string& reason) {
  for (auto& [axes, group] : *groups_) {
    if (group.valid()) group.abort(reason);
  }
  world_.abort(reason);
}

}  // namespace tutti::training

#include "training/parallel/mesh.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/host_name.h"
#include "base/settings.h"
#include "base/text.h"
#include "training/core/group.h"
#include "training/core/trace.h"

namespace tutti::training {

namespace {

// Returns the name of this host. Ranks with the same name count as being on the same host.
std::string configured_host() {
  const std::string configured = settings().get_string("TUTTI_HOST");
  return configured.empty() ? host_name() : configured;
}

// Chooses the axes, with `ranks` ranks together, over which experts are sharded; splits the data
// axis into expert and data. Returns false if no set of axes has `ranks` ranks.
bool place_experts(MeshPlace& place, int ranks) {
  const int data = place.size(Axis::data);
  for (const AxisSet more : {AxisSet(), AxisSet{Axis::context}, AxisSet{Axis::tensor},
                             AxisSet{Axis::tensor, Axis::context}}) {
    const int others = place.ranks_along(more);
    if (ranks % others != 0 || data % (ranks / others) != 0) continue;
    place.sizes[static_cast<size_t>(Axis::expert)] = ranks / others;
    place.sizes[static_cast<size_t>(Axis::data)] = data / (ranks / others);
    if (ranks > 1) place.experts = more | AxisSet{Axis::expert};
    return true;
  }
  return false;
}

Error no_ranks_for_experts(const MeshPlace& place, int ranks) {
  std::string fitting;
  for (int number = 1; number <= place.ranks_along(kBatchAxes | AxisSet{Axis::tensor}); ++number) {
    MeshPlace tried = place;
    if (place_experts(tried, number)) fitting += cat(fitting.empty() ? "" : ", ", number);
  }
  return Error(
      ErrorCode::invalid_argument,
      cat(ranks, " expert-parallel ranks do not fit tensor ", place.size(Axis::tensor),
          " x context ", place.size(Axis::context), " x data ", place.size(Axis::data)),
      {.where = "--ep",
       .cause =
           "expert-parallel ranks must be a subset of the data-parallel ranks, or of these and all "
           "context- or tensor-parallel ranks",
       .remedy = cat("use one of ", fitting)});
}

// Returns a text: "pipeline 2 x data 4", or the error of a rank whose shape does not fit.
std::string in_words(const MeshPlace& place, const std::optional<Error>& refused) {
  if (refused) return refused->what();
  std::string text;
  for (const Axis axis : kAllAxes) {
    if (place.size(axis) == 1) continue;
    text += cat(text.empty() ? "" : " x ", name(axis), ' ', place.size(axis));
  }
  return place.grid_columns == 1 ? text : cat(text, ", ", place.grid_columns, " columns");
}

// Throws Error(mismatch) on every rank if the meshes differ. Ranks that took their places in
// different meshes would wait for each other, or sum over the wrong ranks.
void check_same_on_all(Communicator& world, const MeshPlace& place,
                       const std::optional<Error>& refused) {
  const std::string own = in_words(place, refused);
  if (same_on_all(world, own)) return;
  const std::vector<std::string> meshes = texts_of_all(world, own);
  const auto other =
      std::ranges::find_if(meshes, [&](const std::string& mesh) { return mesh != meshes.front(); });
  throw_on_all(world, Error(ErrorCode::mismatch, "the ranks do not form the same mesh",
                            {.where = cat(world.describe(static_cast<int>(other - meshes.begin())),
                                          " has ", *other, " (rank 0: ", meshes.front(), ")"),
                             .cause = "the ranks were started with different options",
                             .remedy = "start every rank with the same options"}));
}

// Collective. Returns the place of rank 0 in the mesh, which must be the same on all ranks.
MeshPlace agreed_place(Communicator& world, const MeshShape& shape) {
  MeshPlace place{.sizes = {}};
  std::optional<Error> refused;
  try {
    place = mesh_place(shape, world.size());
  } catch (const Error& error) {
    refused = error;
  }
  check_same_on_all(world, place, refused);
  if (refused) throw_on_all(world, *refused);
  return place;
}

}  // namespace

MeshPlace mesh_place(const MeshShape& shape, int ranks) {
  const GridShape& grid = shape.spatial;
  if (grid.rows < 1 || grid.columns < 1 || int64_t{grid.rows} * grid.columns > ranks) {
    throw Error(ErrorCode::invalid_argument,
                cat(ranks, ranks == 1 ? " rank does" : " ranks do", " not form a grid of ",
                    grid.rows, " x ", grid.columns),
                {.where = "--spatial", .remedy = "use as many ranks, or a smaller grid"});
  }
  MeshPlace place{
      .sizes = {shape.tensor, shape.context, grid.ranks(), 1, shape.data, shape.pipeline},
      .grid_columns = grid.columns};
  int64_t known = 1;
  int* free = nullptr;
  bool good = true;
  for (int& size : place.sizes) {
    good = good && size >= 0 && (size > 0 || free == nullptr);
    if (size > 0) {
      good = good && size <= ranks;
      if (good) known = std::min<int64_t>(known * size, int64_t{ranks} + 1);
    } else {
      free = &size;
    }
  }
  if (free != nullptr && good) *free = static_cast<int>(ranks / known);
  const int64_t product = free != nullptr && good ? known * *free : known;
  if (good && product == ranks) {
    if (shape.expert < 1 || !place_experts(place, shape.expert)) {
      throw no_ranks_for_experts(place, shape.expert);
    }
    return place;
  }
  std::string axes;
  for (const Axis axis : kAllAxes) {
    const int& size = place.sizes[static_cast<size_t>(axis)];
    if (size == 1 || (good && &size == free)) continue;
    axes += cat(axes.empty() ? "" : " x ", size, " (", name(axis), ")");
  }
  if (axes.empty()) axes = "one";
  ErrorDetail detail{.cause = "the product of the axes is not the number of ranks",
                     .remedy = "use as many ranks as the product of the axes"};
  if (good && known > ranks) {
    detail.cause = "the product of the axes exceeds the number of ranks";
  } else if (good && free != nullptr) {
    detail = {.cause = cat(ranks, " is not a multiple of ", known),
              .remedy = cat("use a multiple of ", known,
                            " ranks, or change the sizes (--dp, --pp, --tp, --cp)")};
  } else if (good) {
    detail = {
        .cause = cat("the product of the axes is ", product),
        .remedy = cat("use ", product, " ranks, or leave one of --dp, --pp, --tp and --cp unset")};
  }
  throw Error(ErrorCode::invalid_argument,
              cat(ranks, ranks == 1 ? " rank does" : " ranks do", " not form a mesh of ", axes),
              detail);
}

Mesh::Mesh(Communicator world, const MeshShape& shape)
    : world_(std::move(world)),
      host_(configured_host()),
      groups_(std::make_shared<std::map<AxisSet, Communicator>>()) {
  place_ = agreed_place(world_, shape).of_rank(world_.rank());
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

Mesh::ByHosts& Mesh::by_hosts(AxisSet axes) {
  const auto known = by_hosts_->find(axes & used());
  if (known != by_hosts_->end()) return known->second;
  Communicator& ranks = group(axes);
  std::vector<Place> places;
  for (std::string& host : texts_of_all(ranks, host_)) places.push_back({std::move(host), {}});
  ByHosts made{.hosts = Hosts::of(places), .inside = {}, .numbers = {}};
  for (int rank = 0; rank < ranks.size(); ++rank) {
    if (made.hosts.near(rank, ranks.rank())) made.numbers.push_back(rank);
  }
  const bool is_one = std::ssize(made.numbers) == ranks.size();
  made.inside = is_one ? ranks : ranks.create(made.numbers);
  return by_hosts_->emplace(axes & used(), std::move(made)).first->second;
}

void Mesh::add_unit_traffic(Axis axis, const char* call, double bytes,
                            std::chrono::steady_clock::time_point start) {
  const auto end = std::chrono::steady_clock::now();
  unit_traffic_->bytes[static_cast<size_t>(axis)] += bytes;
  unit_traffic_->waited += end - start;
  if (unit_traffic_->trace == nullptr) return;
  unit_traffic_->trace->add({cat(name(axis), ' ', call),
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
  for (auto& [axes, group] : *by_hosts_) group.inside.abort(reason);
  world_.abort(reason);
}

}  // namespace tutti::training

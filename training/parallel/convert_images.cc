#include "training/parallel/convert_images.h"

#include "training/kernels/elementwise.h"
#include "training/parallel/axis_call.h"
#include "training/parallel/convert_layout.h"

namespace tutti::training {
namespace {

// Converts images that the tensor-parallel ranks share.
class Images {
 public:
  Images(Pass& pass, const MeshPlace& place, const ImageShape& whole)
      : call_(pass, place, Axis::tensor),
        place_(place),
        whole_(whole),
        samples_(pass.batch->samples) {}

  Tensor own_part(ConstTensor all, Spread spread) {
    const ImagePart part = part_of(call_.place(), spread);
    const Tensor own = take(all.dtype, part);
    copy_shared(all, part_of(call_.place(), Spread::replicated), own, part);
    return own;
  }

  Tensor gathered(ConstTensor own, Spread from) {
    const ImagePart everything = part_of(call_.place(), Spread::replicated);
    const Tensor all = take(own.dtype, everything);
    const ArenaScope scope(arena());
    const Tensor parts = arena().take(own.dtype, 1, all.size());
    call_.count("all_gather", all);
    if (call_.alone()) {
      zero(all);
      copy_shared(own, part_of(call_.place(), from), all, everything);
      return all;
    }
    const auto part = [&](int rank) { return part_of(rank, from); };
    call_.ranks().all_gatherv(as_buffer(own), as_buffer(parts), blocks(part));
    unpack(parts, part, all, everything);
    return all;
  }

  // Returns this rank's part of the sum (reduce-scatter).
  Tensor scattered(ConstTensor partial, Spread to) {
    const ImagePart everything = part_of(call_.place(), Spread::replicated);
    const Tensor own = take(partial.dtype, part_of(call_.place(), to));
    const ArenaScope scope(arena());
    const Tensor parts = arena().take(partial.dtype, 1, partial.size());
    const auto part = [&](int rank) { return part_of(rank, to); };
    call_.count("reduce_scatter", partial);
    if (call_.alone()) {
      copy_shared(partial, everything, own, part(call_.place()));
      return own;
    }
    pack(partial, everything, part, parts);
    call_.ranks().reduce_scatterv(as_const(as_buffer(parts)), as_buffer(own), blocks(part));
    return own;
  }

  Tensor exchanged(ConstTensor own, Spread from, Spread to) {
    const int place = call_.place();
    const ImagePart before = part_of(place, from), after = part_of(place, to);
    const Tensor result = take(own.dtype, after);
    const ArenaScope scope(arena());
    const Tensor packed = arena().take(own.dtype, 1, own.size());
    const Tensor parts = arena().take(own.dtype, 1, result.size());
    const auto sent = [&](int rank) { return intersection(before, part_of(rank, to)); };
    const auto received = [&](int rank) { return intersection(part_of(rank, from), after); };
    call_.count("all_to_all", static_cast<double>(own.size() - sent(place).size()) *
                                  static_cast<double>(size_of(own.dtype)));
    if (call_.alone()) {
      zero(result);
      copy_shared(own, before, result, after);
      return result;
    }
    pack(own, before, sent, packed);
    call_.ranks().all_to_allv(as_const(as_buffer(packed)), blocks(sent), as_buffer(parts),
                              blocks(received));
    unpack(parts, received, result, after);
    return result;
  }

 private:
  Arena& arena() const { return call_.pass().arena; }
  Tensor take(DType type, const ImagePart& part) const {
    return arena().take(type, part.samples.count, part.where.pixels() * part.channels.count);
  }

  ImagePart part_of(int rank, Spread spread) const {
    const auto share = [&](int64_t count) { return even_share(count, rank, call_.size()); };
    ImagePart part{{0, samples_}, {{0, whole_.height}, {0, whole_.width}}, {0, whole_.channels}};
    if (spread == Spread::rows) part.samples = share(samples_);
    if (spread == Spread::channels) part.channels = share(whole_.channels);
    if (spread == Spread::pixels) part.where = strips_of(place_).tile(whole_, rank);
    return part;
  }

  template <typename Part>
  Blocks blocks(const Part& part) const {
    return call_.blocks([&](int rank) { return part(rank).size(); });
  }

  // Calls visit(the rank's part, its elements in `packed`) for each rank. The parts are consecutive
  // in `packed`.
  template <typename Part, typename Visit>
  void for_each_packed(Tensor packed, const Part& part, const Visit& visit) const {
    int64_t at = 0;
    for (int rank = 0; rank < call_.size(); ++rank) {
      const ImagePart its = part(rank);
      const int64_t size = its.size();
      if (size > 0) {
        visit(its,
              packed.col_range(at, size).reshaped(its.samples.count, size / its.samples.count));
      }
      at += size;
    }
  }
  template <typename Part>
  void pack(ConstTensor images, const ImagePart& has, const Part& part, Tensor packed) const {
    for_each_packed(packed, part, [&](const ImagePart& its, Tensor block) {
      copy_shared(images, has, block, its);
    });
  }
  template <typename Part>
  void unpack(Tensor packed, const Part& part, Tensor images, const ImagePart& has) const {
    for_each_packed(packed, part, [&](const ImagePart& its, Tensor block) {
      copy_shared(block, its, images, has);
    });
  }

  AxisCall call_;
  MeshPlace place_;
  ImageShape whole_;
  int64_t samples_;
};

bool cuts_images(const ActivationLayout& layout) {
  const Spread spread = layout.along(Axis::tensor);
  return spread == Spread::channels || spread == Spread::pixels;
}

// Returns true if neither layout cuts images, so that convert_layout() can do the conversion.
bool is_of_rows(const ActivationLayout& from, const ActivationLayout& to) {
  return !cuts_images(from) && !cuts_images(to);
}

Tensor moved(Images& line, ConstTensor images, Spread from, Spread to) {
  if (from == Spread::replicated) return line.own_part(images, to);
  if (to == Spread::replicated) return line.gathered(images, from);
  return line.exchanged(images, from, to);
}

}  // namespace

ImageGrid strips_of(const MeshPlace& place) {
  return {{place.size(Axis::tensor), 1}, place.place(Axis::tensor)};
}

ConstTensor convert_images(Pass& pass, const MeshPlace& place, ConstTensor images,
                           const ImageShape& whole, const ActivationLayout& from,
                           const ActivationLayout& to) {
  if (is_of_rows(from, to)) {
    return convert_layout(pass, place, images, {pass.batch->samples, whole.size()}, from, to);
  }
  if (from == to || place.size(Axis::tensor) == 1) return images;
  Images line(pass, place, whole);
  return moved(line, images, from.along(Axis::tensor), to.along(Axis::tensor));
}

Tensor convert_images(Pass& pass, const MeshPlace& place, Tensor images, const ImageShape& whole,
                      const ActivationLayout& from, const ActivationLayout& to) {
  const WholeShape rows{pass.batch->samples, whole.size()};
  if (is_of_rows(from, to)) return convert_layout(pass, place, images, rows, from, to);
  if (from == to || place.size(Axis::tensor) == 1) return images;
  const Spread before = from.along(Axis::tensor), after = to.along(Axis::tensor);
  if (before == Spread::partial && after == Spread::channels) {
    const Tensor sum = convert_layout(pass, place, images, rows, from, kReplicated);
    return Images(pass, place, whole).own_part(sum, after);
  }
  Images line(pass, place, whole);
  if (before == Spread::partial) return line.scattered(images, after);
  return moved(line, images, before, after);
}

}  // namespace tutti::training

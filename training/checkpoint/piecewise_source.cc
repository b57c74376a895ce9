#include "training/checkpoint/piecewise_source.h"

#include <algorithm>

namespace tutti::training {

std::vector<std::string> PiecewiseSource::names() const {
  std::vector<std::string> names;
  for (const TensorEntry& tensor : manifest_.tensors) names.push_back(tensor.info.name);
  return names;
}

const TensorEntry* PiecewiseSource::entry(std::string_view name) const {
  const auto name_of = [](const TensorEntry& tensor) -> std::string_view {
    return tensor.info.name;
  };
  const auto found = std::ranges::lower_bound(manifest_.tensors, name, {}, name_of);
  return found != manifest_.tensors.end() && found->info.name == name ? &*found : nullptr;
}

const TensorInfo* PiecewiseSource::find(std::string_view name) const {
  const TensorEntry* found = entry(name);
  return found == nullptr ? nullptr : &found->info;
}

void PiecewiseSource::read(std::string_view name, int64_t first, Tensor out) const {
  const TensorInfo& info = checked_range(*this, where_, name, first, out);
  const size_t size = size_of(info.dtype);
  for (const auto& [slice, pieces] : entry(name)->slices) {
    // The intersection of the range with the slice is contiguous in the slice.
    const int64_t begin = slice.count_before(first);
    const int64_t end = slice.count_before(first + out.cols);
    for (const StoredPiece& piece : pieces) {
      const int64_t from = std::max(begin, piece.first);
      const int64_t to = std::min(end, piece.first + piece.count);
      if (from >= to) continue;
      const std::byte* bytes = bytes_of(piece, piece_name(name, slice, piece.first, piece.count),
                                        static_cast<size_t>(from - piece.first) * size,
                                        static_cast<size_t>(to - from) * size);
      if (bytes == nullptr) continue;
      for_each_run(slice, from, to - from, [&](const Slice::Run& run, int64_t at) {
        convert_elements(bytes + static_cast<size_t>(at) * size, info.dtype,
                         out.col_range(run.whole - first, run.count));
      });
    }
  }
}

}  // namespace tutti::training

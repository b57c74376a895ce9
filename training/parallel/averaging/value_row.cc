#include "training/parallel/averaging/value_row.h"

#include <algorithm>

namespace tutti::training {

ValueRow::ValueRow(ParameterStorage& storage) : storage_(storage) {
  for (const OwnedPiece& piece : storage_.owned()) size_ += piece.piece.count;
}

template <typename Float, typename Visit>
void ValueRow::each(int64_t first, std::span<Float> part, const Visit& visit) const {
  const int64_t last = first + std::ssize(part);
  int64_t start = 0;  // offset of the piece in the row
  for (const OwnedPiece& piece : storage_.owned()) {
    const int64_t from = std::max(first, start);
    const int64_t to = std::min(last, start + piece.piece.count);
    if (from < to) {
      const auto count = static_cast<size_t>(to - from);
      visit(piece.master.subspan(static_cast<size_t>(from - start), count),
            part.subspan(static_cast<size_t>(from - first), count), piece);
    }
    start += piece.piece.count;
  }
}

void ValueRow::read(int64_t first, std::span<float> part) const {
  each(first, part, [](std::span<const float> own, std::span<float> out, const OwnedPiece&) {
    std::ranges::copy(own, out.begin());
  });
}

void ValueRow::write(int64_t first, std::span<const float> part) {
  each(first, part, [](std::span<float> own, std::span<const float> in, const OwnedPiece& piece) {
    std::ranges::copy(in, own.begin());
    store_masters(piece);
  });
}

}  // namespace tutti::training

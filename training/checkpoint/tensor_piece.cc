#include "training/checkpoint/tensor_piece.h"

#include <utility>

#include "base/error.h"
#include "base/printable.h"
#include "base/text.h"

namespace tutti::training {

void check_piece(const TensorPiece& piece) {
  std::optional<int64_t> count = count_of(piece.shape);
  if (count && piece.slice) count = piece.slice->count();
  const ConstTensor& data = piece.data;
  const bool fits = !piece.slice || piece.slice->whole_shape() == piece.shape;
  if (fits && count && piece.first >= 0 && data.rows == 1 && piece.first <= *count - data.cols) {
    return;
  }
  throw Error(ErrorCode::invalid_argument,
              cat("a piece of ", data.rows, " x ", data.cols, " elements from element ",
                  piece.first, " on is no part of tensor ", in_quotes(piece.name), ", which has ",
                  count.value_or(-1), " elements"));
}

Slice slice_of(const TensorPiece& piece) { return piece.slice.value_or(Slice(piece.shape)); }

Json describe_piece(const TensorPiece& piece) {
  return {{"name", piece.name},   {"dtype", safetensors_name(piece.data.dtype)},
          {"shape", piece.shape}, {"ranges", to_json(slice_of(piece).ranges())},
          {"first", piece.first}, {"count", piece.data.cols}};
}

void add_described(const Json& pieces, int rank, std::map<std::string, TensorEntry>& tensors) {
  for (const Json& piece : pieces) {
    TensorInfo info{piece.at("name").get<std::string>(),
                    *safetensors_type(piece.at("dtype").get<std::string>()),
                    piece.at("shape").get<std::vector<int64_t>>()};
    TensorEntry& entry = tensors.try_emplace(info.name, TensorEntry{info, {}}).first->second;
    if (entry.info != info) {
      throw Error(ErrorCode::mismatch, cat("rank ", rank, " has another shape or type of tensor ",
                                           in_quotes(info.name), " than a rank before it"));
    }
    const auto count = piece.at("count").get<int64_t>();
    if (count == 0) continue;
    entry.add(Slice(entry.info.shape, ranges_of(piece.at("ranges"))),
              {piece.at("first").get<int64_t>(), count, rank});
  }
}

}  // namespace tutti::training

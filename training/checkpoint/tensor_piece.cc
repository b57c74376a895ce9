#include "training/checkpoint/tensor_piece.h"

#include <algorithm>
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
  const std::string tensor = cat("tensor ", in_quotes(piece.name));
  std::string problem = cat(data.rows, " x ", data.cols, " elements from element ", piece.first,
                            " do not fit into ", tensor, ", which has ", count.value_or(0));
  if (!count) problem = tensor + " has an impossible shape";
  if (!fits) problem = cat("the slice of ", tensor, " is one of another shape");
  throw Error(ErrorCode::invalid_argument, "invalid piece: " + problem);
}

void read_parts(const TensorPiece& piece,
                const std::function<void(std::span<const std::byte>)>& read) {
  constexpr int64_t kElements = 1 << 21;
  const int64_t most = piece.after_reading ? kElements : piece.data.cols;
  for (int64_t first = 0; first < piece.data.cols; first += most) {
    const ConstTensor part = piece.data.col_range(first, std::min(most, piece.data.cols - first));
    read({part.data, part.bytes()});
    if (piece.after_reading) piece.after_reading(part);
  }
}

Slice slice_of(const TensorPiece& piece) { return piece.slice.value_or(Slice(piece.shape)); }

Json describe_piece(const TensorPiece& piece) {
  return {{"name", piece.name},   {"dtype", safetensors_name(piece.data.dtype)},
          {"shape", piece.shape}, {"ranges", to_json(slice_of(piece).ranges())},
          {"first", piece.first}, {"count", piece.data.cols}};
}

DescribedPiece described_piece(const Json& description) {
  TensorInfo tensor{description.at("name").get<std::string>(),
                    *safetensors_type(description.at("dtype").get<std::string>()),
                    description.at("shape").get<std::vector<int64_t>>()};
  Slice slice(tensor.shape, ranges_of(description.at("ranges")));
  return {std::move(tensor), std::move(slice), description.at("first").get<int64_t>(),
          description.at("count").get<int64_t>(), description.value("checksum", std::string())};
}

void add_described(const Json& pieces, int rank, std::map<std::string, TensorEntry>& tensors) {
  for (const Json& description : pieces) {
    const DescribedPiece piece = described_piece(description);
    const std::string& name = piece.tensor.name;
    TensorEntry& entry = tensors.try_emplace(name, TensorEntry{piece.tensor, {}}).first->second;
    if (entry.info != piece.tensor) {
      throw Error(ErrorCode::mismatch,
                  cat("rank ", rank, " has a different shape or type of tensor ", in_quotes(name),
                      " from a lower rank"));
    }
    if (piece.count > 0) entry.add(piece.slice, {piece.first, piece.count, rank, piece.checksum});
  }
}

}  // namespace tutti::training

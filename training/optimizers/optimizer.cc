#include "training/optimizers/optimizer.h"

#include <iterator>

#include "base/error.h"
#include "base/text.h"

namespace tutti::training {
namespace {

constexpr int64_t kCacheLine = 16;  // number of floats

bool is_small_or_float(DType type) {
  return type == DType::f16 || type == DType::bf16 || type == DType::f32;
}

bool is_row(const ConstTensor& tensor, int64_t count) {
  return tensor.rows == 1 && tensor.cols == count && is_small_or_float(tensor.dtype);
}

void require(bool good, const OwnedPiece& owned, std::string_view what, std::string_view remedy) {
  if (good) return;
  const Piece& piece = owned.piece;
  throw Error(ErrorCode::invalid_argument, cat("an optimizer was given ", what),
              {.where = cat("parameter ", owned.spec ? owned.spec->name : cat(piece.parameter),
                            ", elements ", piece.first, " to ", piece.first + piece.count),
               .remedy = std::string(remedy)});
}

void check(const OwnedPiece& owned, const Optimizer& optimizer, Optimizer::States states) {
  const Piece& piece = owned.piece;
  require(owned.spec != nullptr, owned, "a piece without its specification", "set spec");
  const int64_t alignment = optimizer.alignment();
  require(piece.first >= 0 && piece.first % alignment == 0, owned,
          "a piece that starts inside an aligned block",
          cat("shard parameters at multiples of ", alignment, " elements"));
  require(is_row(owned.gradient, piece.count), owned, "a gradient of another shape or type",
          "pass 1 x count elements of f16, bf16 or f32");
  require(!owned.master.empty() || !owned.value.empty() || piece.count == 0, owned,
          "neither a master nor a value", "pass one of them");
  require(owned.master.empty() || static_cast<int64_t>(owned.master.size()) == piece.count, owned,
          "a master of another size", "pass as many elements as the piece has");
  require(owned.value.empty() || is_row(owned.value, piece.count), owned,
          "a value of another shape or type", "pass 1 x count elements of f16, bf16 or f32");
  const int64_t first = owned.first_state();
  const int64_t end = first + state_floats(optimizer.state_format(*owned.spec), piece.count);
  for (const std::span<float> state : states) {
    require(
        first >= 0 && end <= std::ssize(state), owned,
        cat("a state of only ", state.size(), " floats"),
        "pass arrays of the size that place_states() returns, or of layout.owned_size elements");
  }
}

}  // namespace

void check_option(bool good, std::string_view option, double value, std::string_view allowed) {
  if (good) return;
  throw Error(ErrorCode::invalid_argument, cat(option, " ", value, " is invalid"),
              {.remedy = cat("use a value ", allowed)});
}

int64_t Optimizer::place_states(std::span<OwnedPiece> pieces) const {
  int64_t floats = 0;
  for (OwnedPiece& owned : pieces) {
    owned.state_offset = floats;
    floats += round_up(state_floats(state_format(*owned.spec), owned.piece.count), kCacheLine);
  }
  return floats;
}

void Optimizer::step(std::span<const OwnedPiece> pieces, States states, const StepOptions& options,
                     NormReducer& reducer) {
  check_option(options.step >= 1, "step", static_cast<double>(options.step), "of at least 1");
  const size_t wanted = state_names().size();
  if (states.size() != wanted) {
    throw Error(ErrorCode::invalid_argument,
                cat("an optimizer of ", wanted, " states was given ", states.size()),
                {.cause = "the state belongs to another optimizer, or to one with other options",
                 .remedy = "pass one array for each of state_names()"});
  }
  for (const OwnedPiece& piece : pieces) {
    check(piece, *this, states);
    require(options.whole != nullptr || whole_states(*piece.spec, options.units).empty(), piece,
            "no states of whole parameters", "set whole");
  }
  update(pieces, states, options, reducer);
}

}  // namespace tutti::training

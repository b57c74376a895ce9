#include "training/optimizers/adamw8bit.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/text.h"
#include "training/optimizers/blocks.h"
#include "training/optimizers/dynamic_map.h"
#include "training/optimizers/optimizer_loops.h"

namespace tutti::training {
namespace {

static_assert(kUpdateBlock % kStateBlock == 0);

bool is_small(const ParameterSpec& spec) { return spec.count() < AdamW8Bit::kLeast8BitElements; }

// A moment of a piece. One block at a time is decoded to f32 for the update.
class Moment {
 public:
  Moment(BlockwiseState state, const DynamicMap& map) : state_(state), map_(map) {}

  // Decodes elements from `first` on, which must be the start of a block.
  float* read(int64_t first, int64_t count) {
    loops_.dequantize(state_.codes + first, map_.values.data(), state_.scales[first / kStateBlock],
                      values_.data(), count);
    return values_.data();
  }
  void write(int64_t first, int64_t count) {
    state_.scales[first / kStateBlock] =
        loops_.quantize(values_.data(), map_.cells.data(), state_.codes + first, count);
  }

 private:
  const optimizer_loops::Loops& loops_ = optimizer_loops::loops();
  BlockwiseState state_;
  const DynamicMap& map_;
  std::array<float, kStateBlock> values_;
};

}  // namespace

AdamW8Bit::AdamW8Bit(const AdamWOptions& options) : options_(options) { check(options); }

StateFormat AdamW8Bit::state_format(const ParameterSpec& spec) const {
  if (is_small(spec)) return StateFormat::f32;
  if (spec.slice().in_blocks(kStateBlock)) return StateFormat::blockwise8;
  throw Error(ErrorCode::unsupported,
              cat("adamw8bit has blocks of ", kStateBlock, " elements, and ", spec.name,
                  " is sharded within a block over the axis ", name(spec.placement.cut_over())),
              {.remedy = "use --optimizer adamw, or fewer ranks along that axis"});
}

void AdamW8Bit::update(std::span<const OwnedPiece> pieces, States states,
                       const StepOptions& options, NormReducer& /*reducer*/) {
  const AdamWStep step(options_, options);
  update_blocks(pieces, {}, options, [&](const UpdateBlock& block) {
    const OwnedPiece& owned = block.owned;
    float* const m = states[0].data() + owned.first_state();
    float* const v = states[1].data() + owned.first_state();
    float* const w = block.values.data();
    const float* const g = block.gradients.data();
    if (is_small(*owned.spec)) {
      step.update(*owned.spec, w, g, m + block.first, v + block.first, block.size());
      return;
    }
    Moment mean({m, owned.piece.count}, signed_dynamic_map());
    Moment squares({v, owned.piece.count}, unsigned_dynamic_map());
    for (int64_t at = 0; at < block.size(); at += kStateBlock) {
      const int64_t count = std::min(kStateBlock, block.size() - at);
      const int64_t first = block.first + at;
      step.update(*owned.spec, w + at, g + at, mean.read(first, count), squares.read(first, count),
                  count);
      mean.write(first, count);
      squares.write(first, count);
    }
  });
}

OptimizerKind adamw8bit_kind() {
  return optimizer_kind<AdamW8Bit, AdamWOptions>("adamw8bit", &suited_adamw, &describe_adamw);
}

}  // namespace tutti::training

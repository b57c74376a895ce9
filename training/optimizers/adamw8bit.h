// AdamW with moments of 8 bits per element.
#pragma once

#include <string>
#include <vector>

#include "training/optimizers/adamw.h"
#include "training/optimizers/optimizer.h"
#include "training/optimizers/registry.h"

namespace tutti::training {

// Dettmers et al.: 8-bit optimizers via block-wise quantization, ICLR 2022, with the data types of
// bitsandbytes (dynamic_map.h). Each step decodes the moments, performs AdamW's update in f32 with
// the moments before they are rounded, and encodes the moments again. Both moments together take 2
// + 8 / 256 bytes per parameter; parameters with fewer than kLeast8BitElements keep f32 moments.
//
// Blocks are counted from the start of the whole parameter, and parameters and shards start at
// multiples of a block (alignment()). Results therefore do not depend on how parameters are
// sharded.
class AdamW8Bit : public Optimizer {
 public:
  static constexpr int64_t kLeast8BitElements = 4096;

  // Creates the optimizer. Throws Error(invalid_argument) for options out of range.
  explicit AdamW8Bit(const AdamWOptions& options = {});
  std::vector<std::string> state_names() const override { return {"exp_avg", "exp_avg_sq"}; }
  StateFormat state_format(const ParameterSpec& spec) const override;
  int64_t alignment() const override { return kStateBlock; }

 private:
  void update(std::span<const OwnedPiece> pieces, States states, const StepOptions& options,
              NormReducer& reducer) override;

  AdamWOptions options_;
};

OptimizerKind adamw8bit_kind();

}  // namespace tutti::training

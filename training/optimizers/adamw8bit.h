// Adam with decoupled weight decay, whose moments take 8 bits for each element.
#pragma once

#include <string>
#include <vector>

#include "training/optimizers/adamw.h"
#include "training/optimizers/optimizer.h"
#include "training/optimizers/registry.h"

namespace tutti::training {

// Dettmers et al.: 8-bit optimizers via block-wise quantization, ICLR 2022, with the data types of
// bitsandbytes (dynamic_map.h). Each step reads the moments' codes, does AdamW's update in f32, of
// values by moments that are not rounded yet, and rounds the moments to codes again. Both moments
// take 2 + 8 / 256 bytes a parameter; parameters of less than kLeast8BitElements keep f32.
//
// Blocks are of the whole parameter, wherever it is cut, so results do not depend on the layout:
// parameters and shards start at multiples of a block (alignment()).
class AdamW8Bit : public Optimizer {
 public:
  static constexpr int64_t kLeast8BitElements = 4096;

  // Throws Error(invalid_argument) for options out of range.
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

// The context of one micro-batch on its way through a model, passed to every module's calls.
//
// A module is a value with handles to its parameters and no other state:
//   forward(pass, input, saved)                    -> output; `saved` gets what backward needs
//   backward_input(pass, output_gradient, saved)   -> dLoss/dInput
//   backward_weight(pass, saved)                   adds dLoss/dParameter to the gradients
//
// Several micro-batches may therefore be in flight at once (pipelines), each with its own `saved`.
// backward_weight may run at once or be deferred (Pass::finish), as zero-bubble schedules do.
//
// Memory: outputs and saved activations come from the pass's arena; the caller that runs the units
// takes marks and releases them. Inputs live until backward is done. Modules keep views, not
// copies.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "training/core/arena.h"
#include "training/core/gemm_format.h"
#include "training/core/later.h"
#include "training/core/placement.h"
#include "training/core/tensor.h"

namespace tutti::training {

class KeyValueCache;
class Mesh;
class TokenPartition;

// Contents of a micro-batch. The data source owns the memory.
struct MicroBatch {
  int64_t samples = 0;
  uint64_t first_sample = 0;  // index of the first sample among all samples since training began
  // Language models: samples x context tokens. There are as many targets as tokens, or one target
  // per sample.
  std::span<const int32_t> tokens;
  // Input numbers of each sample. Images are samples x (height * width * channels), in [0, 1].
  std::span<const float> features;
  // Targets. A negative target is ignored (PyTorch's -100): it has no loss and no gradient and is
  // not counted.
  std::span<const int32_t> targets;
  // Regression targets, used instead of `targets`: samples x outputs.
  std::span<const float> float_targets;
  // If samples contain several documents: for each token, the position in its sample at which its
  // document begins. Attention covers only positions from there on. Empty: each sample is one
  // document.
  std::span<const int32_t> document_starts;
  // The ranges of the micro-batch's tokens that this rank has, if it does not have all (context
  // parallelism, decoding with a cache). Tokens are numbered sample after sample, and each whole
  // sample has `positions` tokens. If `positions` is 0, this rank has all tokens.
  std::span<const Share> ranges;
  int64_t positions = 0;
  // Division of the tokens over the ranks of the context axis; null if they are not divided.
  const TokenPartition* partition = nullptr;
  // 1 for a normal micro-batch. 0 for a micro-batch without effect, which only takes part in the
  // communication inside units while other ranks still have micro-batches: its loss, gradient and
  // statistics are not counted.
  int weight = 1;

  // Returns the number of rows on this rank of a tensor that has `of_a_sample` rows for each whole
  // sample.
  int64_t rows(int64_t of_a_sample) const {
    return positions > 0 ? std::ssize(tokens) : samples * of_a_sample;
  }
};

// Consecutive tokens of one sample, in consecutive rows of a tensor starting at `row`.
struct TokenRun {
  int64_t row = 0;
  int64_t sample = 0;
  int64_t position = 0;  // index of the first token in its sample
  int64_t count = 0;
};

// Calls body(run) in order for each run of consecutive tokens of one sample in `rows` of a
// micro-batch.
template <typename Body>
void for_each_run(const MicroBatch& batch, const Share& rows, const Body& body) {
  const int64_t here = std::ssize(batch.tokens);
  const Share all{0, here};
  const int64_t positions = batch.positions > 0 ? batch.positions : here / batch.samples;
  int64_t row = 0;  // row of the range's first token
  for (const Share& range : batch.positions > 0 ? batch.ranges : std::span(&all, 1)) {
    const int64_t end = std::min(row + range.count, rows.first + rows.count);
    for (int64_t at = std::max(row, rows.first); at < end;) {
      const int64_t token = range.first + at - row;
      const int64_t position = token % positions;
      const int64_t count = std::min(end - at, positions - position);
      body(TokenRun{at, token / positions, position, count});
      at += count;
    }
    row += range.count;
  }
}

// A term that a unit adds to the minimized loss, besides the loss of the targets.
struct NamedLoss {
  std::string name;
  Later<double> sum;  // sum over the micro-batch's samples
};

// A message that a unit would send to other ranks, but skips because the pass has no mesh.
struct UnsentMessage {
  Axis axis = Axis::tensor;
  const char* call = "";  // a literal: "all_reduce", as Mesh::add_unit_traffic() takes it
  double bytes = 0;       // bytes that the rank would send
};

// The part of a pass that does not depend on the memory space in which the micro-batch runs. It
// does not change once the micro-batch has started.
struct PassContext {
  const MicroBatch* batch = nullptr;
  DType dtype = DType::f32;  // type of activations
  int slot = 0;          // index among the micro-batches in flight; units keep one `saved` per slot
  uint64_t seed = 0;     // seed of dropout and stochastic rounding
  bool training = true;  // true if dropout and batch statistics are on
  // Format to which dense layers round the operands of their products (modules/linear.h).
  GemmFormat gemm_format = GemmFormat::none;
  // Deterministic mode: number of slices of the computations that tensor-parallel ranks share
  // (slices.h); otherwise 1.
  int slices = 1;
  // The groups of ranks that communicate inside units (parallel/mesh.h); null for a single rank.
  // All ranks of a group run the same number of micro-batches through the unit, some of them of
  // weight 0.
  Mesh* mesh = nullptr;
  // If set, and there is no mesh, collects the messages that units skip.
  std::vector<UnsentMessage>* unsent = nullptr;
  // Keys and values of the tokens that precede the micro-batch (decoding). The micro-batch must
  // then be one range of one sample, and backward is not supported.
  KeyValueCache* cache = nullptr;
  // Factors by which backward multiplies gradients. The gradient of the targets' losses starts as
  // loss_scale * d(sum). The gradient of each named loss starts as sample_scale * w * d(sum), where
  // the unit chooses the weight w.
  double loss_scale = 1;
  double sample_scale = 1;

  // Returns true for a micro-batch of weight 0.
  bool weightless() const { return batch != nullptr && batch->weight == 0; }
  void record_unsent(const UnsentMessage& message) const {
    if (unsent != nullptr && message.bytes > 0) unsent->push_back(message);
  }
};

struct Pass : PassContext {
  Arena& arena;
  // true if this forward is a recomputation, which must not change running statistics
  bool recomputing = false;
  // True if the work of backward_weight is deferred. The work is then collected in `weight_work`,
  // in order.
  bool split = false;
  std::vector<std::function<void()>> weight_work = {};
  // Loss of the targets, which the last unit's forward sets.
  Later<Loss> loss = {};
  // Losses of units, which forward of any unit may add.
  std::vector<NamedLoss> losses = {};

  // Adds the sum of a loss that the unit has declared (Unit::losses) over the micro-batch's
  // samples. The trainer reports its mean over the step's samples. The unit's own backward must add
  // its gradient.
  void add_loss(std::string name, Later<double> sum) {
    losses.push_back({std::move(name), std::move(sum)});
  }

  // True if the module also computes rows of other ranks, whose micro-batches may have weight 1
  // when this rank's has weight 0.
  bool has_others_rows = false;

  // Runs `work`, the backward_weight of a module whose `saved` is complete: at once, or later if
  // `split` is set. Skips it for a micro-batch of weight 0, so that not even a NaN reaches the
  // gradients.
  template <typename Work>
  void finish(Work&& work) {
    if (weightless() && !has_others_rows) return;
    if (split) {
      weight_work.emplace_back(std::forward<Work>(work));
    } else {
      work();
    }
  }
};

}  // namespace tutti::training

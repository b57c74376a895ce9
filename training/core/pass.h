// One micro-batch on its way through a model, and what every module's calls have in common.
//
// A module is a value with parameters (handles), no state of its own:
//   forward(pass, input, saved)                    -> output; `saved` gets what backward needs
//   backward_input(pass, output_gradient, saved)   -> dLoss/dInput
//   backward_weight(pass, saved)                   adds dLoss/dParameter to the gradients
// so that several micro-batches may be under way at once (pipelines), each with its own `saved`.
// backward_weight may run at once or be put off (Pass::finish): zero-bubble schedules do.
//
// Memory: outputs and whatever is saved come from the pass's arena; whoever runs the units takes
// marks and releases them. Inputs live until backward is done. Modules keep views, not copies.
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
class TokenDeal;

// What a micro-batch consists of. The memory is the data source's.
struct MicroBatch {
  int64_t samples = 0;
  uint64_t first_sample = 0;  // its number among all samples since training began
  // Language models: samples x context tokens, and as many (or one per sample) to predict.
  std::span<const int32_t> tokens;
  // Numbers that are known of each sample: images are samples x (height * width * channels), in
  // [0, 1].
  std::span<const float> features;
  // Those below 0 are ignored (PyTorch's -100): no loss, no gradient, not counted.
  std::span<const int32_t> targets;
  // In place of them, where numbers are predicted: samples x outputs.
  std::span<const float> float_targets;
  // Where samples hold several documents: of each token the position in its sample where its
  // document begins, further back than which nothing is looked at. Empty: 0.
  std::span<const int32_t> document_starts;
  // The tokens here may be some of the micro-batch's (context parallelism, decoding with a cache):
  // those of `ranges`, numbered sample after sample, where each sample has `positions` in all. 0
  // positions: all of them are here.
  std::span<const Share> ranges;
  int64_t positions = 0;
  // Which ranks have the others, where they are dealt out over the context axis.
  const TokenDeal* deal = nullptr;
  // 1; or 0: run so that this rank takes part in what units say to each other while other ranks
  // have micro-batches left. It contributes exactly nothing: no loss, gradient or statistics.
  int weight = 1;

  // That a tensor with so many rows for each whole sample has here.
  int64_t rows(int64_t of_a_sample) const {
    return positions > 0 ? std::ssize(tokens) : samples * of_a_sample;
  }
};

// Tokens of one sample that follow each other, in rows from `row` on.
struct TokenRun {
  int64_t row = 0;
  int64_t sample = 0;
  int64_t position = 0;  // of the first one in its sample
  int64_t count = 0;
};

// body(run) for the tokens in these of a micro-batch's rows, in their order.
template <typename Body>
void for_each_run(const MicroBatch& batch, const Share& rows, const Body& body) {
  const int64_t here = std::ssize(batch.tokens);
  const Share all{0, here};
  const int64_t positions = batch.positions > 0 ? batch.positions : here / batch.samples;
  int64_t row = 0;  // of the range's first token
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

// A unit's own term of what is minimized, besides the targets' losses.
struct NamedLoss {
  std::string name;
  Later<double> sum;  // over the micro-batch's samples
};

// A message to other ranks that a unit leaves out because the pass has no mesh.
struct UnsentMessage {
  Axis axis = Axis::tensor;
  const char* call = "";  // a literal: "all_reduce", as Mesh::add_said() takes it
  double bytes = 0;       // that the rank would send
};

// What all passes of a micro-batch have in common, in whatever memory they run: it is said where
// the micro-batch starts, and nothing changes it after that.
struct PassContext {
  const MicroBatch* batch = nullptr;
  DType dtype = DType::f32;  // of activations
  int slot = 0;              // which of the micro-batches under way: units keep `saved` by slot
  uint64_t seed = 0;         // of dropout, and of rounding by chance
  bool training = true;      // dropout and batch statistics are on
  // To which dense layers round what they multiply (LinearOptions::keeps_precision).
  GemmFormat gemm_format = GemmFormat::none;
  // Deterministic mode: how many parts what tensor ranks share is computed in (slices.h); else 1.
  int slices = 1;
  // The ranks' groups, for communication inside units (parallel/mesh.h); null where one rank is
  // alone. Every rank of a group runs as many micro-batches through the unit, some of weight 0.
  Mesh* mesh = nullptr;
  // Without a mesh: lists the messages that units leave out. Null: nobody asks.
  std::vector<UnsentMessage>* unsent = nullptr;
  // Keys and values of the tokens before those of the micro-batch, which are one range of one
  // sample; no backward.
  KeyValueCache* cache = nullptr;
  // backward starts with loss_scale * d(sum of the targets' losses), and adds sample_scale * w *
  // d(sum) for a named loss, whose weight w is its unit's affair.
  double loss_scale = 1;
  double sample_scale = 1;

  // Whether the micro-batch is one of weight 0.
  bool weightless() const { return batch != nullptr && batch->weight == 0; }
  void leave_out(const UnsentMessage& message) const {
    if (unsent != nullptr && message.bytes > 0) unsent->push_back(message);
  }
};

struct Pass : PassContext {
  Arena& arena;
  bool recomputing = false;  // this forward is a repetition: running statistics stay as they are
  // Put-off work of backward_weight, in order; only if `split`.
  bool split = false;
  std::vector<std::function<void()>> weight_work = {};
  // Set by the last unit's forward.
  Later<Loss> loss = {};
  // Of a unit's forward, in any unit.
  std::vector<NamedLoss> losses = {};

  // A loss that the unit has declared (Unit::losses), of which the step's mean over all samples is
  // told. Its gradient is added by the unit's own backward.
  void add_loss(std::string name, Later<double> sum) {
    losses.push_back({std::move(name), std::move(sum)});
  }

  // The module computes with rows of other ranks, whose micro-batches may have weight 1 when this
  // one has weight 0.
  bool has_others_rows = false;

  // backward_weight of a module whose `saved` is complete: now, or later if passes are split. Not
  // at all for a micro-batch of weight 0, so that not even a NaN of it gets into the gradients.
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

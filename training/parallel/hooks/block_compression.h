// Sends gradients in a block format (base/block_format.h), with error feedback.
//
// Each rank owns a part of a bucket, cut at blocks. With 2 ranks:
//
//   rank 0   M = gradient + error   | encode 0 | encode 1 |  all-to-all    sum of decoded parts 0
//   rank 1   M = gradient + error   | encode 0 | encode 1 |   start()      sum of decoded parts 1
//
//   each owner encodes its sum; all-gather; every rank decodes all of it      finish()
//
// Error feedback is exact: error = M - decoded(M), rounded once, and an owner adds its sum -
// decoded(sum). So no gradient is lost: the sum of all results is that of all gradients less the
// ranks' current errors. An owner decodes what it sent, so all ranks have the same bits; decoded
// parts are added in f32 in the order of ranks.
//
// Seide et al.: 1-bit SGD (2014); Karimireddy et al.: Error feedback fixes SignSGD (2019).
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "base/block_format.h"
#include "training/core/layout.h"
#include "training/parallel/data_parallel.h"
#include "training/parallel/hooks/error_feedback.h"

namespace tutti::training {

// Errors are local to the rank, and included in checkpoints. Only the sum of all ranks' errors
// matters, so another number of ranks may redistribute it. If a sum is not finite, its gradients
// are not either, and the bucket's errors become zero.
class BlockCompression : public CommunicationHook {
 public:
  // Arguments are not retained.
  BlockCompression(BlockFormat format, const Layout& layout,
                   const std::vector<ParameterSpec>& specs);

  // Gradients must be f32 or bf16. For f16 it throws Error(invalid_argument): the loss scale
  // changes from step to step, so errors of one step cannot be added to the next.
  void start(Communicator& communicator, int bucket, Tensor gradients) override;
  // Begins the all-gather, so all ranks must finish their buckets in the same order.
  void finish(int bucket, Tensor gradients) override;
  int64_t payload_bytes(int bucket, Tensor gradients) const override;
  int64_t bytes() const override;
  bool remembers() const override { return true; }
  // Errors of a bucket, one per element; callers may adjust what is sent next.
  std::vector<float>& errors(int bucket) { return state(bucket).errors.values(); }
  std::vector<HookState> states(Communicator& communicator, DType gradients) override;

 private:
  struct BucketState {
    explicit BucketState(BucketErrors its) : errors(std::move(its)) {}
    BucketErrors errors;
    // Set by the first start().
    Communicator communicator;
    std::vector<Share> parts;  // of each rank, in values
    Blocks sent_blocks;        // bytes for each rank
    Blocks received_blocks;    // of this rank's part, once from each rank
    Memory<std::byte> sent;    // all of M; then all of the sum
    Memory<std::byte> received;
    Work exchange;
  };

  BucketState& state(int bucket) { return buckets_.at(static_cast<size_t>(bucket)); }
  void prepare(BucketState& at, Communicator& communicator, DType dtype);
  void sum_own_part(BucketState& at);

  BlockFormat format_;
  std::vector<BucketState> buckets_;
  std::vector<float> values_;  // twice the size of the largest bucket
};

}  // namespace tutti::training

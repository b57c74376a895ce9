// Sends gradients in a block format (base/block_format.h), with error feedback.
//
// Each rank owns a part of a bucket, which consists of whole blocks. With 2 ranks:
//
//   rank 0   M = gradient + error   | encode 0 | encode 1 |  all-to-all    sum of decoded parts 0
//   rank 1   M = gradient + error   | encode 0 | encode 1 |   start()      sum of decoded parts 1
//
//   each owner encodes its sum; all-gather; every rank decodes all sums       finish()
//
// Error feedback is exact: error = M - decoded(M), rounded once, and an owner adds (its sum -
// decoded(sum)) to its errors. No gradient is lost: the sum of all results equals the sum of all
// gradients minus the ranks' current errors. An owner also decodes its own encoded sum, so all
// ranks have the same bits. Decoded parts are added in f32 in the order of ranks.
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

// The hook. Errors are local to the rank, and part of checkpoints. Only the sum of all ranks'
// errors matters, so a run that resumes on another number of ranks divides that sum among its
// ranks. If a sum is not finite, the bucket's gradients become non-finite and its errors zero.
class BlockCompression : public CommunicationHook {
 public:
  // Creates the hook; does not retain references to its arguments.
  BlockCompression(BlockFormat format, const Layout& layout,
                   const std::vector<ParameterSpec>& specs);

  // Begins the sum. Gradients must be f32 or bf16. For f16 it throws Error(invalid_argument): the
  // loss scale changes from step to step, so errors of one step cannot be added to the next.
  void start(Communicator& communicator, int bucket, Tensor gradients) override;
  // Begins the all-gather and blocks until it is done; all ranks must finish their buckets in the
  // same order.
  void finish(int bucket, Tensor gradients) override;
  int64_t payload_bytes(int bucket, Tensor gradients) const override;
  int64_t bytes() const override;
  bool remembers() const override { return true; }
  // Returns the errors of a bucket, one per element. The caller may change them, to adjust what is
  // sent next.
  std::vector<float>& errors(int bucket) { return state(bucket).errors.values(); }
  std::vector<HookState> states(Communicator& communicator, DType gradients) override;

 private:
  struct BucketState {
    explicit BucketState(BucketErrors its) : errors(std::move(its)) {}
    BucketErrors errors;
    // set by the first start()
    Communicator communicator;
    std::vector<Share> parts;  // each rank's range of elements
    Blocks sent_blocks;        // ranges of bytes sent to each rank
    Blocks received_blocks;    // ranges of bytes of this rank's part, as received from each rank
    Memory<std::byte> sent;    // encoded M; from finish() on, the encoded sums
    Memory<std::byte> received;
    Work exchange;
  };

  BucketState& state(int bucket) { return buckets_.at(static_cast<size_t>(bucket)); }
  void prepare(BucketState& at, Communicator& communicator, DType dtype);
  void sum_own_part(BucketState& at);

  BlockFormat format_;
  std::vector<BucketState> buckets_;
  std::vector<float> values_;  // two values per element of the largest bucket
};

}  // namespace tutti::training

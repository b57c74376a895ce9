// Top-k compression: each rank sends the largest gradients of a bucket, and adds the rest to later
// steps.
//
//   M = gradient + error       on each rank
//   sent = the k largest |M|   as index and value, 8 bytes each: all-gather
//   gradient = sum of all ranks' sent values, in the order of ranks: the same bits on every rank
//   error = M, but 0 for sent elements
//
// Aji and Heafield: Sparse communication for distributed gradient descent (2017); Stich,
// Cordonnier, Jaggi: Sparsified SGD with memory (2018).
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "training/core/layout.h"
#include "training/parallel/data_parallel.h"
#include "training/parallel/hooks/error_feedback.h"

namespace tutti::training {

// The hook. Checkpoints and non-finite values are handled as in BlockCompression.
class TopK : public CommunicationHook {
 public:
  // Creates a hook that sends the given fraction of each bucket's elements, but at least one.
  // Throws Error(invalid_argument) unless `fraction` is above 0 and at most 1. Does not retain
  // references to its arguments.
  TopK(double fraction, const Layout& layout, const std::vector<ParameterSpec>& specs);

  // Begins the exchange. Gradients must be f32 or bf16; for f16 it throws Error(invalid_argument).
  void start(Communicator& communicator, int bucket, Tensor gradients) override;
  void finish(int bucket, Tensor gradients) override;
  bool test(int bucket) override { return state(bucket).gather.test(); }
  // Returns half of the gathered bytes: each entry is sent once per receiver, but the caller counts
  // twice the payload, as for an all-reduce.
  int64_t payload_bytes(int bucket, Tensor gradients) const override;
  int64_t bytes() const override;
  bool remembers() const override { return true; }
  std::vector<HookState> states(Communicator& communicator, DType gradients) override;

 private:
  struct Entry {
    uint32_t index;
    float value;
  };
  struct BucketState {
    explicit BucketState(BucketErrors its) : errors(std::move(its)) {}
    BucketErrors errors;
    size_t sent = 0;  // number of entries per rank
    // set by the first start()
    int ranks = 0;
    int rank = 0;
    Memory<Entry> entries;  // entries of all ranks
    Work gather;
  };

  BucketState& state(int bucket) { return buckets_.at(static_cast<size_t>(bucket)); }
  static void prepare(BucketState& at, Communicator& communicator);
  // Selects the entries to send, in the order of indices, and zeroes their errors.
  void choose(BucketState& at);

  std::vector<BucketState> buckets_;
  std::vector<float> values_;      // as many values as the largest bucket has
  std::vector<uint32_t> indices_;  // as many indices as the largest bucket has values
};

}  // namespace tutti::training

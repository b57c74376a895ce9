// Data parallelism: every rank holds the whole model and takes a share of the global batch.
//
// The global batch is cut into micro-batches whose sizes depend on the batch alone, and whole
// micro-batches are dealt out to ranks. Whatever the number of ranks, each micro-batch is computed
// with the same matrix shapes and so gives the same bits; only the order in which micro-batch
// gradients are added differs. That keeps the losses of different rank counts together (README.md
// has numbers).
//
// The arithmetic (free functions) knows nothing of ranks; DataParallel does the communication.
#pragma once

#include <chrono>
#include <cstdint>

#include "collectives/communicator.h"
#include "training/byte_model.h"
#include "training/parameters.h"
#include "training/text_data.h"

namespace tutti::training {

// A range of samples or micro-batches.
struct Range {
  int64_t begin = 0;
  int64_t end = 0;

  int64_t size() const { return end - begin; }
  bool operator==(const Range&) const = default;
};

// Part `part` of `parts` of [0, count): sizes differ by at most 1, and may be 0.
Range even_part(int64_t count, int64_t part, int64_t parts);

// At most 32 samples each, and, where there are that many samples, a multiple of 48 of them: it
// deals out evenly to 1, 2, 3, 4, 6, 8, 12, 16, 24 and 48 ranks.
int64_t micro_batch_count(int64_t batch);

// Adds the gradients of the global batch's mean loss that come from the micro-batches in `share`,
// in ascending order. Returns the sum of their samples' losses.
double accumulate_gradients(ByteModel& model, const TextData& text, uint64_t seed, uint64_t step,
                            int64_t batch, Range share);

// Sum of the losses at the given positions, 256 at a time.
double sum_losses(ByteModel& model, const TextData& text, std::span<const size_t> positions);

class DataParallel {
 public:
  // Broadcasts rank 0's parameter values. Collective. `parameters` must outlive this object.
  DataParallel(Communicator communicator, Parameters& parameters);

  // The micro-batches that this rank takes.
  Range share(int64_t batch) const;
  // Sums the gradients over ranks, in place. Collective.
  void reduce_gradients();
  // The sum over ranks, the same on each. Collective.
  double sum(double value);

  const Communicator& communicator() const { return communicator_; }
  // Time spent in these calls so far, waiting for slower ranks included.
  std::chrono::nanoseconds communication_time() const { return communication_time_; }

 private:
  Communicator communicator_;
  Parameters& parameters_;
  std::chrono::nanoseconds communication_time_{0};
};

}  // namespace tutti::training

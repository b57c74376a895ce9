#include "training/data_parallel.h"

#include <algorithm>
#include <utility>

#include "base/deadline.h"

namespace tutti::training {
namespace {

constexpr int64_t kMicroBatchSize = 32;
constexpr int64_t kMicroBatchMultiple = 48;
constexpr int64_t kEvaluationBatch = 256;

// Adds the time from its construction to its destruction.
class Stopwatch {
 public:
  explicit Stopwatch(std::chrono::nanoseconds& total) : total_(total) {}
  ~Stopwatch() { total_ += Clock::now() - start_; }

 private:
  std::chrono::nanoseconds& total_;
  Clock::time_point start_ = Clock::now();
};

}  // namespace

Range even_part(int64_t count, int64_t part, int64_t parts) {
  const int64_t each = count / parts;
  const int64_t left_over = count % parts;
  const int64_t begin = part * each + std::min(part, left_over);
  return {begin, begin + each + (part < left_over ? 1 : 0)};
}

int64_t micro_batch_count(int64_t batch) {
  constexpr int64_t kRound = kMicroBatchSize * kMicroBatchMultiple;
  return std::min(batch, (batch + kRound - 1) / kRound * kMicroBatchMultiple);
}

double accumulate_gradients(ByteModel& model, const TextData& text, uint64_t seed, uint64_t step,
                            int64_t batch, Range share) {
  const int64_t count = micro_batch_count(batch);
  const float scale = static_cast<float>(1.0 / static_cast<double>(batch));
  const size_t context = static_cast<size_t>(model.config().context);
  double loss = 0;
  Batch samples;
  for (int64_t micro_batch = share.begin; micro_batch < share.end; ++micro_batch) {
    const Range range = even_part(batch, micro_batch, count);
    samples.clear();
    for (int64_t index = range.begin; index < range.end; ++index) {
      samples.add(text.bytes, training_position(text, seed, step, static_cast<uint64_t>(index)),
                  context);
    }
    loss += model.forward(samples);
    model.backward(scale);
  }
  return loss;
}

double sum_losses(ByteModel& model, const TextData& text, std::span<const size_t> positions) {
  double loss = 0;
  Batch samples;
  while (!positions.empty()) {
    const size_t count = std::min<size_t>(kEvaluationBatch, positions.size());
    samples.clear();
    for (size_t position : positions.first(count)) {
      samples.add(text.bytes, position, static_cast<size_t>(model.config().context));
    }
    loss += model.forward(samples);
    positions = positions.subspan(count);
  }
  return loss;
}

DataParallel::DataParallel(Communicator communicator, Parameters& parameters)
    : communicator_(std::move(communicator)), parameters_(parameters) {
  const Stopwatch stopwatch(communication_time_);
  communicator_.broadcast(parameters_.values(), 0);
}

Range DataParallel::share(int64_t batch) const {
  return even_part(micro_batch_count(batch), communicator_.rank(), communicator_.size());
}

void DataParallel::reduce_gradients() {
  const Stopwatch stopwatch(communication_time_);
  communicator_.all_reduce(parameters_.gradients());
}

double DataParallel::sum(double value) {
  const Stopwatch stopwatch(communication_time_);
  communicator_.all_reduce(std::span(&value, 1));
  return value;
}

}  // namespace tutti::training

// The arithmetic of data parallelism, with ranks that take turns in one thread.
#include "training/data_parallel.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "training/optimizer.h"
#include "training/random.h"
#include "training/text_data.h"

namespace tutti::training {
namespace {

constexpr ByteModelConfig kSmallModel{.context = 4, .embedding = 8, .hidden = 48, .layers = 2};

// A text in which the two bytes before determine the next one three times out of four: a table of
// byte pairs cannot know it, a model with a longer context can.
TextData markov_text(size_t size) {
  constexpr uint64_t kLetters = 8;
  std::vector<uint8_t> bytes = {'a', 'b'};
  while (bytes.size() < size) {
    const size_t i = bytes.size();
    const uint64_t bits = random_bits(5, 0, i);
    const uint64_t ruled = (3 * bytes[i - 1] + 5 * bytes[i - 2]) % kLetters;
    const uint64_t drawn = scale_below(mix_bits(bits), kLetters);
    bytes.push_back(static_cast<uint8_t>('a' + (bits % 4 != 0 ? ruled : drawn)));
  }
  return split_text(std::move(bytes));
}

struct Outcome {
  std::vector<double> losses;
  double validation_loss = 0;
};

Outcome train_with(int ranks, const TextData& text, int64_t batch, int64_t steps) {
  ByteModel model(kSmallModel);
  Parameters parameters(model.layout());
  model.bind(parameters);
  model.initialize(3);
  AdamW adamw({.beta2 = 0.99f});
  const LearningRateSchedule schedule{.peak = 0.01f, .warmup_steps = 5, .total_steps = steps};
  Outcome outcome;
  std::vector<float> sum(parameters.layout().size);
  for (int64_t step = 0; step < steps; ++step) {
    std::ranges::fill(sum, 0.0f);
    double loss = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      parameters.zero_gradients();
      loss += accumulate_gradients(model, text, 7, static_cast<uint64_t>(step), batch,
                                   even_part(micro_batch_count(batch), rank, ranks));
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += parameters.gradients()[i];
    }
    std::ranges::copy(sum, parameters.gradients().begin());
    adamw.step(parameters, schedule.at(step));
    outcome.losses.push_back(loss / static_cast<double>(batch));
  }
  const std::vector<size_t> positions = validation_positions(text);
  outcome.validation_loss =
      sum_losses(model, text, positions) / static_cast<double>(positions.size());
  return outcome;
}

TEST(EvenPartTest, PartsFollowEachOtherAndDifferByOneAtMost) {
  for (const int64_t count : {0, 1, 3, 32, 100}) {
    for (const int64_t parts : {1, 2, 3, 7, 40}) {
      int64_t next = 0;
      for (int64_t part = 0; part < parts; ++part) {
        const Range range = even_part(count, part, parts);
        EXPECT_EQ(range.begin, next);
        EXPECT_GE(range.size(), count / parts);
        EXPECT_LE(range.size(), count / parts + 1);
        next = range.end;
      }
      EXPECT_EQ(next, count);
    }
  }
}

TEST(MicroBatchTest, CountDealsOutEvenlyAndStaysSmall) {
  EXPECT_EQ(micro_batch_count(1536), 48);
  EXPECT_EQ(micro_batch_count(1537), 96);
  EXPECT_EQ(micro_batch_count(100), 48);
  EXPECT_EQ(micro_batch_count(5), 5);
  for (const int64_t batch : {1, 47, 48, 1000, 1536, 5000, 12345}) {
    const int64_t count = micro_batch_count(batch);
    EXPECT_LE((batch + count - 1) / count, 32) << batch;
    EXPECT_LE(count, batch);
  }
}

TEST(DataParallelArithmeticTest, GradientIsThatOfTheGlobalMean) {
  const TextData text = markov_text(5000);
  ByteModel model(kSmallModel);
  Parameters parameters(model.layout());
  model.bind(parameters);
  model.initialize(1);
  constexpr int64_t kBatch = 101;  // micro-batches of 2 and 3 samples
  const Range all{0, micro_batch_count(kBatch)};
  const auto loss = [&] {
    parameters.zero_gradients();
    return accumulate_gradients(model, text, 1, 0, kBatch, all) / kBatch;
  };
  loss();
  const std::vector<float> gradients(parameters.gradients().begin(), parameters.gradients().end());
  for (const ParameterSlot& slot : parameters.layout().slots) {
    // Along the gradient the loss grows by its squared length.
    double squared = 0;
    for (size_t i = 0; i < slot.count; ++i) {
      squared += std::pow(static_cast<double>(gradients[slot.offset + i]), 2);
    }
    ASSERT_GT(squared, 0) << slot.name;
    const std::vector<float> values(parameters.values().begin(), parameters.values().end());
    const double step = 0.01 / std::sqrt(squared);
    const auto at = [&](double sign) {
      for (size_t i = slot.offset; i < slot.offset + slot.count; ++i) {
        parameters.values()[i] = static_cast<float>(values[i] + sign * step * gradients[i]);
      }
      return loss();
    };
    const double slope = (at(1) - at(-1)) / (2 * step);
    std::ranges::copy(values, parameters.values().begin());
    EXPECT_NEAR(slope, squared, 0.003 * squared) << slot.name;
  }
}

TEST(DataParallelArithmeticTest, LossesDoNotDependOnTheNumberOfRanks) {
  const TextData text = markov_text(20000);
  constexpr int64_t kBatch = 500;
  const Outcome alone = train_with(1, text, kBatch, 60);
  for (const int ranks : {2, 3, 4, 7}) {
    const Outcome shared = train_with(ranks, text, kBatch, 60);
    for (size_t step = 0; step < alone.losses.size(); ++step) {
      EXPECT_NEAR(shared.losses[step] / alone.losses[step], 1.0, 2e-6)
          << ranks << " ranks, step " << step;
    }
  }
}

TEST(DataParallelArithmeticTest, RanksWithoutSamplesAreFine) {
  const TextData text = markov_text(2000);
  const Outcome alone = train_with(1, text, 3, 10);
  const Outcome shared = train_with(5, text, 3, 10);
  for (size_t step = 0; step < alone.losses.size(); ++step) {
    EXPECT_NEAR(shared.losses[step] / alone.losses[step], 1.0, 2e-6);
  }
}

TEST(DataParallelArithmeticTest, SameSeedSameBits) {
  const TextData text = markov_text(5000);
  const Outcome first = train_with(2, text, 200, 20);
  const Outcome second = train_with(2, text, 200, 20);
  EXPECT_EQ(first.losses, second.losses);
  EXPECT_EQ(first.validation_loss, second.validation_loss);
}

TEST(DataParallelArithmeticTest, LearnsMoreThanBytePairs) {
  const TextData text = markov_text(50000);
  const double pairs = bigram_entropy(text.bytes);
  const Outcome outcome = train_with(1, text, 512, 150);
  EXPECT_NEAR(outcome.losses.front(), std::log(256), 0.1);
  EXPECT_LT(outcome.losses.back(), 0.75 * pairs);
  EXPECT_LT(outcome.validation_loss, 0.75 * pairs);
}

}  // namespace
}  // namespace tutti::training

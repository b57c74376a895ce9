// What `tutti train` makes of its options: data, a model, and a run of settled size.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "tools/tutti/train_options.h"
#include "training/data/data_set.h"
#include "training/model.h"
#include "training/modules/batch_norm.h"

namespace tutti::tool {

struct LoadedData {
  std::vector<std::unique_ptr<training::DataSet>> sets;
  uint64_t text_bytes = 0;    // of texts
  double bigram_entropy = 0;  // of one text, in nats

  std::vector<const training::DataSet*> views() const;
  uint64_t examples() const;  // to train on
};

// Throw Error for data that cannot be read and for what makes no sense. The data tell the size of
// the vocabulary, unless an option did.
LoadedData load_data(TrainCommand& options);
// With a reducer, batch statistics are summed over ranks, if --sync-bn asks for it.
std::unique_ptr<training::Model> make_model(const TrainCommand& options,
                                            training::StatisticsReducer* reducer = nullptr);
// Samples of a micro-batch, and tokens that the model sees, where no option says otherwise.
int64_t default_micro_batch(const ModelOptions& options);
int64_t context_of(const ModelOptions& options);
// The ranks that the options ask for; 0: any number.
int wanted_ranks(const TrainCommand& options);
// Completes options.training: sizes of the run and of steps, on so many ranks.
void settle(TrainCommand& options, int ranks, uint64_t examples);

}  // namespace tutti::tool

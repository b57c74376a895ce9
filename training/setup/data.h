// The data that options name.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "training/data/data_set.h"
#include "training/setup/options.h"

namespace tutti::training {

struct LoadedData {
  std::vector<std::unique_ptr<DataSet>> sets;
  uint64_t text_bytes = 0;            // of texts
  std::vector<std::string> left_out;  // of directories of texts (data/text_files.h)
  double bigram_entropy = 0;          // of one text, in nats

  std::vector<const DataSet*> views() const;
  uint64_t examples() const;  // to train on
};

// Throws Error for data that cannot be read and for what makes no sense. The data tell the size of
// the vocabulary, unless an option did.
LoadedData load_data(RunOptions& options);

}  // namespace tutti::training

// Loads the data that options name.
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
  uint64_t text_bytes = 0;           // number of bytes of texts
  std::vector<std::string> skipped;  // skipped files in directories of texts (data/text_files.h)
  // bigram entropy in nats, if all texts together form one data set; otherwise 0
  double bigram_entropy = 0;

  std::vector<const DataSet*> views() const;
  uint64_t examples() const;  // Returns the number of training examples.
};

// Loads the data. Sets the model's sizes in `options` that follow from the data, such as the
// vocabulary, unless an option specifies them. Throws Error for unreadable data and for invalid
// options.
LoadedData load_data(RunOptions& options);

}  // namespace tutti::training

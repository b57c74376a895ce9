// Loading of the data that options name.
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
  uint64_t text_bytes = 0;            // size of texts
  std::vector<std::string> left_out;  // skipped files in directories of texts (data/text_files.h)
  double bigram_entropy = 0;          // for a single text, in nats

  std::vector<const DataSet*> views() const;
  uint64_t examples() const;  // for training
};

// Throws Error for unreadable data and for invalid options. The data determine the size of the
// vocabulary, unless an option does.
LoadedData load_data(RunOptions& options);

}  // namespace tutti::training

// Text files to token files: what `tutti tokenize` runs. Memory does not grow with the text.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "training/data/text_files.h"
#include "training/data/tokenizer.h"

namespace tutti::training {

struct TokenizeOptions {
  std::string out;                // token file
  std::string validation_out;     // of the text's last part; empty: none is held out
  double validation_share = 0.1;  // of the bytes, above 0 and below 1
};

struct TokenizeResult {
  uint64_t bytes = 0;
  uint64_t characters = 0;  // of UTF-8
  uint64_t tokens = 0;      // in `out`
  uint64_t validation_tokens = 0;
};

// The tokens of the files' texts, one after the other as if they were one. Held-out text begins
// where the share says, or shortly before it, so that no word is cut. `progress` is called now and
// then with the bytes done. Output files appear, or are replaced, when all is written. Throws
// Error: about a path, the disk, or options.
TokenizeResult tokenize_files(const std::vector<TextFile>& files, const Tokenizer& tokenizer,
                              const TokenizeOptions& options,
                              const std::function<void(uint64_t bytes_done)>& progress);

}  // namespace tutti::training

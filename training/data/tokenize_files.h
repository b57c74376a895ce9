// Text files to token files: what `tutti tokenize` runs. Memory does not grow with the text; all
// processors encode.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "training/data/text_files.h"
#include "training/data/tokenizer.h"

namespace tutti::training {

struct TokenizeOptions {
  std::string out;                // token file
  std::string validation_out;     // of the text's last part; empty: none is held out
  double validation_share = 0.1;  // of the files' bytes, above 0 and below 1
  DocumentFields fields;
  std::optional<int32_t> end_of_text;  // behind each document; none: texts are joined as they are
  int threads = 0;                     // that encode; 0: one for each processor
};

struct TokenizeResult {
  uint64_t documents = 0;
  uint64_t bytes = 0;       // of the texts
  uint64_t characters = 0;  // of UTF-8
  uint64_t tokens = 0;      // in `out`
  uint64_t validation_tokens = 0;
  uint64_t unpredicted = 0;  // of all tokens: those of prompts
};

// The tokens of the files' documents, one after the other. Files are the same for any number of
// threads. Tokens of prompts are marked: nobody learns to predict them. `progress` is called now
// and then with the bytes done. Output files appear, or are replaced, when all is written. Throws
// Error: about a path, the disk, or options.
TokenizeResult tokenize_files(const std::vector<TextFile>& files, const Tokenizer& tokenizer,
                              const TokenizeOptions& options,
                              const std::function<void(uint64_t bytes_done)>& progress);

}  // namespace tutti::training

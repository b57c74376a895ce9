// Conversion of text files to token files, for `tutti tokenize`. Memory does not grow with the
// text; all processors encode.
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
  std::string validation_out;     // for the last part of the text; empty: nothing is held out
  double validation_share = 0.1;  // fraction of the files' bytes, above 0 and below 1
  DocumentFields fields;
  std::optional<int32_t> end_of_text;  // follows each document; none: texts are joined
  int threads = 0;                     // encoding threads; 0: one per processor
};

struct TokenizeResult {
  uint64_t documents = 0;
  uint64_t bytes = 0;       // of the texts
  uint64_t characters = 0;  // in UTF-8
  uint64_t tokens = 0;      // in `out`
  uint64_t validation_tokens = 0;
  uint64_t unpredicted = 0;  // number of tokens of prompts
};

// Writes the tokens of the files' documents, one after the other. The output does not depend on the
// number of threads. Tokens of prompts are marked as non-targets. `progress` is called now and then
// with the number of bytes done. Output files appear, or are replaced, once everything is written.
// Throws Error about a path, the disk, or options.
TokenizeResult tokenize_files(const std::vector<TextFile>& files, const Tokenizer& tokenizer,
                              const TokenizeOptions& options,
                              const std::function<void(uint64_t bytes_done)>& progress);

}  // namespace tutti::training

// Converts text files to token files, for `tutti tokenize`. Memory use is independent of the text's
// size. By default, one thread per processor encodes.
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
  std::string out;  // path of the token file
  // path of a token file for the last part of the text; empty: nothing is held out
  std::string validation_out;
  // fraction of the files' bytes that is held out, above 0 and below 1
  double validation_share = 0.1;
  DocumentFields fields;
  // token that is written after each document; unset: texts are joined
  std::optional<int32_t> end_of_text;
  int threads = 0;  // number of encoding threads; 0: one per processor
};

struct TokenizeResult {
  uint64_t documents = 0;
  uint64_t bytes = 0;       // number of bytes of the texts
  uint64_t characters = 0;  // number of UTF-8 characters of the texts
  uint64_t tokens = 0;      // number of tokens in `out`
  uint64_t validation_tokens = 0;
  uint64_t unpredicted = 0;  // number of tokens of prompts
};

// Writes the tokens of the files' documents, one after the other. The output does not depend on the
// number of threads. Tokens of prompts are marked as non-targets. Calls `progress` now and then
// with the number of bytes done. The output files appear, or replace older ones, only once
// everything is written. Throws Error for unreadable files, a full disk, invalid options, and data
// that leave no training or validation tokens.
TokenizeResult tokenize_files(const std::vector<TextFile>& files, const Tokenizer& tokenizer,
                              const TokenizeOptions& options,
                              const std::function<void(uint64_t bytes_done)>& progress);

}  // namespace tutti::training

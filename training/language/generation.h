// Text from a language model, a token at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "training/models/decoder.h"
#include "training/pipeline/runner.h"

namespace tutti::training {

struct GenerationOptions {
  int64_t tokens = 200;
  double temperature = 1;  // 0: always the likeliest token
  int64_t top_k = 0;       // only the k likeliest tokens; 0: all
  // Of these only the likeliest whose probabilities together reach this (nucleus sampling: Holtzman
  // et al. 2020).
  double top_p = 1;
  uint64_t seed = 1;
  // Tokens that end a text: nothing follows them, and they are not told. Where none is given,
  // generate_text() takes the tokenizer's.
  std::vector<int32_t> ends = {};
  bool ignore_end = false;  // generate_text(): it is a token like any other
  bool cached = true;  // keys and values of earlier tokens are kept; else computed anew each time
};

// Appends tokens to the prompt, which has at least one, and tells each to `on_token`: as many as
// the options say, or fewer where the text ends. The model sees what fits into its context; when
// that is full, the older half of it is forgotten. Its parameters are in memory. The same seed
// gives the same tokens. Throws Error(invalid_argument) for options that make no sense.
void generate(Decoder& model, DType dtype, std::span<const int32_t> prompt,
              const GenerationOptions& options, const std::function<void(int32_t)>& on_token);

// The same in text: tells the prompt and what follows it, piece by piece. `tokenizer`: what
// make_tokenizer() takes; empty: tokens are bytes. What it puts around a text is before the prompt,
// and is not told. Throws Error(invalid_argument) also for a
// tokenizer that is not the model's.
void generate_text(Decoder& model, DType dtype, const std::string& tokenizer,
                   const std::string& prompt, const GenerationOptions& options,
                   const std::function<void(const std::string&)>& on_text);

}  // namespace tutti::training

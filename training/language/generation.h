// Generates text by a language model, token by token.
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
  double temperature = 1;  // 0: always choose the most likely token
  int64_t top_k = 0;  // number of candidates, which are the most likely tokens; 0: all tokens
  // Restricts candidates to the likeliest whose probabilities add up to this (nucleus sampling:
  // Holtzman et al. 2020).
  double top_p = 1;
  uint64_t seed = 1;
  // Tokens that end a text; they are not reported. If empty, generate_text() uses the tokenizer's.
  std::vector<int32_t> ends = {};
  bool ignore_end = false;  // generate_text(): do not stop at the end token
  bool cached = true;       // keep keys and values of earlier tokens; otherwise recompute them
};

// Appends tokens to the prompt, which must have at least one token, and reports each to `on_token`:
// options.tokens, or fewer if the text ends. When the model's context is full, its older half is
// dropped. The model's parameters must be in memory. The same seed gives the same tokens. Throws
// Error(invalid_argument) for invalid options.
void generate(Decoder& model, DType dtype, std::span<const int32_t> prompt,
              const GenerationOptions& options, const std::function<void(int32_t)>& on_token);

// Likewise for text: reports the prompt and its continuation in pieces. `tokenizer`: the argument
// of make_tokenizer(); empty: tokens are bytes. Special tokens that it puts around a text precede
// the prompt and are not reported. Also throws Error(invalid_argument) for a tokenizer that does
// not belong to the model.
void generate_text(Decoder& model, DType dtype, const std::string& tokenizer,
                   const std::string& prompt, const GenerationOptions& options,
                   const std::function<void(const std::string&)>& on_text);

}  // namespace tutti::training

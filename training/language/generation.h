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
  int64_t top_k = 0;       // number of candidates, which are the most likely tokens; 0: all tokens
  // Restricts the candidates to the most likely tokens, as few as have probabilities that add up to
  // at least top_p (nucleus sampling: Holtzman et al. 2020). 1: no restriction.
  double top_p = 1;
  uint64_t seed = 1;
  // Tokens that end a text. They are not passed to the callback. If empty, generate_text() uses the
  // tokenizer's end-of-text token.
  std::vector<int32_t> ends = {};
  bool ignore_end = false;  // generate_text(): do not stop at an end token
  // true: keep keys and values of earlier tokens; false: recompute them for each token
  bool cached = true;
};

// Generates options.tokens tokens after the prompt, or fewer if the text ends, and calls
// on_token(token) for each. The prompt must have at least one token. When the model's context is
// full, drops its older half. The model's parameters must be in memory. The same seed gives the
// same tokens. Throws Error(invalid_argument) for invalid options.
void generate(Decoder& model, DType dtype, std::span<const int32_t> prompt,
              const GenerationOptions& options, const std::function<void(int32_t)>& on_token);

// Generates text: calls on_text with the prompt and its continuation, in pieces. `tokenizer`: the
// argument of make_tokenizer(); if it is empty, tokens are bytes. The special tokens that the
// tokenizer puts around a text surround the prompt but are not passed to on_text. Throws as
// generate() does, and Error(invalid_argument) for a tokenizer that does not belong to the model.
void generate_text(Decoder& model, DType dtype, const std::string& tokenizer,
                   const std::string& prompt, const GenerationOptions& options,
                   const std::function<void(const std::string&)>& on_text);

}  // namespace tutti::training

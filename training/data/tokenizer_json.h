// Hugging Face's tokenizer.json (github.com/huggingface/tokenizers): byte-pair encoding of bytes,
// as GPT-2, Llama 3 and Qwen have it, or of characters after SentencePiece, as Llama 2 and Mistral.
#pragma once

#include <string>

#include "training/data/bpe_tokenizer.h"

namespace tutti::training {

inline constexpr const char* kTokenizerJson = "tokenizer.json";

// Throws Error that names the path and what it has that is not supported: nothing is left out that
// would change a token, but for the post-processor, which puts tokens around a text: we put one
// between documents. That one is the "eos_token" of the tokenizer_config.json beside the file, or
// else <|endoftext|>, <|end_of_text|>, </s> or <eos>, whichever there is.
BpeDescription read_tokenizer_json(const std::string& path);

}  // namespace tutti::training

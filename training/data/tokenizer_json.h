// Hugging Face's tokenizer.json (github.com/huggingface/tokenizers): byte-pair encoding of bytes,
// as in GPT-2, Llama 3 and Qwen, or of characters after SentencePiece, as in Llama 2 and Mistral.
#pragma once

#include <string>

#include "training/data/bpe_tokenizer.h"

namespace tutti::training {

inline constexpr const char* kTokenizerJson = "tokenizer.json";

// Throws Error that names the path and an unsupported feature. Nothing that would change a token is
// ignored except the post-processor, which puts tokens around a text: here a token is put between
// documents instead. It is the "eos_token" of the tokenizer_config.json beside the file, or else
// the first that exists of <|endoftext|>, <|end_of_text|>, </s> and <eos>.
BpeDescription read_tokenizer_json(const std::string& path);

}  // namespace tutti::training

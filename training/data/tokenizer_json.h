// Reads Hugging Face's tokenizer.json (github.com/huggingface/tokenizers): byte-pair encoding of
// bytes, as in GPT-2, Llama 3 and Qwen, or of characters as in SentencePiece, which Llama 2 and
// Mistral use.
#pragma once

#include <string>

#include "training/data/bpe_tokenizer.h"

namespace tutti::training {

inline constexpr const char* kTokenizerJson = "tokenizer.json";

// Reads the file. Throws Error that names the path and an unsupported feature; ignores nothing that
// would change a token. The tokens that the post-processor puts around a text become the frame,
// which encode() does not add. The token that separates documents is the "eos_token" of the
// tokenizer_config.json beside the file or, if there is none, the first added token of
// <|endoftext|>, <|end_of_text|>, </s> and <eos>.
BpeDescription read_tokenizer_json(const std::string& path);

}  // namespace tutti::training

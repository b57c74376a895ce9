// GPT-2's vocabulary files, which represent bytes by printable characters.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "training/data/bpe_tokenizer.h"

namespace tutti::training {

// Returns the bytes that a token's characters represent: printable Latin-1 characters represent
// themselves, U+0100 and on the other bytes in ascending order (bytes_to_unicode in GPT-2's
// src/encoder.py). None if a character represents no byte.
std::optional<std::string> bytes_of_symbol(std::string_view symbol);

// Reads encoder.json and vocab.bpe (OpenAI's names), or vocab.json and merges.txt (Hugging Face's).
// Special tokens in a text (such as <|endoftext|>) are treated as text. Throws Error naming the
// file and the faulty token or line. The vocabulary must contain every byte, and the ids from 0 to
// its size less one.
BpeDescription read_gpt2_vocabulary(const std::string& directory);

}  // namespace tutti::training

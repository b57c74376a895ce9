// Reads GPT-2's vocabulary files, which represent bytes by printable characters.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "training/data/bpe_tokenizer.h"

namespace tutti::training {

// Returns the bytes that a token's characters represent. Printable Latin-1 characters represent
// themselves; U+0100 and the following characters represent the other bytes in ascending order
// (bytes_to_unicode in GPT-2's src/encoder.py). Returns nothing if a character represents no byte.
std::optional<std::string> bytes_of_symbol(std::string_view symbol);

// Reads encoder.json and vocab.bpe (OpenAI's names), or vocab.json and merges.txt (Hugging Face's).
// The vocabulary must contain every byte, and its ids must be 0 to size - 1. Special tokens in a
// text (such as <|endoftext|>) are treated as ordinary text. Throws Error that names the file and
// the faulty token or line.
BpeDescription read_gpt2_vocabulary(const std::string& directory);

}  // namespace tutti::training

// GPT-2's vocabulary files, which write bytes as printable characters.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "training/data/bpe_tokenizer.h"

namespace tutti::training {

// The bytes that a token's characters stand for: printable Latin-1 for itself, U+0100 and on for
// the other bytes in ascending order (bytes_to_unicode in GPT-2's src/encoder.py). Empty where a
// character stands for none.
std::optional<std::string> bytes_of_symbol(std::string_view symbol);

// Reads encoder.json and vocab.bpe (OpenAI's names), or vocab.json and merges.txt (Hugging Face's).
// What looks like a special token in a text (such as <|endoftext|>) is text then. Throws Error
// naming the file, and the token or line that is wrong in it. The vocabulary must have every byte,
// and the ids 0 to its size less one.
BpeDescription read_gpt2_vocabulary(const std::string& directory);

}  // namespace tutti::training

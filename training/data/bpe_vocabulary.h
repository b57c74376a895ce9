// GPT-2's vocabulary files write bytes as printable characters. This reads them back.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::training {

// The bytes that a token's characters stand for: printable Latin-1 for itself, U+0100 and on for
// the other bytes in ascending order (bytes_to_unicode in GPT-2's src/encoder.py). Empty where a
// character stands for none.
std::optional<std::string> bytes_of_symbol(std::string_view symbol);

// Of a JSON file {"token": id, ...}, the bytes of token i at i. Throws Error naming the path.
std::vector<std::string> read_vocabulary(const std::string& path);

}  // namespace tutti::training

#include "training/data/tokenizer.h"

#include "base/error.h"
#include "base/text.h"
#include "training/data/bpe_tokenizer.h"

namespace tutti::training {

std::vector<uint16_t> ByteTokenizer::encode(std::string_view text) const {
  std::vector<uint16_t> tokens;
  tokens.reserve(text.size());
  for (const char c : text) tokens.push_back(static_cast<uint8_t>(c));
  return tokens;
}

std::string ByteTokenizer::decode(std::span<const uint16_t> tokens) const {
  std::string text;
  text.reserve(tokens.size());
  for (const uint16_t token : tokens) {
    if (token >= vocabulary_size()) {
      throw Error(ErrorCode::invalid_argument, cat("token ", token, " is not a byte"),
                  {.cause = "the tokens are of another tokenizer"});
    }
    text.push_back(static_cast<char>(token));
  }
  return text;
}

std::unique_ptr<Tokenizer> make_tokenizer(const std::string& directory) {
  if (directory.empty()) return std::make_unique<ByteTokenizer>();
  return std::make_unique<BpeTokenizer>(directory);
}

}  // namespace tutti::training

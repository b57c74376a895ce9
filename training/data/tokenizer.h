// Text to tokens and back, byte for byte: decode(encode(x)) == x for every x, valid UTF-8 or not.
//
// Tokenizers do not change after construction: any number of threads may share one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::training {

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  virtual std::vector<uint16_t> encode(std::string_view text) const = 0;
  // Throws Error(invalid_argument) for a token that is not in the vocabulary.
  virtual std::string decode(std::span<const uint16_t> tokens) const = 0;
  virtual size_t vocabulary_size() const = 0;

  // The last place at which this text may be cut, whatever follows it: the tokens of the two parts
  // are the tokens of the whole. For text that comes in pieces. 0: there is none.
  virtual size_t last_cut(std::string_view text) const = 0;
};

// Every byte is a token.
class ByteTokenizer final : public Tokenizer {
 public:
  std::vector<uint16_t> encode(std::string_view text) const override;
  std::string decode(std::span<const uint16_t> tokens) const override;
  size_t vocabulary_size() const override { return 256; }
  size_t last_cut(std::string_view text) const override { return text.size(); }
};

// Of the vocabulary in the directory (see bpe_tokenizer.h), or of bytes where the name is empty.
std::unique_ptr<Tokenizer> make_tokenizer(const std::string& directory);

}  // namespace tutti::training

// Text to tokens and back.
//
// Tokenizers do not change after construction: any number of threads may share one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::training {

// A text, or a part of one that comes in pieces.
struct TextPiece {
  std::string_view text;
  bool begins = true;  // nothing of the text comes before
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // The tokens of each piece. Pieces in one call share what is found out about their words: give
  // short texts together.
  virtual std::vector<std::vector<int32_t>> encode(std::span<const TextPiece> pieces) const = 0;
  std::vector<int32_t> encode(std::string_view text) const;  // of one whole text

  // The text of tokens from a text's beginning. Throws Error(invalid_argument) for a token that is
  // not in the vocabulary, as text_of() does.
  virtual std::string decode(std::span<const int32_t> tokens) const = 0;
  // What a token adds to a text that has begun; a part of a character, maybe.
  virtual std::string text_of(int32_t token) const = 0;

  virtual size_t vocabulary_size() const = 0;  // above every token
  // The token that is written like this, such as <|endoftext|>.
  virtual std::optional<int32_t> find(std::string_view name) const = 0;
  // The one that ends documents, if the tokenizer has one.
  virtual std::optional<int32_t> end_of_text() const = 0;

  // What stands around every text that a model is given: a beginning of text, mostly. It is no part
  // of what encode() makes.
  struct Frame {
    std::vector<int32_t> before, after;
  };
  virtual Frame frame() const { return {}; }

  // The last place at which this text may be cut, whatever follows it: the tokens of the two parts
  // are the tokens of the whole. For text that comes in pieces. 0: there is none.
  virtual size_t last_cut(std::string_view text) const = 0;
};

// Every byte is a token; decode(encode(x)) == x.
class ByteTokenizer final : public Tokenizer {
 public:
  using Tokenizer::encode;
  std::vector<std::vector<int32_t>> encode(std::span<const TextPiece> pieces) const override;
  std::string decode(std::span<const int32_t> tokens) const override;
  std::string text_of(int32_t token) const override;
  size_t vocabulary_size() const override { return 256; }
  std::optional<int32_t> find(std::string_view) const override { return std::nullopt; }
  std::optional<int32_t> end_of_text() const override { return std::nullopt; }
  size_t last_cut(std::string_view text) const override { return text.size(); }
};

// The tokenizer at a path: Hugging Face's tokenizer.json, or a directory with one, or with the two
// files of GPT-2's (bpe_vocabulary.h). Of bytes where the path is empty. Throws Error naming the
// path and what is wrong there.
std::unique_ptr<Tokenizer> make_tokenizer(const std::string& path);

}  // namespace tutti::training

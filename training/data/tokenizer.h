// Conversion of text to tokens and back.
//
// Tokenizers do not change after construction, so they are thread-safe.
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
  bool begins = true;  // nothing of the text precedes this piece
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Returns the tokens of each piece. Pieces of one call share cached words: pass short texts
  // together.
  virtual std::vector<std::vector<int32_t>> encode(std::span<const TextPiece> pieces) const = 0;
  std::vector<int32_t> encode(std::string_view text) const;  // one whole text

  // Returns the text of tokens that begin a text. Throws Error(invalid_argument) for a token that
  // is not in the vocabulary, as text_of() does.
  virtual std::string decode(std::span<const int32_t> tokens) const = 0;
  // Text that a token adds to a text that has begun; possibly a part of a character.
  virtual std::string text_of(int32_t token) const = 0;

  virtual size_t vocabulary_size() const = 0;  // upper bound of tokens, exclusive
  // The token with this text, such as <|endoftext|>.
  virtual std::optional<int32_t> find(std::string_view name) const = 0;
  // The token that ends documents, if the tokenizer has one.
  virtual std::optional<int32_t> end_of_text() const = 0;

  // Tokens around every text that a model is given, mostly a beginning of text. encode() does not
  // add them.
  struct Frame {
    std::vector<int32_t> before, after;
  };
  virtual Frame frame() const { return {}; }

  // The last place where this text may be cut, whatever follows: the tokens of the two parts are
  // the tokens of the whole. For text that is read in pieces. 0: none.
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

// Loads the tokenizer at a path: Hugging Face's tokenizer.json, or a directory with that file or
// with GPT-2's two files (bpe_vocabulary.h). An empty path means bytes. Throws Error naming the
// path and the fault.
std::unique_ptr<Tokenizer> make_tokenizer(const std::string& path);

}  // namespace tutti::training

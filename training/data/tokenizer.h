// Converts text to tokens and tokens to text.
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

// A text, or one part of a text that is processed in parts.
struct TextPiece {
  std::string_view text;
  bool begins = true;  // true if this piece is the beginning of the text
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Returns the tokens of each piece. The pieces of one call share a cache of words, so short texts
  // should be passed together.
  virtual std::vector<std::vector<int32_t>> encode(std::span<const TextPiece> pieces) const = 0;
  // Returns the tokens of one whole text.
  std::vector<int32_t> encode(std::string_view text) const;

  // Returns the text of tokens that begin a text. Throws Error(invalid_argument) for a token that
  // is not in the vocabulary, as text_of() does.
  virtual std::string decode(std::span<const int32_t> tokens) const = 0;
  // Returns the text that a token adds after other tokens. The text may end inside a character.
  virtual std::string text_of(int32_t token) const = 0;

  virtual size_t vocabulary_size() const = 0;  // Returns the exclusive upper bound of tokens.
  // Returns the token with this text, such as <|endoftext|>.
  virtual std::optional<int32_t> find(std::string_view name) const = 0;
  // Returns the token that ends documents, if the tokenizer has one.
  virtual std::optional<int32_t> end_of_text() const = 0;

  // Tokens that are put around every text that a model is given, typically a beginning-of-text
  // token. encode() does not add them.
  struct Frame {
    std::vector<int32_t> before, after;
  };
  virtual Frame frame() const { return {}; }

  // Returns the last position at which this text may be cut whatever text follows, or 0 if there is
  // none. Encoding the two parts separately then gives the same tokens as encoding the whole text.
  // Used for text that is read in pieces.
  virtual size_t last_cut(std::string_view text) const = 0;
};

// A tokenizer whose tokens are bytes; decode(encode(x)) == x.
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
// with GPT-2's two files (bpe_vocabulary.h). An empty path means a ByteTokenizer. Throws Error that
// names the path and the fault.
std::unique_ptr<Tokenizer> make_tokenizer(const std::string& path);

}  // namespace tutti::training

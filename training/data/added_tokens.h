// Finds special tokens, such as <|endoftext|>, in a text before the text is split into words.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::training {

struct AddedToken {
  std::string text;
  int32_t id = 0;
};

class AddedTokens {
 public:
  explicit AddedTokens(std::vector<AddedToken> tokens = {});

  struct Part {
    std::string_view text;
    std::optional<int32_t> token;  // the token whose text this is; unset for ordinary text
  };
  // Splits the text into tokens and ordinary text, in order. If several tokens begin at the same
  // place, the longest matches.
  std::vector<Part> split(std::string_view text) const;

  std::optional<int32_t> find(std::string_view text) const;
  bool end(std::string_view text) const;  // Returns true if the text ends with one of the tokens.
  // Returns true if a text may be cut before any blank that follows a non-blank character, because
  // no token contains such a blank.
  bool may_cut_before_blanks() const { return may_cut_; }

 private:
  // indexed by the tokens' first byte; each list begins with the longest token
  std::array<std::vector<AddedToken>, 256> by_first_byte_;
  size_t size_ = 0;
  bool may_cut_ = true;
};

}  // namespace tutti::training

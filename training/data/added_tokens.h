// Special tokens that are matched in a text before it is split into words, such as <|endoftext|>.
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
    std::optional<int32_t> token;  // the token with this text; none: ordinary text
  };
  // Returns the parts in order; together they are the text. Of tokens that begin at one place the
  // longest matches.
  std::vector<Part> split(std::string_view text) const;

  std::optional<int32_t> find(std::string_view text) const;
  bool end(std::string_view text) const;  // true if the text ends with one of the tokens
  // True if a text may be cut before a blank that follows another character.
  bool may_cut_before_blanks() const { return may_cut_; }

 private:
  std::array<std::vector<AddedToken>, 256> by_first_byte_;  // the longest first
  size_t size_ = 0;
  bool may_cut_ = true;
};

}  // namespace tutti::training

// Tokens that are found in a text before it is cut into words, such as <|endoftext|>.
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
    std::optional<int32_t> token;  // that this text is; none: text as any other
  };
  // The parts in order; of tokens that begin at the same place the longest is taken. Together they
  // are the text.
  std::vector<Part> split(std::string_view text) const;

  std::optional<int32_t> find(std::string_view text) const;
  bool end(std::string_view text) const;  // whether one of them does
  // Whether a text may be cut before a blank that follows something else.
  bool may_cut_before_blanks() const { return may_cut_; }

 private:
  std::array<std::vector<AddedToken>, 256> by_first_byte_;  // the longest first
  size_t size_ = 0;
  bool may_cut_ = true;
};

}  // namespace tutti::training

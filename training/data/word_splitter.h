// Cuts text into the words inside which GPT-2's tokenizer merges bytes.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>
#include <vector>

struct pcre2_real_code_8;

namespace tutti::training {

// By GPT-2's regular expression (github.com/openai/gpt-2, src/encoder.py):
// 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
// Any number of threads may share one.
class WordSplitter {
 public:
  WordSplitter();

  // The words in order; together they are the text. A run of bytes that is not UTF-8 is a word.
  std::vector<std::string_view> split(std::string_view text) const;

  // Tokenizer::last_cut: before a white space that follows something else. No word reaches over
  // such a place, and nothing before it is matched by what comes after.
  static size_t last_cut(std::string_view text);

 private:
  struct Free {
    void operator()(pcre2_real_code_8* code) const;
  };
  std::unique_ptr<pcre2_real_code_8, Free> pattern_;
};

}  // namespace tutti::training

// Splits text into words; a tokenizer merges only inside a word.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

struct pcre2_real_code_8;

namespace tutti::training {

// The regular expressions of GPT-2 (github.com/openai/gpt-2, src/encoder.py) and of Llama 3
// (github.com/meta-llama/llama3, llama/tokenizer.py).
inline constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
    R"(\s*[\r\n]+|\s+(?!\S)|\s+)";

// Splits text by a regular expression in the dialect of Oniguruma, which Hugging Face's tokenizers
// use. Thread-safe.
class WordSplitter {
 public:
  // Compiles the pattern. Throws Error(unsupported) for a pattern that PCRE2 does not support, or
  // interprets differently.
  explicit WordSplitter(std::string_view pattern = kGpt2Pattern);

  // Returns the words in order: the matches and the texts between them. A run of bytes that is not
  // UTF-8 is one word.
  std::vector<std::string_view> split(std::string_view text) const;
  // Appends the parts into which this splitter splits a word of another splitter.
  void split(std::string_view text, std::vector<std::string_view>& words) const;

  // Returns the last position at which the text may be cut, as Tokenizer::last_cut() does: no word
  // extends over it, and no match before it depends on what follows. Returns 0 for patterns other
  // than those of GPT-2, Llama 3 and Qwen 2.
  size_t last_cut(std::string_view text) const;
  // Returns true if every cut of an earlier splitter remains valid, because this splitter only
  // splits further.
  bool cuts_anywhere() const { return cuts_ == Cuts::anywhere; }

 private:
  enum class Cuts {
    unknown,
    before_space,  // a text may be cut before white space that follows another character
    // like before_space, except where the white space may be the line end of a punctuation match
    before_inner_space,
    anywhere,
  };
  struct Free {
    void operator()(pcre2_real_code_8* code) const;
  };
  static Cuts cuts_of(std::string_view pattern);

  Cuts cuts_;
  std::unique_ptr<pcre2_real_code_8, Free> pattern_;
};

}  // namespace tutti::training

// Produces almost valid inputs by mutating a corpus. The same seed gives the same inputs.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace tutti::fuzz {

class Mutator {
 public:
  // The corpus has at least one input; no input and no mutation is longer than `longest`.
  Mutator(std::vector<std::string> corpus, uint64_t seed, size_t longest);
  std::string next();

 private:
  size_t below(size_t bound);  // returns a random number below `bound`; 0 if `bound` is 0
  bool one_in(size_t count) { return below(count) == 0; }
  // A part of the input, usually a short one.
  struct Part {
    size_t begin;
    size_t length;
  };
  Part part_of(const std::string& input);
  Part token_of(const std::string& input);  // a word, number or sign of a text

  void change(std::string& input);
  void change_number_in_text(std::string& input);
  void change_number_in_bytes(std::string& input);
  void splice(std::string& input);

  std::vector<std::string> corpus_;
  std::mt19937_64 random_;
  size_t longest_;
};

}  // namespace tutti::fuzz

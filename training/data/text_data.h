// Loads text to train on from any files, as untokenized bytes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tutti::training {

// A text as bytes, of which the last tenth is held out for validation.
struct TextData {
  std::vector<uint8_t> bytes;
  size_t training_size = 0;  // number of bytes for training; the bytes after them are held out
  // descriptions of skipped files in directories (text_files.h)
  std::vector<std::string> skipped = {};

  size_t validation_size() const { return bytes.size() - training_size; }
  // Returns a number that is equal for equal text; ranks compare it.
  uint64_t fingerprint() const;
};

// Minimum number of bytes of a text for training.
inline constexpr size_t kMinTextBytes = 128;

TextData split_text(std::vector<uint8_t> bytes);

// Loads the concatenated texts of the files that the paths denote (text_files.h). Throws Error that
// names the path, as find_text_files() does, and for a text that is too short.
TextData load_text(const std::vector<std::string>& paths);

// Returns the conditional entropy H(next byte | previous byte) of the text in nats, computed from
// the text's own counts. No model that reads only the previous byte has a lower loss on this text;
// a useful model must have a lower loss.
double bigram_entropy(std::span<const uint8_t> text);

}  // namespace tutti::training

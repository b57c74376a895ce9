// Text to train on: any files, as bytes. Nothing is tokenized.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tutti::training {

// The last tenth is held out for validation.
struct TextData {
  std::vector<uint8_t> bytes;
  size_t training_size = 0;  // the bytes before are trained on, those from here on are held out
  std::vector<std::string> left_out = {};  // of directories (text_files.h)

  size_t validation_size() const { return bytes.size() - training_size; }
  // The same text gives the same number; ranks compare it.
  uint64_t fingerprint() const;
};

// Fewer bytes than this are no text to learn from.
inline constexpr size_t kMinTextBytes = 128;

TextData split_text(std::vector<uint8_t> bytes);

// The texts of the files that the paths stand for (text_files.h), one after the other. Throws Error
// naming the path, as find_text_files() does, and for a text that is too short.
TextData load_text(const std::vector<std::string>& paths);

// H(next byte | previous byte) of the text in nats, from its own counts: what the best table of
// byte pairs reaches. A model worth its name is well below.
double bigram_entropy(std::span<const uint8_t> text);

}  // namespace tutti::training

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

  size_t validation_size() const { return bytes.size() - training_size; }
  // The same text gives the same number; ranks compare it.
  uint64_t fingerprint() const;
};

// Fewer bytes than this are no text to learn from.
inline constexpr size_t kMinTextBytes = 128;

TextData split_text(std::vector<uint8_t> bytes);

// Reads files and concatenates them in sorted order. A directory stands for the text files directly
// in it; symbolic links and files with NUL bytes in it are passed over. Throws Error naming the
// path: missing or unreadable, binary, not a regular file, a directory without text, empty, too
// short.
TextData load_text(const std::vector<std::string>& paths);

// H(next byte | previous byte) of the text in nats, from its own counts: what the best table of
// byte pairs reaches. A model worth its name is well below.
double bigram_entropy(std::span<const uint8_t> text);

}  // namespace tutti::training

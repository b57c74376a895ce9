#include "training/data/text_data.h"

#include <xxhash.h>

#include <cmath>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "training/core/random.h"
#include "training/data/text_files.h"

namespace tutti::training {

uint64_t TextData::fingerprint() const { return XXH3_64bits(bytes.data(), bytes.size()); }

TextData split_text(std::vector<uint8_t> bytes) {
  const size_t held_out = bytes.size() / 10;
  const size_t training_size = bytes.size() - held_out;
  return {.bytes = std::move(bytes), .training_size = training_size};
}

TextData load_text(const std::vector<std::string>& paths) {
  std::vector<uint8_t> all;
  std::vector<std::string> skipped;
  const std::vector<TextFile> files = find_text_files(paths, &skipped);
  for (const TextFile& file : files) {
    read_texts(file.path,
               [&](std::string_view text) { all.insert(all.end(), text.begin(), text.end()); });
  }
  if (all.size() < kMinTextBytes) {
    throw Error(ErrorCode::invalid_argument,
                cat("the text is too short to train on: ", all.size(), " bytes"),
                {.where = files.empty() ? "no file was specified" : files.front().path,
                 .remedy = cat("use at least ", kMinTextBytes,
                               " bytes; a useful model requires some hundred thousand")});
  }
  TextData text = split_text(std::move(all));
  text.skipped = std::move(skipped);
  return text;
}

double bigram_entropy(std::span<const uint8_t> text) {
  constexpr size_t kValues = 256;
  std::vector<uint64_t> pairs(kValues * kValues);
  for (size_t i = 1; i < text.size(); ++i) ++pairs[text[i - 1] * kValues + text[i]];
  double sum = 0;  // sum of count * -log p(next | previous)
  for (size_t previous = 0; previous < kValues; ++previous) {
    const std::span<const uint64_t> row(pairs.data() + previous * kValues, kValues);
    double total = 0;
    for (uint64_t count : row) total += static_cast<double>(count);
    for (uint64_t count : row) {
      const double n = static_cast<double>(count);
      if (count > 0) sum += n * std::log(total / n);
    }
  }
  return text.size() < 2 ? 0.0 : sum / static_cast<double>(text.size() - 1);
}

}  // namespace tutti::training

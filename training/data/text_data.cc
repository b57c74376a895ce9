#include "training/data/text_data.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <utility>

#include "base/error.h"
#include "base/fd.h"
#include "base/hash.h"
#include "base/text.h"
#include "training/random.h"

namespace tutti::training {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kRemedy = "check the path and its permissions";

bool is_binary(std::span<const uint8_t> bytes) {
  return std::ranges::find(bytes, 0) != bytes.end();
}

struct stat status_of(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) {
    throw system_error(cat("cannot read the text ", path), errno, {.remedy = std::string(kRemedy)});
  }
  return status;
}

std::vector<uint8_t> read_file(const std::string& path) {
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) {
    throw system_error(cat("cannot read the text ", path), errno, {.remedy = std::string(kRemedy)});
  }
  std::vector<uint8_t> bytes;
  std::array<uint8_t, 65536> block;
  while (true) {
    const ssize_t count = ::read(file.get(), block.data(), block.size());
    if (count > 0) bytes.insert(bytes.end(), block.begin(), block.begin() + count);
    if (count == 0) return bytes;
    if (count < 0 && errno != EINTR) {
      throw system_error(cat("cannot read the text ", path), errno);
    }
  }
}

std::vector<std::string> files_in(const std::string& directory) {
  std::vector<std::string> files;
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    if (entry->symlink_status().type() == fs::file_type::regular) files.push_back(entry->path());
  }
  if (error) {
    throw system_error(cat("cannot read the directory ", directory), error.value(),
                       {.remedy = std::string(kRemedy)});
  }
  std::ranges::sort(files);
  return files;
}

std::vector<uint8_t> read_directory(const std::string& directory) {
  std::vector<uint8_t> all;
  for (const std::string& path : files_in(directory)) {
    const std::vector<uint8_t> bytes = read_file(path);
    if (!is_binary(bytes)) all.insert(all.end(), bytes.begin(), bytes.end());
  }
  if (all.empty()) {
    throw Error(
        ErrorCode::invalid_argument, cat("no text in the directory ", directory),
        {.cause = "it holds no regular file with text in it (subdirectories, symbolic links "
                  "and files with NUL bytes are passed over)",
         .remedy = "name a text file, or a directory of text files"});
  }
  return all;
}

std::vector<uint8_t> read_path(const std::string& path) {
  const mode_t mode = status_of(path).st_mode;
  if (S_ISDIR(mode)) return read_directory(path);
  if (!S_ISREG(mode)) {
    throw Error(ErrorCode::invalid_argument, cat("cannot train on ", path),
                {.cause = "it is neither a file nor a directory",
                 .remedy = "save the text in a file: every rank reads it anew"});
  }
  std::vector<uint8_t> bytes = read_file(path);
  if (bytes.empty()) {
    throw Error(ErrorCode::invalid_argument, cat("the text ", path, " is empty"),
                {.remedy = "name a file with text in it"});
  }
  if (is_binary(bytes)) {
    throw Error(ErrorCode::invalid_argument, cat("the file ", path, " is not text"),
                {.cause = "it has NUL bytes", .remedy = "name a text file"});
  }
  return bytes;
}

}  // namespace

uint64_t TextData::fingerprint() const { return fnv(bytes); }

TextData split_text(std::vector<uint8_t> bytes) {
  const size_t held_out = bytes.size() / 10;
  const size_t training_size = bytes.size() - held_out;
  return {std::move(bytes), training_size};
}

TextData load_text(const std::vector<std::string>& paths) {
  std::vector<std::string> sorted = paths;
  std::ranges::sort(sorted);
  std::vector<uint8_t> all;
  for (const std::string& path : sorted) {
    const std::vector<uint8_t> bytes = read_path(path);
    all.insert(all.end(), bytes.begin(), bytes.end());
  }
  if (all.size() < kMinTextBytes) {
    throw Error(ErrorCode::invalid_argument,
                cat("the text is too short to train on: ", all.size(), " bytes"),
                {.where = sorted.empty() ? "no file was named" : sorted.front(),
                 .remedy = cat("give at least ", kMinTextBytes,
                               " bytes; some hundred thousand make a useful model")});
  }
  return split_text(std::move(all));
}

double bigram_entropy(std::span<const uint8_t> text) {
  constexpr size_t kValues = 256;
  std::vector<uint64_t> pairs(kValues * kValues);
  for (size_t i = 1; i < text.size(); ++i) ++pairs[text[i - 1] * kValues + text[i]];
  double sum = 0;  // of count * -log p(next | previous)
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

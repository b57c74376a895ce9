#include "training/texts.h"

#include <array>
#include <cstdint>
#include <span>
#include <utility>

#include "base/text.h"

namespace tutti::training {
namespace {

constexpr int kFirst = 0;

}  // namespace

std::vector<std::string> gather_texts(Communicator& communicator, const std::string& own) {
  const bool first = communicator.rank() == kFirst;
  const uint64_t size = own.size();
  std::vector<uint64_t> sizes(first ? static_cast<size_t>(communicator.size()) : 0);
  communicator.gather({&size, 1, DType::u64}, {sizes.data(), sizes.size(), DType::u64}, kFirst);
  uint64_t total = 0;
  for (const uint64_t one : sizes) total += one;
  std::string all(total, '\0');
  communicator.gatherv({own.data(), size, DType::u8}, {all.data(), total, DType::u8},
                       Blocks::of(sizes), kFirst);
  std::vector<std::string> texts;
  size_t at = 0;
  for (const uint64_t one : sizes) {
    texts.push_back(all.substr(at, one));
    at += one;
  }
  return texts;
}

std::vector<std::string> texts_of_all(Communicator& communicator, const std::string& own) {
  std::string all;
  for (const std::string& text : gather_texts(communicator, own)) all += text + '\0';
  std::vector<std::string> texts = split(text_of_first(communicator, std::move(all)), '\0');
  texts.resize(static_cast<size_t>(communicator.size()));
  return texts;
}

std::string text_of_first(Communicator& communicator, std::string text) {
  std::array<uint64_t, 1> size = {text.size()};
  communicator.broadcast(std::span<uint64_t>(size), kFirst);
  text.resize(size[0]);
  if (size[0] > 0) {
    const Buffer buffer{text.data(), text.size(), DType::u8};
    communicator.broadcast({text.data(), text.size(), DType::u8}, buffer, kFirst);
  }
  return text;
}

Group group_of(Communicator& communicator) {
  return {
      .rank = communicator.rank(),
      .size = communicator.size(),
      .gather_to_first =
          [&communicator](const std::string& text) { return gather_texts(communicator, text); },
      .from_first = [&communicator](
                        std::string text) { return text_of_first(communicator, std::move(text)); }};
}

}  // namespace tutti::training

#include "training/checkpoint/writer.h"

#include <algorithm>
#include <charconv>
#include <cstdio>

#include "base/error.h"
#include "base/printable.h"
#include "base/text.h"

namespace tutti::training {
namespace {

// Formats a number as text, because many JSON readers cannot represent 64-bit numbers.
std::string hexadecimal(uint64_t value) {
  char text[20];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value));
  return text;
}

uint64_t from_hexadecimal(const std::string& text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (error == std::errc() && end == text.data() + text.size()) return value;
  throw Error(ErrorCode::invalid_argument, cat(in_quotes(text), " is not a digest of members"));
}

}  // namespace

bool WriterHistory::has(const Writer& writer) const {
  return std::ranges::find(writers, writer) != writers.end();
}

std::string in_words(const Writer& writer) {
  return cat("epoch ", writer.epoch, " with members ", hexadecimal(writer.digest), ", of start ",
             printable(writer.start, 64));
}

Json to_json(const FenceMark& mark) {
  return {{"number", mark.number},
          {"start", mark.writer.start},
          {"epoch", mark.writer.epoch},
          {"digest", hexadecimal(mark.writer.digest)}};
}

FenceMark fence_mark_of(const Json& json) {
  return {.number = json.at("number").get<uint64_t>(),
          .writer = {.start = json.at("start").get<std::string>(),
                     .epoch = json.at("epoch").get<uint64_t>(),
                     .digest = from_hexadecimal(json.at("digest").get<std::string>())}};
}

}  // namespace tutti::training
